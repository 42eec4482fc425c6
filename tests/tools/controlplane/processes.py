"""Runs programs as child processes, each with a log; stops them by pid and leaves none behind."""

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from controlplane.errors import ControlPlaneError, with_log

STOP_GRACE = 5.0
"""The seconds between SIGTERM and SIGKILL for a program."""

PORT_RANGE = range(20_000, 32_768)

_given: set[int] = set()
"""The ports that this process has taken so far."""


class Program:
    """A child process and its log."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The process id, which stays after the end."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; negative when a signal ended it."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code; None if the program still runs after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def require_alive(self) -> None:
        """Raise ControlPlaneError with the log's last lines if the program has ended."""
        if self.exit_code is not None:
            raise with_log(f"{self.name} ended with exit code {self.exit_code}", self.log)

    def stop(self, grace: float = STOP_GRACE) -> None:
        """End the program by SIGTERM, and by SIGKILL after `grace` seconds."""
        self._process.terminate()
        if self.wait(grace) is None:
            self._process.kill()
            self._process.wait()


class ProcessGroup:
    """Programs that run in a process group of their own, away from the terminal's Ctrl-C.

    The end of the `with` block, or `close`, stops the newest first. If the owner dies before that,
    the reaper ends the group, and removes the folder `remove` if given.
    """

    def __init__(self, remove: Path | None = None) -> None:
        script = Path(__file__).with_name("reaper.py")
        arguments = [str(remove)] if remove else []
        self._programs: list[Program] = []
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that were started and not stopped, oldest first."""
        return tuple(self._programs)

    def spawn(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path | None = None,
    ) -> Program:
        """Start the command with exactly the environment `env`; append its output to `log`."""
        with log.open("ab") as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    cwd=cwd,
                    process_group=self._reaper.pid,
                )
            except OSError as error:
                raise ControlPlaneError(f"{name} could not be started: {error}") from error
        program = Program(name, process, log)
        self._programs.append(program)
        return program

    def stop(self, program: Program, grace: float = STOP_GRACE) -> None:
        program.stop(grace)
        self._programs.remove(program)

    def close(self) -> None:
        """End every program, and the reaper too."""
        for program in reversed(self.programs):
            self.stop(program)
        self._reaper.kill()
        self._reaper.wait()
        if self._reaper.stdin:
            self._reaper.stdin.close()


def free_ports(count: int) -> list[int]:
    """Return different TCP ports that were free on 127.0.0.1 a moment ago.

    The ports are below the ephemeral range. Otherwise an outgoing connection could take a port
    while its server is down, even a client's own attempt to connect to the server. A process never
    gets a port twice, and no two processes of pytest-xdist get the same port, because a port is
    free until its server has started.
    """
    ports: list[int] = []
    own = [port for port in _own_ports() if port not in _given]
    with contextlib.ExitStack() as sockets:
        for port in random.sample(own, len(own)):
            if len(ports) == count:
                break
            node_newly = sockets.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                node_newly.bind(("127.0.0.1", port))
                ports.append(port)
    _given.update(ports)
    return ports


def _own_ports() -> range:
    """Return the ports for this process: a part for each process of pytest-xdist, else all."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return PORT_RANGE[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
