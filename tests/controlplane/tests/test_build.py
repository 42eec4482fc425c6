import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from controlplane import ControlPlaneError
from controlplane.build import (
    HERE,
    PROGRAMS,
    SERVER_PROGRAMS,
    TOOLS,
    TOOLS_MODULE,
    cache_root,
    ensure_built,
    kubernetes_version,
    programs_folder,
)
from controlplane.progress import Progress
from controlplane.tests.waiting import wait_for

MODULE = (HERE / "go.mod").read_text()

FAKE_GO = """#!/bin/sh
test "$1" = env && { echo go1.26.0; exit; }
echo "$@" >> "$FAKE_GO_CALLS"
while test -e "$FAKE_GO_CALLS.hold"; do sleep 0.02; done
test -e "$FAKE_GO_CALLS.fail" && { echo "no space left on device" >&2; exit 1; }
while test "$1" != -o; do shift; done
folder=$2; shift 2
for package; do name=${package%/v3}; echo "$package" > "$folder/${name##*/}"; done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Go that writes its calls to this file, and an empty cache."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MOORING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.mark.parametrize(
    ("folder", "programs"), [(HERE, PROGRAMS), (TOOLS_MODULE.folder, TOOLS)], ids=["plane", "tools"]
)
def test_the_programs_are_the_tool_lines_of_go_mod(folder: Path, programs: dict[str, str]) -> None:
    module = (folder / "go.mod").read_text()
    tools = re.search(r"^tool \((.*?)^\)", module, re.MULTILINE | re.DOTALL)
    assert tools
    assert sorted(tools[1].split()) == sorted(programs.values())


def test_tools_are_built_apart_so_that_their_versions_change_no_control_plane(calls: Path) -> None:
    folder = ensure_built(Progress(StringIO()), TOOLS_MODULE)
    assert sorted(path.name for path in folder.iterdir()) == sorted(TOOLS)
    assert programs_folder(TOOLS_MODULE) == folder
    assert len(calls.read_text().splitlines()) == 1
    with pytest.raises(ControlPlaneError, match="not built: run `make controlplane`"):
        programs_folder()


def test_every_staging_module_is_replaced_by_the_release_of_the_same_kubernetes() -> None:
    replaced = re.findall(r"^\t(\S+) => (\S+) (\S+)$", MODULE, re.MULTILINE)
    version = kubernetes_version().replace("v1.", "v0.")
    assert len(replaced) == 33
    assert [line for line in replaced if line != (line[0], line[0], version)] == []


def test_a_build_puts_every_program_into_the_cache_and_is_not_repeated(calls: Path) -> None:
    said = StringIO()
    folder = ensure_built(Progress(said))
    assert folder.is_relative_to(cache_root())
    assert sorted(path.name for path in folder.iterdir()) == sorted(PROGRAMS)
    for name, package in PROGRAMS.items():
        assert (folder / name).read_text() == f"{package}\n"
        assert f"controlplane: {name} is built\n" in said.getvalue()
    assert ensure_built() == programs_folder() == folder
    assert len(calls.read_text().splitlines()) == 1


def test_what_is_not_needed_yet_is_built_when_it_is(calls: Path) -> None:
    folder = ensure_built(Progress(StringIO()), programs=SERVER_PROGRAMS)
    assert sorted(path.name for path in folder.iterdir()) == sorted(SERVER_PROGRAMS)
    assert programs_folder(programs=SERVER_PROGRAMS) == folder
    with pytest.raises(ControlPlaneError, match="not built: run `make controlplane`"):
        programs_folder()
    assert ensure_built(Progress(StringIO())) == programs_folder() == folder
    first, second = calls.read_text().splitlines()
    assert "cmd/kube-apiserver" in first
    assert "cmd/kube-apiserver" not in second


def test_a_failed_build_names_the_program_the_log_and_gos_last_words(calls: Path) -> None:
    calls.with_name("calls.fail").touch()
    with pytest.raises(ControlPlaneError, match=r"building etcd, .* failed; log: .*\.log") as told:
        ensure_built(Progress(StringIO()))
    assert "no space left on device" in str(told.value)
    with pytest.raises(ControlPlaneError, match="not built: run `make controlplane`"):
        programs_folder()


def test_two_builders_at_once_build_once(calls: Path) -> None:
    hold = calls.with_name("calls.hold")
    hold.touch()
    command = [sys.executable, "-m", "controlplane", "build"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as first:
        wait_for(calls.exists, "the first builder builds")
        with subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr
            assert "waiting for another build" in second.stderr.readline()
            hold.unlink()
            assert (first.wait(), second.wait()) == (0, 0)
    assert len(calls.read_text().splitlines()) == 1
