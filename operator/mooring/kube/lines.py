"""A watch is a stream of lines, one JSON object each, of any length and cut anywhere."""

from __future__ import annotations

__all__ = ["LineSplitter"]


class LineSplitter:
    """Cuts chunks of bytes into lines; keeps the unfinished last one for the next chunk.

    A long line that comes in many chunks is copied once, not once per chunk.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` finishes, without their ends; empty lines are left out."""
        head, *lines = chunk.split(b"\n")
        if not lines:
            self._unfinished.append(chunk)
            return []
        if self._unfinished:
            self._unfinished.append(head)
            head = b"".join(self._unfinished)
        tail = lines.pop()
        self._unfinished = [tail] if tail else []
        return [line for line in (head, *lines) if line]
