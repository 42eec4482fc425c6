"""Writes every step of every pod as a line of JSON into a file, for long-term records.

A full file gets the suffix `.1`, and replaces the former file of that name. A thread writes once a
second, so that no decision waits for a disk.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_MOST_HELD: Final = 16 * 2**20
"""The most bytes that wait for the thread that writes them; if more bytes wait, lines are lost."""
_PAUSE_SECONDS: Final = 1.0


@dataclass(eq=False, repr=False)
class DecisionFile:
    """Appends lines to the file at `path`; the file has at most `limit` bytes."""

    path: Path
    limit: int
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._lines: list[bytes] = []
        self._held = 0
        self._lost = 0
        self._trouble = ""

    def append(self, line: bytes) -> None:
        """Queue the line for writing; lose it if `_MOST_HELD` bytes are waiting already."""
        if self._held + len(line) > _MOST_HELD:
            self._lost += 1
            return
        self._lines.append(line)
        self._held += len(line) + 1

    async def run(self) -> None:
        """Write lines until cancelled; then write the remaining lines."""
        writing: asyncio.Task[None] | None = None
        try:
            while True:
                await self.sleep(_PAUSE_SECONDS)
                writing = asyncio.create_task(asyncio.to_thread(self._write, self._taken()))
                await asyncio.shield(writing)  # what waits for a thread is not given up
        finally:
            if writing is not None:
                await asyncio.wait([writing])
            await asyncio.to_thread(self._write, self._taken())

    def _taken(self) -> Sequence[bytes]:
        lines, self._lines, self._held = self._lines, [], 0
        return lines

    def _write(self, lines: Sequence[bytes]) -> None:
        trouble, done = "", 0
        try:
            while done < len(lines):
                done += self._write_some(lines[done:])
        except OSError as error:
            trouble = str(error)
        self._lost += len(lines) - done
        if self._lost:
            trouble = f"{trouble or 'too many at once'}; lines are lost"
            self._lost = 0
        if trouble and trouble != self._trouble:
            logger.warning("--decision-log %s: %s", self.path, trouble)
        if lines:
            self._trouble = trouble

    def _write_some(self, lines: Sequence[bytes]) -> int:
        """Write as many of the first lines as the file may hold; return their number."""
        with self.path.open("ab+") as file:
            before = size = file.tell()
            number = 0
            if before:  # a full disk, or the end of the process, may have left half a line
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            for line in lines:
                size += len(line) + 1
                if size > self.limit and (number or before):
                    break
                number += 1
            file.writelines(line + b"\n" for line in lines[:number])
        if number < len(lines):
            # The next call begins a new file.
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        return number
