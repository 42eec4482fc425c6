# The base is named by tag, so that this file builds everywhere. `make image` without BASE makes one of
# Debian's packages; with BASE it wants a digest, which only your registry can tell you
# (docs/releasing.md):
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
#   make image BASE=python@sha256:...
ARG BASE=python:3.13-slim
# Where packages are installed: a base with ensurepip and a shell, and with the Python of BASE.
ARG BUILDER=${BASE}
# requirements-run-otlp.lock has OpenTelemetry's packages too, for --otlp-endpoint: make image LOCK=...
ARG LOCK=requirements-run.lock

# Build: every dependency is a wheel with a known hash; nothing is compiled.
FROM ${BUILDER} AS build
ARG LOCK
# Sets are in one order in all bytecode; not a variable of the image.
ARG PYTHONHASHSEED=0
RUN python -m venv /tmp/pip && python -m venv --without-pip /opt/mooring
COPY requirements-run.lock requirements-run-otlp.lock /tmp/
RUN /tmp/pip/bin/python -m pip --python /opt/mooring/bin/python install --no-cache-dir --no-deps \
    --no-compile --require-hashes --only-binary :all: -r "/tmp/${LOCK}"
# 24 MB that some wheels carry beside their package: their tests, and the files of a build.
RUN python -c "import glob, shutil; \
    packages = glob.glob('/opt/mooring/lib/python*/site-packages')[0]; \
    unused = ('numpy/**/tests', 'bazel-project'); \
    found = [f for name in unused for f in glob.glob(f'{packages}/{name}', recursive=True)]; \
    [shutil.rmtree(folder) for folder in found]"
# Bytecode that depends on the source alone, and names no times.
RUN /opt/mooring/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/mooring/lib
COPY operator /opt/mooring/operator
RUN /opt/mooring/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/mooring/operator

FROM ${BASE}
# A running scheduler installs nothing. To add plugins, build on this image and copy them from a
# stage of your own. A base may have neither pip nor a shell.
RUN ["python", "-c", "import importlib.util, subprocess, sys; importlib.util.find_spec('pip') and subprocess.run([sys.executable, '-m', 'pip', 'uninstall', '--yes', '--root-user-action=ignore', 'setuptools', 'wheel', 'pip'], check=True)"]
COPY --from=build /opt/mooring /opt/mooring
# Integer columns gain nothing from the threads that OpenBLAS would start for every core.
ENV PATH=/opt/mooring/bin:$PATH \
    PYTHONPATH=/opt/mooring/operator \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["python", "-m", "mooring"]
CMD ["run"]
