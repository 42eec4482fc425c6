import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from controlplane import ControlPlaneError, processes
from controlplane.processes import ProcessGroup, free_ports
from controlplane.tests.waiting import wait_for, wait_until_gone

TESTS = Path(__file__).parents[3]

OWNER = """
    import os, signal, sys
    from pathlib import Path
    from controlplane.processes import ProcessGroup

    group = ProcessGroup(remove=Path(sys.argv[1]))
    program = group.spawn("sleep", ["sleep", "1000"], log=Path(sys.argv[2]), env={})
    print(program.pid, os.getpgid(program.pid), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leaving_the_group_ends_every_program(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        sleepers = [_spawn_shell(group, "exec sleep 1000", tmp_path) for _ in range(2)]
    wait_until_gone(sleepers)


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        stubborn = _spawn_shell(group, "trap '' TERM; echo up; while :; do sleep 1; done", tmp_path)
        log = tmp_path / "shell.log"
        wait_for(lambda: "up" in log.read_text(), "the trap is set")
        group.stop(group.programs[0], grace=0.1)
        wait_until_gone([stubborn])


def test_programs_do_not_get_the_terminals_ctrl_c(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        pid = _spawn_shell(group, "exec sleep 1000", tmp_path)
        assert os.getpgid(pid) != os.getpgrp()


def test_a_killed_owner_takes_its_programs_and_their_folder_with_it(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    owner = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(scratch), str(tmp_path / "log")],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'tools'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert owner.returncode == -signal.SIGKILL
    program, reaper = map(int, owner.stdout.split())
    wait_until_gone([program, reaper])
    assert not scratch.exists()


def test_an_ended_program_is_reported_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    with ProcessGroup() as group:
        _spawn_shell(group, "echo the disk is full; exit 3", tmp_path)
        program = group.programs[0]
        assert program.wait(10) == 3
        with pytest.raises(
            ControlPlaneError, match=r"shell ended with exit code 3; log: .*"
        ) as told:
            program.require_alive()
    assert "the disk is full" in str(told.value)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with ProcessGroup() as group, pytest.raises(ControlPlaneError, match="etcd could not be start"):
        group.spawn("etcd", [str(tmp_path / "absent")], log=tmp_path / "log", env={})


def test_free_ports_are_different_and_can_be_used() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_two_processes_of_pytest_xdist_never_get_the_same_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    got = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        got.append({port % 2 for port in free_ports(5)})
    assert got == [{0}, {1}]


def test_a_process_gets_no_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PORT_RANGE", range(20_000, 20_100))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    first = set(free_ports(30))
    assert not first & set(free_ports(30))


def _spawn_shell(group: ProcessGroup, script: str, folder: Path) -> int:
    log = folder / "shell.log"
    return group.spawn("shell", ["/bin/sh", "-c", script], log=log, env=os.environ).pid
