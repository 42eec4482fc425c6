"""The image can be built, and runs as its Deployment says on a real API server."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane import ControlPlane
from release.artifacts import sha256
from release.base import BUILDER, EPOCH, RUNTIME, debian_packages
from release.container import PODS, try_image
from release.image import Image, Images
from supply_chain import LOCK

# Without a cache it reads Debian's packages and every wheel, beside whatever else runs here.
pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def images() -> Images:
    return Images()


@pytest.fixture(scope="module")
def image(images: Images) -> Image:
    return images.build(LOCK.name, EPOCH, anew=False)


def test_the_image_schedules_as_a_pod_of_its_deployment_does(
    plane: ControlPlane,
    images: Images,
    image: Image,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    trial = try_image(plane.access, images, image, tmp_path)
    record_property("summary", f"the image: {trial}")
    assert trial.bound == PODS
    assert (trial.user, trial.privileges, trial.read_only) == ("65532", "0" * 16, True)
    assert trial.exit_code == 0
    assert "Traceback" not in (tmp_path / "mooring.log").read_text()


def test_the_image_has_neither_a_shell_nor_what_installs_packages(
    images: Images, image: Image
) -> None:
    with images.mounted(image) as files:
        programs = {path.name for path in (files / "usr" / "bin").iterdir()}
        assert programs == {"python", "python3", "python3.13"}
        assert not [*(files / "usr" / "sbin").iterdir()]
        assert not [*files.rglob("pip")]


def test_all_of_the_image_has_bytecode_and_the_time_of_the_build(
    images: Images, image: Image
) -> None:
    with images.mounted(image) as files:
        sources = [*(files / "opt" / "mooring").rglob("*.py")]
        assert len(sources) > 1000
        for source in sources:
            assert (source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc").exists()
            assert int(source.stat().st_mtime) == int(EPOCH)


def test_the_saved_image_is_the_same_each_time_and_has_the_digest_that_is_told(
    images: Images, image: Image, tmp_path: Path
) -> None:
    files = [tmp_path / "first.oci.tar", tmp_path / "second.oci.tar"]
    digests = [images.save(image, file, EPOCH) for file in files]
    assert sha256(files[0]) == sha256(files[1])
    with tarfile.open(files[0]) as archive:
        content = archive.extractfile("index.json")
        assert content is not None
        (manifest,) = json.load(content)["manifests"]
    assert {manifest["digest"]} == {*digests}


def test_scanners_find_the_packages_of_the_base(image: Image) -> None:
    found = {package.name: package for package in debian_packages(image.base)}
    assert {*RUNTIME.packages} <= found.keys()
    assert not ({*BUILDER.packages} - {*RUNTIME.packages}) & found.keys()
    assert found["python3-minimal"].purl.startswith("pkg:deb/debian/python3-minimal@3.13.")
