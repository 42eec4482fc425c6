import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from mooring import __version__
from release.artifacts import sha256
from release.krew import LAUNCHER, krew_plugin


@pytest.fixture
def plugin(tmp_path: Path) -> tuple[Path, Path]:
    wheel = tmp_path / f"mooring_scheduler-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    archive, manifest = krew_plugin(tmp_path, wheel, "https://files.example/v1", "1700000000")
    return archive, manifest


def test_the_manifest_names_the_archive_by_address_and_digest(plugin: tuple[Path, Path]) -> None:
    archive, manifest = plugin
    found = yaml.safe_load(manifest.read_text())
    assert found["spec"]["version"] == f"v{__version__}"
    assert [each["selector"]["matchLabels"]["os"] for each in found["spec"]["platforms"]] == [
        "linux",
        "darwin",
    ]
    for platform in found["spec"]["platforms"]:
        assert platform["uri"] == f"https://files.example/v1/{archive.name}"
        assert platform["sha256"] == sha256(archive)
        assert platform["bin"] == "kubectl-mooring"


def test_the_archive_holds_the_launcher_the_wheel_and_the_lock(
    plugin: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(plugin[0]) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    there = {path.name for path in (tmp_path / "out" / "mooring").iterdir()}
    wheel = f"mooring_scheduler-{__version__}-py3-none-any.whl"
    assert there == {"kubectl-mooring", wheel, "requirements-run.lock", "LICENSE"}
    launcher = tmp_path / "out" / "mooring" / "kubectl-mooring"
    assert os.access(launcher, os.X_OK)
    assert "@VERSION@" not in launcher.read_text()


def test_without_a_new_enough_python_the_launcher_says_so(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([LAUNCHER], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: kubectl mooring needs Python 3.11 or newer")


def test_an_installed_plugin_is_run_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "kubectl-mooring" / "@VERSION@"
    (home / "bin").mkdir(parents=True)
    (home / "complete").touch()
    echo = shutil.which("echo")
    assert echo is not None
    (home / "bin" / "mooring").symlink_to(echo)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    said = subprocess.check_output([LAUNCHER, "explain", "a b"], env=environment, text=True)
    assert said == "explain a b\n"
