"""The start of a replica, and the one-line errors if something is missing."""

import asyncio
import logging
import os
import signal
import socket
from pathlib import Path
from threading import Thread

import pytest

from mooring.run.service import StartError, on_loop_error, run
from mooring.run.settings import RunSettings


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
    )
    return str(path)


def test_a_missing_kubeconfig_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError) as failure:
        run(RunSettings(kubeconfig=str(tmp_path / "missing")))
    assert "does not exist" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError) as failure:
        run(RunSettings(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"), secure_port=0))
    assert str(failure.value).startswith("cannot reach the API server at http://127.0.0.1:1")
    assert "\n" not in str(failure.value)


def test_sigterm_ends_a_replica_that_no_api_server_has_answered_yet(tmp_path: Path) -> None:
    """The kernel does not deliver SIGTERM to a container's first process without a handler."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def stop_once_asked() -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1)
                    os.kill(os.getpid(), signal.SIGTERM)
                    connection.recv(2**16)
                    connection.recv(1)  # until the other side closes it

            silent = Thread(target=stop_once_asked)
            silent.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            assert run(RunSettings(kubeconfig=kubeconfig(tmp_path, url), secure_port=0)) == 0
            silent.join()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (RuntimeError("unable to perform operation; the handler is closed"), logging.DEBUG),
        (ValueError("another mistake"), logging.ERROR),
    ],
)
async def test_a_connection_that_is_aborted_in_its_handshake_leaves_no_traceback_in_the_log(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    context = {"message": "Fatal error on SSL protocol", "exception": error}
    on_loop_error(asyncio.get_running_loop(), context)
    assert [record.levelno for record in caplog.records] == [level]
