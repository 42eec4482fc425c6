# The base is named by tag, so that this file builds everywhere. `make image` wants it by digest, which
# only your registry can tell you, and gives the same image each time (docs/releasing.md):
#   docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}'
#   make image BASE=python@sha256:...
ARG BASE=python:3.11-slim
# requirements-run-otlp.lock has OpenTelemetry's packages too, for --otlp-endpoint: make image LOCK=...
ARG LOCK=requirements-run.lock

# Build: every dependency is a wheel with a known hash; nothing is compiled.
FROM ${BASE} AS build
ARG LOCK
RUN python -m venv --without-pip /opt/mooring
COPY requirements-run.lock requirements-run-otlp.lock /tmp/
RUN python -m pip --python /opt/mooring/bin/python install --no-cache-dir --no-deps --no-compile \
    --require-hashes --only-binary :all: -r "/tmp/${LOCK}"
COPY operator /opt/mooring/operator
# Bytecode that depends on the source alone: no times, and sets in one order.
RUN PYTHONHASHSEED=0 /opt/mooring/bin/python -m compileall -q --invalidation-mode unchecked-hash \
    /opt/mooring/lib /opt/mooring/operator

FROM ${BASE}
# A running scheduler installs nothing. To add plugins, build on this image and copy them from a
# stage of your own.
RUN python -m pip uninstall --yes --root-user-action=ignore setuptools wheel pip
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
