"""Runs programs, and shows their output only if they fail."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

LAST_LINES = 15
"""The number of lines of a failed program's output in the error."""


class ReleaseError(Exception):
    """A step of the release failed; the text says which step, and why."""


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return the output of the program; ReleaseError with its last lines if the program fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ReleaseError(f"{words[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        last = "\n".join(f"    {line}" for line in done.stderr.splitlines()[-LAST_LINES:])
        raise ReleaseError(f"{words[0]} failed with exit code {done.returncode}:\n{last}")
    return done.stdout
