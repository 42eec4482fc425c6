"""Makes the files of a release beside the image; one commit always gives the same files."""

import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from controlplane.build import TOOLS_MODULE, programs_folder
from mooring import __version__
from release.commands import ReleaseError, run

ROOT: Final = Path(__file__).parents[3]
CHART: Final = Path("manifests/chart")
SHARED: Final = {
    "crds/schedulingprofiles.yaml": "crds/schedulingprofiles.yaml",
    "crds/podgroups.yaml": "files/podgroups.yaml",
    "crds/queues.yaml": "crds/queues.yaml",
    "manifests/admission/default-scheduler.yaml": "files/admission.yaml",
    "manifests/monitoring/alerts.yaml": "files/alerts.yaml",
    "manifests/monitoring/dashboard.json": "files/dashboard.json",
    "manifests/monitoring/podmonitor.yaml": "files/podmonitor.yaml",
    "manifests/networkpolicy.yaml": "files/networkpolicy.yaml",
    "manifests/rbac.yaml": "files/rbac.yaml",
}
"""Files that the chart copies, because Helm warns of links and packages nothing else."""

SUMS: Final = "SHA256SUMS"
NAMESPACE: Final = "mooring-release"
"""The purpose of a signature, so that it cannot serve for other files."""


@dataclass(frozen=True)
class Source:
    """The commit that is to be released."""

    commit: str
    epoch: str
    """The time of the commit in seconds since 1970; all files get this time."""

    @classmethod
    def of(cls, root: Path = ROOT) -> "Source":
        """Return the commit of the work tree; ReleaseError if files differ from the commit."""
        git = ("git", "-C", root)
        changed = run([*git, "status", "--porcelain"])
        if changed:
            first = changed.splitlines()[0][3:]
            raise ReleaseError(
                f"{first} is not committed; a release is made of a commit: commit or remove it"
            )
        commit, epoch = run([*git, "log", "-1", "--format=%H %ct"]).split()
        tags = run([*git, "tag", "--points-at", "HEAD", "--list", "v*"]).split()
        wrong = [tag for tag in tags if tag != f"v{__version__}"]
        if wrong:
            raise ReleaseError(
                f"the tag {wrong[0]} is not this commit's version, v{__version__}; "
                "correct one of them (docs/releasing.md)"
            )
        return cls(commit, epoch)


def refresh_chart(root: Path = ROOT) -> list[str]:
    """Copy the common files of manifests/ and crds/ into the chart; return the changed files."""
    changed = []
    for source, name in SHARED.items():
        target = root / CHART / name
        content = (root / source).read_bytes()
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
            changed.append(str(CHART / name))
    return changed


def archive(folder: Path, file: Path, top: str, epoch: str) -> Path:
    """Write the folder's files into a tar.gz that depends only on these files; return its path."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=int(epoch)) as packed,
    ):
        write_tar(folder, packed, f"{top}/", epoch)
    return file


def write_tar(folder: Path, file: IO[bytes] | gzip.GzipFile, prefix: str, epoch: str) -> None:
    """Write the folder's files in order, all with one time and without an owner."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(f"{prefix}{path.relative_to(folder)}")
            member.size, member.mtime = path.stat().st_size, int(epoch)
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as content:
                tar.addfile(member, content)


def python_packages(dist: Path, epoch: str) -> list[Path]:
    """Build wheel and sdist into the folder."""
    with _copied("LICENSE", "README.md", "operator", "pyproject.toml") as tree:
        built = tree / "dist"
        run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, tree],
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        )
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        # setuptools writes the time of the build into the archive of the source.
        with tarfile.open(sdist) as tar:
            tar.extractall(tree / "sdist", filter="data")
        (top,) = (tree / "sdist").iterdir()
        packed = archive(top, dist / sdist.name, top.name, epoch)
        return [Path(shutil.copy(wheel, dist)), packed]


def chart(dist: Path, repository: str, epoch: str) -> Path:
    """Package the chart with images from the repository; return its path."""
    with _copied(str(CHART)) as tree:
        values = tree / CHART / "values.yaml"
        _replace(values, "repository: mooring\n", f"repository: {repository}\n")
        for path in (tree / CHART).rglob("*"):
            os.utime(path, (int(epoch), int(epoch)))
        helm = programs_folder(TOOLS_MODULE) / "helm"
        run([helm, "package", tree / CHART, "--destination", dist])
    return dist / f"mooring-{__version__}.tgz"


def manifests(dist: Path, repository: str) -> Path:
    """Write the CRDs and all objects of manifests/ into one file; return its path."""
    with _copied("crds", "manifests") as tree:
        name = f"image: mooring:{__version__}"
        deployment = tree / "manifests" / "deployment.yaml"
        _replace(deployment, name, f"image: {repository}:{__version__}")
        rendered = run([programs_folder() / "kubectl", "kustomize", tree / "manifests"])
        crds = [path.read_text() for path in sorted((tree / "crds").glob("*.yaml"))]
    file = dist / f"mooring-{__version__}.yaml"
    file.write_text("---\n".join([*crds, rendered]))
    return file


def sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def provenance(
    files: Sequence[Path], source: Source, image: str, parameters: dict[str, str], base: Path
) -> dict[str, Any]:
    """Return an in-toto statement in SLSA's form: the sources of the files and of the image."""
    inputs = [ROOT / name for name in ("requirements.lock", parameters["lock"])]
    made_of: list[dict[str, Any]] = [
        {"name": "source", "digest": {"gitCommit": source.commit}},
        {"name": base.name, "digest": {"sha256": sha256(base)}},
        *({"name": path.name, "digest": {"sha256": sha256(path)}} for path in inputs),
    ]
    subjects = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files]
    named = f"{parameters['image']}:{__version__}"
    subjects.append({"name": named, "digest": {"sha256": image.removeprefix("sha256:")}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mooring:make-release:v1",
                "externalParameters": {**parameters, "version": __version__},
                "resolvedDependencies": made_of,
            },
            "runDetails": {"builder": {"id": "urn:mooring:make-release:v1"}},
        },
    }


def checksums(files: Sequence[Path]) -> Path:
    """Write the digests of files of one folder for `sha256sum --check`; return the file's path."""
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(files)]
    sums = files[0].with_name(SUMS)
    sums.write_text("".join(lines))
    return sums


def sign(sums: Path, key: Path) -> Path:
    """Sign the checksums, and so all files, with an SSH key; return the signature's path."""
    signature = sums.with_name(f"{sums.name}.sig")
    signature.unlink(missing_ok=True)
    run(["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", key, sums])
    return signature


def write_json(file: Path, document: object) -> Path:
    """Write the document as readable JSON; return the file's path."""
    file.write_text(json.dumps(document, indent=2) + "\n")
    return file


@contextmanager
def _copied(*names: str) -> Iterator[Path]:
    """Yield a folder with a copy of these files and folders, so that builds change no original."""
    with tempfile.TemporaryDirectory(prefix="mooring-release-") as folder:
        tree = Path(folder)
        for name in names:
            source, target = ROOT / name, tree / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        yield tree


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if text.count(old) != 1:
        raise ReleaseError(f"{file.name} does not have {old.strip()!r} once")
    file.write_text(text.replace(old, new))
