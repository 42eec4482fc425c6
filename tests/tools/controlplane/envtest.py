"""Gets envtest's programs: from KUBEBUILDER_ASSETS, or from its archive, which is verified.

`envtest.lock` names the archive of the chosen release for this system, with its SHA-512. The
archive comes from the releases of kubernetes-sigs/controller-tools, or from MOORING_ENVTEST_URL; if
this variable is empty, nothing is downloaded. Any error is reported in one line, and the caller
builds the programs instead (docs/adr/0021-programs-of-the-demo.md).
"""

import hashlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import IO, Final
from urllib.error import HTTPError, URLError

from controlplane.build import SERVER_PROGRAMS, cache_root, only_one
from controlplane.errors import ControlPlaneError
from controlplane.progress import Progress
from controlplane.releases import VARIABLE, chosen_release

LOCK: Final = Path(__file__).with_name("envtest.lock")
RELEASES: Final = "https://github.com/kubernetes-sigs/controller-tools/releases/download"
URL_VARIABLE: Final = "MOORING_ENVTEST_URL"
FOLDER: Final = "controller-tools/envtest"
"""The folder of the programs in an archive."""

_CONNECT_SECONDS: Final = 10.0
_SECONDS: Final = 300.0
"""The most seconds of a download; a build takes as long."""
_MOST_BYTES: Final = 512 * 2**20
"""The most bytes of an archive and of a program; an archive has 60 to 90 MiB."""
_CHUNK: Final = 2**20
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class _NotUsableError(Exception):
    """There is no usable archive; the text gives the reason."""


def chosen_programs() -> Path | None:
    """Return the folder of envtest's programs (KUBEBUILDER_ASSETS); None if it is not set.

    Raises:
        ControlPlaneError: the folder lacks a program, or has another minor version of Kubernetes.
    """
    chosen = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not chosen:
        return None
    try:
        _check(Path(chosen))
    except _NotUsableError as why:
        raise ControlPlaneError(f"KUBEBUILDER_ASSETS: {chosen} {why}; unset it") from None
    return Path(chosen).resolve()


def downloaded_programs(progress: Progress | None = None, lock: Path = LOCK) -> Path | None:
    """Return the folder of the archive's programs, after a download if needed; None if unusable."""
    progress = progress or Progress()
    base = os.environ.get(URL_VARIABLE, RELEASES).rstrip("/")
    system, machine = platform.system().lower(), platform.machine()
    platform_name = f"{system}-{_MACHINES.get(machine, machine)}"
    archive, digest = _locked(lock, f"envtest-v{chosen_release().minor}.", platform_name)
    target = cache_root() / "envtest" / archive.removesuffix(".tar.gz")
    if target.is_dir():
        return target
    if not base or not archive:
        return None
    with only_one(target, "envtest", progress):
        if target.is_dir():
            return target
        # A release is named as its archives are, but for the platform.
        release = archive.removesuffix(f"-{platform_name}.tar.gz")
        progress.begin(f"envtest: downloading {release} ({platform_name})")
        try:
            _fetch(f"{base}/{release}/{archive}", digest, target, progress)
        except _NotUsableError as why:
            progress.end(f"not used: {why}")
            return None
        progress.end()
    return target


def _locked(lock: Path, start: str, platform_name: str) -> tuple[str, str]:
    """Return the name and the SHA-512 of the platform's archive with this start; "" if none."""
    for line in lock.read_text().splitlines():
        digest, _, name = line.partition("  ")
        if name.startswith(start) and name.endswith(f"-{platform_name}.tar.gz"):
            return name, digest
    return "", ""


def _fetch(url: str, digest: str, target: Path, progress: Progress) -> None:
    """Fill the folder `target` with the programs of the archive at this URL."""
    partial = target.with_suffix(f"{target.suffix}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        archive = partial / "archive"
        _download(url, archive, progress)
        found = _digest(archive)
        if found != digest:
            raise _NotUsableError(f"its SHA-512 is {found[:12]}..., not {digest[:12]}...")
        _extract(archive, partial)
        archive.unlink()
        _check(partial)
        partial.rename(target)
    except OSError as error:
        raise _NotUsableError(error.strerror or str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(url: str, file: Path, progress: Progress) -> None:
    if not url.startswith(("https://", "http://")):
        raise _NotUsableError(f"{URL_VARIABLE} must start with https:// or http://")
    deadline = time.monotonic() + _SECONDS
    try:
        with (
            urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer,  # noqa: S310 - see above
            file.open("wb") as output,
        ):
            while chunk := answer.read(_CHUNK):
                output.write(chunk)
                progress.tick()
                if output.tell() > _MOST_BYTES:
                    raise _NotUsableError(f"it has more than {_MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise _NotUsableError(f"it took longer than {_SECONDS:.0f} s")
    except HTTPError as error:
        error.close()
        raise _NotUsableError(str(error)) from error
    except URLError as error:
        raise _NotUsableError(getattr(error.reason, "strerror", None) or str(error)) from error
    except (http.client.HTTPException, ValueError) as error:
        raise _NotUsableError(str(error) or type(error).__name__) from error


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, hashlib.sha512).hexdigest()


def _extract(archive: Path, folder: Path) -> None:
    """Write the programs from the archive into the folder, and no other files."""
    try:
        with tarfile.open(archive) as members:
            for name in SERVER_PROGRAMS:
                member = members.getmember(f"{FOLDER}/{name}")
                content = members.extractfile(member) if member.isreg() else None
                if content is None or member.size > _MOST_BYTES:
                    raise _NotUsableError(f"{name} in it is no program")
                _write_program(content, folder / name)
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise _NotUsableError(f"the archive cannot be read: {error}") from error


def _write_program(content: IO[bytes], path: Path) -> None:
    with path.open("wb") as output:
        shutil.copyfileobj(content, output)
    path.chmod(0o755)


def _check(folder: Path) -> None:
    """Raise _NotUsableError unless all programs exist, run, and have the right version."""
    for name in SERVER_PROGRAMS:
        if not os.access(folder / name, os.X_OK):
            raise _NotUsableError(f"has no program {name}")
    command = [str(folder / "kube-apiserver"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:  # of another system, or without its dynamic linker
        raise _NotUsableError(f"has a kube-apiserver that does not run: {error.strerror}") from None
    said = done.stdout.strip()
    release = chosen_release()
    found = re.search(r"v(\d+\.\d+)", said)
    if found is None or found[1] != release.minor:
        version = said or "an unknown version"
        raise _NotUsableError(f"has {version}, and v{release.minor} is wanted ({VARIABLE})")
