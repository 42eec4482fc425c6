"""Tests the whole `make demo` as a process of its own."""

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pytest

from controlplane import Access, ControlPlane
from controlplane.build import SERVER_PROGRAMS, control_plane, programs_folder
from controlplane.envtest import URL_VARIABLE
from controlplane.nodes import create_nodes
from controlplane.tests.waiting import session_members, wait_for
from demo.stage import PIDS

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
SUMMARY = "one operator all the time"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty cache, because a user's demo may have been kept."""
    cache = tmp_path / "cache"
    cache.mkdir()
    built = programs_folder().parent
    (cache / built.name).symlink_to(built)
    temporary = tmp_path / ("temporary" * 10)  # as long as macOS makes them, and longer
    temporary.mkdir()
    own = {name: text for name, text in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    return {
        **own,
        "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tests'}:{ROOT / 'tests/tools'}",
        "MOORING_CACHE": str(cache),
        URL_VARIABLE: "",
        "TMPDIR": str(temporary),
    }


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """Return a folder with only the programs that envtest has."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in SERVER_PROGRAMS:
        (folder / name).symlink_to(programs_folder() / name)
    return folder


def read_until(terminal: FileIO, words: str) -> str:
    """Read the terminal's output until these words; return the output."""
    shown = b""
    while words.encode() not in shown:
        shown += terminal.read(4096)
    return shown.decode(errors="ignore").replace("\r\n", "\n")


@contextmanager
def demo(
    environment: dict[str, str], *options: str, terminal: int | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Start the demo as the leader of a session, so that all of its processes can be found.

    Input and output are a `terminal`, or else no input and a pipe.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "demo", *options],
        env=environment,
        stdin=subprocess.DEVNULL if terminal is None else terminal,
        stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # the reaper then ends what it started


def operator_of(process: "subprocess.Popen[str]") -> int:
    """Return the operator's process id once the demo has printed it."""
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r"Mooring runs, process (\d+)", line):
            return int(found[1])
    raise AssertionError("the demo ended without an operator")


def assert_nothing_is_left(process: "subprocess.Popen[str]") -> None:
    wait_for(lambda: not session_members(process.pid), "every process of the demo has ended")


def assert_a_pod_and_a_gang_are_explained(output: str) -> None:
    simulated, _, rest = output.partition("etcd and Kubernetes are starting")
    assert "7 of 8 placed; 1: Insufficient nvidia.com/gpu" in simulated
    assert "$ mooring explain trainer\n" in rest
    assert re.search(r"if it requested at most \d+m? of cpu instead of 6", rest)
    assert "gang small: its 4 members run on 4 nodes" in rest
    assert "$ mooring explain podgroup/large\n" in rest
    assert re.search(r"\d+ of 20 members fit", rest)


def test_the_demo_shows_a_spread_then_a_packed_deployment_and_leaves_nothing(
    environment: dict[str, str],
) -> None:
    with demo(environment) as process:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    assert "30 pods are Running, with spec.schedulerName: mooring" in output
    assert "30 pods were spread over 20 nodes" in output
    assert "generation 1 of SchedulingProfile mooring is in force" in output
    assert "generation 2 of SchedulingProfile mooring is in force" in output
    assert re.search(r"30 more were packed onto [23] under the new policy", output)
    assert SUMMARY in output
    assert_a_pod_and_a_gang_are_explained(output)
    assert re.search(r"[\d.]+ s  done; nothing is left running", output)
    assert_nothing_is_left(process)
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_a_kept_demo_stays_up_and_goes_by_the_command_that_it_prints(
    environment: dict[str, str], assets: Path
) -> None:
    kept = {**environment, "KEEP": "1", "KUBEBUILDER_ASSETS": str(assets)}
    with demo(kept) as process:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    (kubeconfig,) = re.findall(r"export KUBECONFIG=(\S+)", output)
    (get_pods,) = re.findall(r"^ +(\S+kubectl get pods.*)$", output, re.MULTILINE)
    assert "stop it:   make demo-down\n" in output
    programs = (Path(kubeconfig).parent / PIDS).read_text().split()
    pods = subprocess.check_output(
        get_pods.split(), env={**environment, "KUBECONFIG": kubeconfig}, text=True
    )
    assert pods.count("Running") == 64
    with_kubeconfig = {**environment, "KUBECONFIG": kubeconfig}
    command = [sys.executable, "-m", "mooring", "explain", "web-00"]
    assert "web-00" in subprocess.check_output(command, env=with_kubeconfig, text=True)
    (page,) = re.findall(r"the page: +(http://\S+)$", output, re.MULTILINE)
    with urllib.request.urlopen(page.partition("#")[0]) as answer:  # noqa: S310 - it is http
        assert b"<title>Mooring" in answer.read()

    with demo(kept) as second:
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
    assert errors == "error: a demo is still up; stop it with: make demo-down\n"

    make = ["make", "--no-print-directory", "demo-down", f"PY={sys.executable}"]
    for said in ("the demo is stopped", "no demo is up"):
        assert said in subprocess.check_output(make, cwd=ROOT, env=environment, text=True)
    assert len(programs) == 2
    for program in programs:
        wait_for(lambda pid=int(program): not session_members(pid), "the program has ended")  # type: ignore[misc] # mypy: lambda defaults
    assert not Path(kubeconfig).exists()


