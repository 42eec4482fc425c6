import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import background
from controlplane.build import SERVER_PROGRAMS, cache_root, programs_folder
from controlplane.tests.waiting import session_members, wait_for, wait_until_gone

pytestmark = pytest.mark.server

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[2:4]))}
COMMAND = (sys.executable, "-m", "controlplane")

GO_OF_BROKEN_PROGRAMS = r"""#!/bin/sh
test "$1" = env && { echo go1.26.0; exit; }
while test "$1" != -o; do shift; done
folder=$2; shift 2
for package; do
  program=$folder/$(basename "${package%/v3}")
  printf '#!/bin/sh\necho "$(basename "$0") is broken"; exit 7\n' > "$program"
  chmod +x "$program"
done
"""


@pytest.fixture
def name() -> Iterator[str]:
    """Yield an unused name of a control plane; end what runs under the name."""
    chosen = f"test-{secrets.token_hex(4)}"
    yield chosen
    if background.status(chosen):
        background.down(chosen)
    shutil.rmtree(cache_root() / "running" / chosen, ignore_errors=True)


def _run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _status(name: str) -> Any:
    answer = json.loads(_run("status", "--name", name, "-o", "json").stdout)
    return answer[0] if answer else None


def test_up_status_and_down_tell_one_story(name: str) -> None:
    up = _run("up", "--name", name, "--kwok-nodes", "2", "--zones", "2")
    assert up.returncode == 0, up.stderr
    assert f"{name}: ready at https://127.0.0.1:" in up.stdout

    told = _status(name)
    assert told["healthy"]
    assert set(told["pids"]) == {"holder", "etcd", "kube-apiserver", "kwok"}
    nodes = subprocess.check_output(
        [told["kubectl"], "--kubeconfig", told["kubeconfig"], "get", "nodes", "-o", "name"],
        text=True,
    )
    assert nodes.split() == ["node/node-1", "node/node-2"]

    again = _run("up", "--name", name)
    assert again.returncode == 1
    assert (
        again.stderr == f"error: a control plane named '{name}' runs already: take it down first\n"
    )

    assert _run("down", "--name", name).stdout == f"{name}: stopped\n"
    wait_until_gone(told["pids"].values())
    assert not Path(told["kubeconfig"]).exists()
    assert _run("status", "--name", name).stdout == "no control plane is running\n"


def test_with_programs_of_another_folder_the_holder_stands_in_for_kubelets(
    name: str, tmp_path: Path
) -> None:
    for program in SERVER_PROGRAMS:
        (tmp_path / program).symlink_to(programs_folder() / program)
    up = _run("up", "--name", name, "--kwok-nodes", "1", "--programs", str(tmp_path))
    assert up.returncode == 0, up.stderr
    told = _status(name)
    assert set(told["pids"]) == {"holder", "etcd", "kube-apiserver"}
    kubectl = [told["kubectl"], "--kubeconfig", told["kubeconfig"]]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "web"}]},
    }
    subprocess.run([*kubectl, "apply", "-f-"], input=json.dumps(pod), text=True, check=True)
    for condition in ("node/node-1", "pod/web"):
        subprocess.check_call([*kubectl, "wait", "--for=condition=Ready", condition])
    subprocess.check_call([*kubectl, "delete", "pod", "web", "--timeout=20s"])


def test_down_without_anything_running_is_one_clear_line(name: str) -> None:
    down = _run("down", "--name", name)
    assert (down.returncode, down.stderr) == (
        1,
        f"error: no control plane named '{name}' is running\n",
    )


def test_ctrl_c_during_up_leaves_nothing_running(name: str) -> None:
    with subprocess.Popen([*COMMAND, "up", "--name", name], env=ENVIRONMENT) as up:
        wait_for(lambda: background.status(name), "the holder runs")
        started = background.status(name)
        assert started
        wait_for(lambda: len(session_members(started.holder)) >= 4, "reaper and servers run")
        processes = session_members(started.holder)
        up.send_signal(signal.SIGINT)
    assert up.returncode == 130
    wait_until_gone(processes)
    assert background.status(name) is None


def test_a_killed_holder_takes_its_programs_with_it(name: str) -> None:
    assert _run("up", "--name", name).returncode == 0
    pids = _status(name)["pids"]
    os.kill(pids["holder"], signal.SIGKILL)
    wait_until_gone(pids.values())
    assert _status(name) is None


def test_a_failed_start_in_the_background_shows_its_reason(name: str, tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO_OF_BROKEN_PROGRAMS)
    go.chmod(0o755)
    path = f"{go.parent}:{os.environ['PATH']}"
    up = _run("up", "--name", name, MOORING_CACHE=str(tmp_path / "cache"), PATH=path)
    assert up.returncode == 1
    assert re.search(
        r"^error: kube-apiserver ended with exit code 7; log: \S+$", up.stderr, re.MULTILINE
    )
    assert up.stderr.endswith("    kube-apiserver is broken\n")


def test_options_out_of_range_are_refused(name: str) -> None:
    up = _run("up", "--name", name, "--kwok-nodes", "-1")
    assert up.returncode == 1
    assert up.stderr == "error: --kwok-nodes must be 0 or more and --zones 1 or more\n"


@pytest.mark.parametrize("bad", ["../escape", "", "a b"])
def test_a_name_that_is_no_folder_name_is_refused(bad: str) -> None:
    assert "letters, digits and hyphens only" in _run("status", "--name", bad).stderr
