"""Builds the image from the Dockerfile with buildah, in a storage of its own."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controlplane.build import cache_root
from mooring import __version__
from release.artifacts import write_tar
from release.base import BUILDER, EPOCH, PYTHON_LIBRARY, RUNTIME, make_base
from release.commands import ReleaseError, run

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = ("buildah", "mmdebstrap", "runc")
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")

BASE: Final = """\
FROM scratch
ADD {tar} /
ENV PATH=/usr/bin
ARG PYTHONHASHSEED=0
RUN ["python", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "{library}"]
"""
"""The Dockerfile of the base; it compiles Python's library, as Debian does at installation."""


def missing() -> str:
    """Return the obstacles to building and running an image here, with remedies; "" without any."""
    if os.geteuid():
        return "this needs root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} is missing; on Debian: apt install {' '.join(PROGRAMS)}"
    return ""


@dataclass(frozen=True)
class Image:
    """An image in the storage."""

    identity: str
    """The id in the storage; unlike a name, it stays the same after another build."""
    size: int
    """The bytes of all layers, unpacked."""
    config: dict[str, Any]
    """The Dockerfile's settings for running the image: `Entrypoint`, `Cmd`, `Env`, `User`."""
    base: Path
    """The path of the base's tar file."""


class Images:
    """Builds images under a lock; a second process waits, and then reuses most steps."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_root() / "image"
        self._folder.mkdir(parents=True, exist_ok=True)

    def build(self, lock: str, epoch: str, *, anew: bool) -> Image:
        """Return the image of this work tree, with the time `epoch` for all new files.

        With `anew`, download Debian's packages and all wheels again. Otherwise reuse earlier steps,
        even those with another `epoch`.
        """
        with self._alone():
            bases = {base: make_base(base, self._folder, anew=anew) for base in (RUNTIME, BUILDER)}
            for base, tar in bases.items():
                self._import(base.name, tar)
            name = f"localhost/mooring:{__version__}"
            options = [f"--timestamp={epoch}", f"--build-arg=LOCK={lock}", *_certificates()]
            options += [f"--build-arg={base.name.upper()}=localhost/{base.name}" for base in bases]
            if anew:
                self._build("--no-cache", *options, f"--tag={name}", ROOT)
            else:
                # The first stage has a name, so that the next build finds its layers.
                self._build("--layers", *options, "--target=build", "--tag=localhost/build", ROOT)
                self._build("--layers", *options, f"--tag={name}", ROOT)
            with contextlib.suppress(ReleaseError):  # a killed build leaves a container of an image
                self._buildah("rmi", "--prune")
            return self._found(name, bases[RUNTIME])

    def save(self, image: Image, file: Path, epoch: str) -> str:
        """Write the image as an OCI archive, and return its digest in a registry.

        All files get the time `epoch`; buildah would use the present time.
        """
        with tempfile.TemporaryDirectory(prefix="mooring-image-") as folder:
            layout, digest = Path(folder, "layout"), Path(folder, "digest")
            target = f"oci:{layout}:mooring:{__version__}"
            self._buildah("push", "--quiet", f"--digestfile={digest}", image.identity, target)
            with file.open("wb") as archive:
                write_tar(layout, archive, "", epoch)
            return digest.read_text().strip()

    @contextlib.contextmanager
    def mounted(self, image: Image) -> Iterator[Path]:
        """Yield a folder with the image's files."""
        container = self._buildah("from", "--pull-never", image.identity)
        try:
            yield Path(self._buildah("mount", container))
        finally:
            self._buildah("rm", container)

    def _import(self, name: str, tar: Path) -> None:
        recipe = self._folder / f"{name}.dockerfile"
        recipe.write_text(BASE.format(tar=tar.name, library=PYTHON_LIBRARY))
        options = ["--layers", f"--timestamp={EPOCH}", f"--tag=localhost/{name}"]
        self._build(*options, f"--file={recipe}", self._folder)

    def _build(self, *words: str | Path) -> None:
        self._buildah(
            "bud", "--quiet", "--isolation=chroot", "--identity-label=false", "--pull-never", *words
        )

    def _found(self, name: str, base: Path) -> Image:
        found = json.loads(self._buildah("inspect", "--type=image", name))
        manifest = json.loads(found["Manifest"])
        return Image(
            identity=found["FromImageID"],
            size=sum(layer["size"] for layer in manifest["layers"]),
            config=found["OCIv1"]["config"],
            base=base,
        )

    def _buildah(self, *words: str | Path) -> str:
        storage = (f"--root={self._folder / 'storage'}", f"--runroot={self._folder / 'run'}")
        return run(["buildah", *storage, "--storage-driver=overlay", *words]).strip()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _certificates() -> list[str]:
    """Return options that let pip trust the machine's CAs while the image is built."""
    return [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