def test_an_operator_that_dies_fails_the_demo_with_one_line_and_its_log(
    environment: dict[str, str],
) -> None:
    with demo(environment) as process:
        os.kill(operator_of(process), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "error: mooring ended with exit code -9; log: " in errors
    (logs,) = re.findall(r"^logs: (\S+)$", errors, re.MULTILINE)
    assert {log.name for log in Path(logs).iterdir()} >= {"mooring.log", "kube-apiserver.log"}
    assert [path.name for path in Path(logs).parent.iterdir()] == ["logs"]
    assert "Traceback" not in errors
    assert_nothing_is_left(process)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(
    environment: dict[str, str], signum: signal.Signals
) -> None:
    with demo(environment) as process:
        operator_of(process)
        process.send_signal(signum)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
    assert errors == "interrupted: nothing was left running\n"
    assert_nothing_is_left(process)
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


def test_a_control_plane_that_is_not_built_is_said_in_one_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    with demo({**environment, "MOORING_CACHE": str(empty)}) as process:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
    module = control_plane()
    assert errors == f"error: {module.name} is not built: run `make {module.target}`\n"


def test_on_a_terminal_the_demo_of_envtests_programs_ends_with_the_page_until_enter(
    environment: dict[str, str], tmp_path: Path, assets: Path
) -> None:
    """Without built programs, the demo creates its pods itself and replaces the kubelets."""
    nowhere = {"MOORING_CACHE": str(tmp_path / "empty"), "KUBEBUILDER_ASSETS": str(assets)}
    leader, follower = pty.openpty()
    with (
        demo({**environment, **nowhere, "TERM": "dumb"}, terminal=follower) as process,
        open(leader, "r+b", buffering=0) as terminal,  # noqa: PTH123 - a file descriptor
    ):
        os.close(follower)
        output = read_until(terminal, "Enter ends the demo, and removes what it has made")
        (page,) = re.findall(r"the page is at (http://\S+)#", output)
        with urllib.request.urlopen(page) as answer:  # noqa: S310 - it is http
            assert b"<title>Mooring" in answer.read()
        terminal.write(b"\n")
        output += read_until(terminal, "done; nothing is left running")
        assert process.wait(timeout=60) == 0
    assert "30 pods were spread over 20 nodes" in output
    assert "(made by the demo itself)" in output
    assert_a_pod_and_a_gang_are_explained(output)
    assert_nothing_is_left(process)
    assert list(Path(environment["TMPDIR"]).iterdir()) == []


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("echo Kubernetes v1.30.2", "has Kubernetes v1.30.2, and v1."),
        ("exit 1", "has an unknown version"),
    ],
)
def test_programs_of_another_version_are_not_used(
    environment: dict[str, str], assets: Path, version: str, why: str
) -> None:
    (assets / "kube-apiserver").unlink()
    (assets / "kube-apiserver").write_text(f"#!/bin/sh\n{version}\n")
    (assets / "kube-apiserver").chmod(0o755)
    with demo({**environment, "KUBEBUILDER_ASSETS": str(assets)}) as process:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
    assert why in errors


def objects(access: Access) -> dict[str, list[str]]:
    """Return the names of all objects that a demo could leave in a cluster."""
    kinds = ("nodes", "namespaces", "crd", "clusterroles", "clusterrolebindings", "priorityclasses")
    return {kind: sorted(access.kubectl("get", kind, "-o", "name").split()) for kind in kinds}


def test_in_somebodys_cluster_the_demo_leaves_nothing_behind(
    environment: dict[str, str], assets: Path
) -> None:
    with ControlPlane({"kube-controller-manager", "kwok"}) as plane:
        create_nodes(plane.access, 2)
        before = objects(plane.access)
        path = {"PATH": f"{assets}:{environment['PATH']}"}
        options = (f"--kubeconfig={plane.access.admin_kubeconfig}",)
        with demo({**environment, **path}, *options) as process:
            output, errors = process.communicate(timeout=180)
            assert (process.returncode, errors) == (0, "")
        assert "30 pods were spread over 20 nodes" in output
        assert SUMMARY in output
        assert objects(plane.access) == before
        assert_nothing_is_left(process)

        plane.access.kubectl("apply", "-f", str(ROOT / "crds"))
        with demo({**environment, **path}, *options) as process:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 1
        assert "Mooring is installed there already" in errors
        assert objects(plane.access)["nodes"] == before["nodes"]
