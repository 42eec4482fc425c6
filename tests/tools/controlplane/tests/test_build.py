import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from controlplane import ControlPlaneError
from controlplane.build import (
    HERE,
    KUBERNETES_PROGRAMS,
    SERVER_PROGRAMS,
    SHARED_MODULE,
    SHARED_PROGRAMS,
    TOOLS,
    TOOLS_MODULE,
    built_releases,
    cache_root,
    control_plane,
    ensure_built,
    programs_folder,
)
from controlplane.progress import Progress
from controlplane.releases import NEWEST, RELEASES, VARIABLE
from controlplane.tests.waiting import wait_for

PROGRAMS = {**KUBERNETES_PROGRAMS, **SHARED_PROGRAMS}

FAKE_GO = """#!/bin/sh
test "$1" = env && { echo go1.26.0; exit; }
echo "$@" >> "$FAKE_GO_CALLS"
while test -e "$FAKE_GO_CALLS.hold"; do sleep 0.02; done
test -e "$FAKE_GO_CALLS.fail" && { echo "no space left on device" >&2; exit 1; }
while test "$1" != -o; do shift; done
folder=$2; shift 2
for package; do name=${package%/v3}; name=${name%.go}; echo "$package" > "$folder/${name##*/}"; done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the log of a fake Go's calls, with an empty cache and the newest release."""
    monkeypatch.delenv(VARIABLE, raising=False)
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MOORING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.mark.parametrize(
    ("folder", "programs"),
    [(HERE, SHARED_PROGRAMS), (TOOLS_MODULE.folder, TOOLS)],
    ids=["shared", "tools"],
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


def test_a_build_puts_every_program_into_the_cache_and_is_not_repeated(calls: Path) -> None:
    said = StringIO()
    folder = ensure_built(Progress(said))
    assert folder.is_relative_to(cache_root())
    assert sorted(path.name for path in folder.iterdir()) == sorted(PROGRAMS)
    for name, package in PROGRAMS.items():
        assert (folder / name).read_text() == f"{package}\n"
        assert f": {name} is built\n" in said.getvalue()
    assert f"kubernetes-{NEWEST.minor}: kube-scheduler is built\n" in said.getvalue()
    assert ensure_built() == programs_folder() == folder
    assert len(calls.read_text().splitlines()) == 2


def test_releases_are_built_apart_and_share_etcd_and_kwok(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = ensure_built(Progress(StringIO()))
    assert built_releases() == [NEWEST]
    older = RELEASES[0]
    monkeypatch.setenv(VARIABLE, older.minor)
    with pytest.raises(ControlPlaneError) as told:
        programs_folder()
    command = f"make controlplane KUBERNETES={older.minor}"
    assert str(told.value) == f"kubernetes-{older.minor} is not built: run `{command}`"
    folder = ensure_built(Progress(StringIO()))
    assert folder != newest
    assert programs_folder(control_plane(NEWEST)) == newest
    assert built_releases() == [older, NEWEST]
    for name in SHARED_PROGRAMS:
        assert (folder / name).samefile(newest / name)
    calls_of = [line for line in calls.read_text().splitlines() if "server/v3" in line]
    assert len(calls_of) == 1
    assert f"gitVersion={older.version} " in calls.read_text()


def test_another_version_of_kwok_is_another_folder_of_programs(calls: Path, tmp_path: Path) -> None:
    assert calls.parent == tmp_path
    folder = ensure_built(Progress(StringIO()))
    moved = tmp_path / "shared"
    shutil.copytree(HERE, moved, ignore=shutil.ignore_patterns("[!g]*"))
    (moved / "go.mod").write_text((HERE / "go.mod").read_text().replace("kwok v0", "kwok v1"))
    plane = replace(control_plane(), beside=replace(SHARED_MODULE, folder=moved))
    assert ensure_built(Progress(StringIO()), plane) != folder


def test_a_program_of_one_file_is_built_again_when_that_file_changes(
    calls: Path, tmp_path: Path
) -> None:
    source = tmp_path / "oracle.go"
    source.write_text("package main")
    module = replace(TOOLS_MODULE, name="oracle", programs={"asked": str(source)})
    folder = ensure_built(Progress(StringIO()), module)
    assert (folder / "asked").read_text() == f"{source}\n"
    assert ensure_built(Progress(StringIO()), module) == folder
    source.write_text("package main // changed")
    assert ensure_built(Progress(StringIO()), module) != folder
    assert len(calls.read_text().splitlines()) == 2


def test_what_is_not_needed_yet_is_built_when_it_is(calls: Path) -> None:
    folder = ensure_built(Progress(StringIO()), programs=SERVER_PROGRAMS)
    assert sorted(path.name for path in folder.iterdir()) == sorted(SERVER_PROGRAMS)
    assert programs_folder(programs=SERVER_PROGRAMS) == folder
    with pytest.raises(ControlPlaneError, match="not built: run `make controlplane`"):
        programs_folder()
    assert ensure_built(Progress(StringIO())) == programs_folder() == folder
    servers, etcd, others, kwok = calls.read_text().splitlines()
    assert "cmd/kube-apiserver" in servers
    assert "cmd/kube-apiserver" not in others
    assert ("server/v3" in etcd, "cmd/kwok" in etcd) == (True, False)
    assert ("server/v3" in kwok, "cmd/kwok" in kwok) == (False, True)


def test_a_failed_build_names_the_program_the_log_and_gos_last_words(calls: Path) -> None:
    calls.with_name("calls.fail").touch()
    with pytest.raises(
        ControlPlaneError, match=r"building kube-apiserver, .* failed; log: .*\.log"
    ) as told:
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
    assert len(calls.read_text().splitlines()) == 2
