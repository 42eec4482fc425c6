"""Reports steps that take long: one rewritten line on a terminal, or a line at times in a log."""

import sys
import time
from typing import TextIO

TICK = 1.0
"""Seconds between two looks at the clock, and between two updates on a terminal."""

LOG_INTERVAL = 20.0
"""Seconds between two lines about one step in a log."""


class Progress:
    """Reports steps and their durations to a stream (standard error by default)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._step = ""
        self._started = 0.0
        self._last_line = 0.0

    def begin(self, step: str) -> None:
        """Begin a step, and show it as running."""
        self._step, self._started = step, time.monotonic()
        self._show(force=True)

    def tick(self) -> None:
        """Show the time of the running step, if it is due."""
        self._show(force=False)

    def end(self, result: str = "done") -> None:
        """End the running step; show its result and its seconds."""
        elapsed = time.monotonic() - self._started
        self._write(f"{self._step}: {result} in {elapsed:.1f} s", final=True)

    def say(self, line: str) -> None:
        """Print one line between steps."""
        self._write(line, final=True)

    def _show(self, *, force: bool) -> None:
        now = time.monotonic()
        interval = TICK if self._rewrites else LOG_INTERVAL
        if not force and now - self._last_line < interval:
            return
        self._last_line = now
        elapsed = int(now - self._started)
        self._write(f"{self._step} ..." + (f" {elapsed} s" if elapsed else ""), final=False)

    def _write(self, line: str, *, final: bool) -> None:
        if self._rewrites:
            self._stream.write(f"\r\x1b[K{line}" + ("\n" if final else ""))
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()
