"""Starting a replica: what it needs, and the one line it says when it lacks it."""

import asyncio
import logging
from pathlib import Path

import pytest

from mooring.service import StartError, on_loop_error, run
from mooring.settings import RunSettings


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
