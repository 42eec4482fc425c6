"""The commands of a release: `all`, which `make release` calls, `image` and `chart`."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import replica
import supply_chain
from controlplane import ControlPlane, ControlPlaneError
from controlplane.build import TOOLS_MODULE, ensure_built
from mooring import __version__
from release import artifacts
from release.artifacts import ROOT, Source
from release.base import PYTHON, debian_packages
from release.commands import ReleaseError, run
from release.container import try_image
from release.image import Image, Images, missing
from release.krew import krew_plugin
from website.__main__ import build as build_site

DIST: Final = ROOT / "dist"


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 success, 1 failed, 2 wrong usage."""
    chosen = _parser().parse_args(words)
    if chosen.command == "chart":
        _say("\n".join(artifacts.refresh_chart()) or "the chart has what manifests/ has")
        return 0
    if reason := missing():
        sys.stderr.write(f"error: the image cannot be built here: {reason}\n")
        if chosen.command == "image":
            sys.stderr.write("with Docker: make image BASE=python@sha256:... (docs/releasing.md)\n")
        return 1
    try:
        (_image if chosen.command == "image" else _everything)(chosen)
    except (ReleaseError, ControlPlaneError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("command", choices=("all", "image", "chart"))
    parser.add_argument("--image", default="mooring", help="where the image will be pushed to")
    parser.add_argument("--lock", default=supply_chain.LOCK.name, help="what the image is made of")
    where = "https://releases.invalid"
    parser.add_argument("--url", default=where, help="the folder where the files will be, for krew")
    parser.add_argument("--key", type=Path, help="an SSH key that signs the checksums")
    return parser


def _image(chosen: argparse.Namespace) -> None:
    """Build the image of the work tree, with uncommitted changes."""
    DIST.mkdir(exist_ok=True)
    images = Images()
    epoch = run(["git", "-C", ROOT, "log", "-1", "--format=%ct"]).strip()
    image = images.build(chosen.lock, epoch, anew=True)
    _save(images, image, chosen.image, epoch)


def _everything(chosen: argparse.Namespace) -> None:
    source = Source.of()
    ensure_built()
    ensure_built(module=TOOLS_MODULE)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    _step("Python packages")
    files = artifacts.python_packages(DIST, source.epoch)
    files += krew_plugin(DIST, files[0], chosen.url, source.epoch)
    _step("chart and manifests")
    files += [
        artifacts.chart(DIST, chosen.image, source.epoch),
        artifacts.manifests(DIST, chosen.image),
    ]
    _step("documents")
    files.append(_documents(source.epoch))
    _step("image, with packages and wheels of today")
    images = Images()
    image = images.build(chosen.lock, source.epoch, anew=True)
    _step("image on the test control plane")
    _try(images, image)
    saved, digest = _save(images, image, chosen.image, source.epoch)
    files.append(saved)
    files.append(_sbom(chosen.lock, image))
    parameters = {"image": chosen.image, "lock": chosen.lock}
    statement = artifacts.provenance(files, source, digest, parameters, image.base)
    name = DIST / f"mooring-{__version__}.provenance.json"
    files.append(artifacts.write_json(name, statement))
    _conclude(files, chosen.key)


def _documents(epoch: str) -> Path:
    out = ROOT / "build" / "website"
    if build_site(ROOT, out):
        raise ReleaseError("the site of the documents has broken links, see above")
    name = f"mooring-{__version__}-docs"
    return artifacts.archive(out / "html", DIST / f"{name}.tar.gz", name, epoch)


def _try(images: Images, image: Image) -> None:
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="mooring-image-") as folder:
        replica.apply_manifests(plane.access)
        trial = try_image(plane.access, images, image, Path(folder))
    _say(f"  {trial}")
    if not trial.passed:
        raise ReleaseError("the image did not do what it should, see above")


def _save(images: Images, image: Image, name: str, epoch: str) -> tuple[Path, str]:
    file = DIST / f"mooring-{__version__}.oci.tar"
    digest = images.save(image, file, epoch)
    _say(f"  {name}:{__version__} is {digest}")
    return file, digest


def _sbom(lock: str, image: Image) -> Path:
    pins = supply_chain.pins((ROOT / lock).read_text())
    installed = [pin for pin in pins if pin.is_installed(PYTHON)]
    system = [(found.name, found.version, found.purl) for found in debian_packages(image.base)]
    document = supply_chain.sbom(installed, __version__, system)
    return artifacts.write_json(DIST / f"mooring-{__version__}.cdx.json", document)


def _conclude(files: Sequence[Path], key: Path | None) -> None:
    sums = artifacts.checksums(files)
    made = [*sorted(files), sums]
    if key is not None:
        made.append(artifacts.sign(sums, key.expanduser()))
    for file in made:
        _say(f"  {file.stat().st_size / 1e6:8.2f} MB  {file.relative_to(ROOT)}")
    if key is None:
        command = f"ssh-keygen -Y sign -n {artifacts.NAMESPACE} -f KEY dist/{sums.name}"
        _say(f"not signed: make release KEY=..., or {command}")


def _step(what: str) -> None:
    _say(f"{time.strftime('%H:%M:%S')} {what}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
