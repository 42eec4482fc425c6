"""The error that users of the control plane see: a sentence and the relevant log."""

from pathlib import Path

TAIL_LINES = 8
TAIL_BYTES = 16_384


class ControlPlaneError(Exception):
    """A build, a start or a stop failed; the text says which, and where the log is."""


def log_tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented for an error message; "" without a log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def with_log(sentence: str, log: Path) -> ControlPlaneError:
    """Return an error with the sentence, the log's path and the log's last lines."""
    return ControlPlaneError(f"{sentence}; log: {log}\n{log_tail(log)}".rstrip())
