"""Reads kube-scheduler's log: the objects that it has seen, and every score."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.recording.errors import RecordingError

FLAGS: Final = ("--vmodule=schedule_one=10,eventhandlers=4,executor=2,preemption=2,tracker=5",)
"""Make kube-scheduler log what is read here, and of its many other lines at -v=10 none."""

_PLUGIN_SCORE: Final = "Plugin scored node for pod"
_TOTAL_SCORE: Final = "Calculated node's final score for pod"

_LINE: Final = re.compile(r'\] "(?P<message>(?:[^"\\]|\\.)*)" ?(?P<fields>.*)')
_FIELD: Final = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))')

_TIMEOUT: Final = 30.0
"""Seconds until what is awaited must have been logged."""

_POLL: Final = 0.002


@dataclass(frozen=True)
class Entry:
    """A structured line of the log: `"message" field="value" ...`."""

    message: str
    fields: Mapping[str, str]

    @property
    def subject(self) -> str:
        """The value of the first field, which names the object of the message."""
        return next(iter(self.fields.values()), "")


class SchedulerLog:
    """Reads a growing log; `entries` are the entries since the last `forget`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._rest = ""
        self.entries: list[Entry] = []

    def close(self) -> None:
        """Close the file of the log."""
        self._file.close()

    def forget(self) -> None:
        """Drop all entries logged so far."""
        self.read()
        self.entries.clear()

    def read(self) -> None:
        """Append all new entries of the log to `entries`."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        self.entries.extend(_parsed(lines))

    def wait_for(self, expected: Iterable[tuple[str, str]]) -> None:
        """Wait until `entries` has each pair of message and subject as often as `expected`.

        Raises:
            RecordingError: An entry has not come within 30 seconds.
        """
        wanted = Counter(expected)
        deadline = time.monotonic() + _TIMEOUT
        while True:
            self.read()
            missing = wanted - Counter((entry.message, entry.subject) for entry in self.entries)
            if not missing:
                return
            if time.monotonic() > deadline:
                message, subject = next(iter(missing))
                raise RecordingError(
                    f'kube-scheduler did not log "{message}" about {subject} within '
                    f"{_TIMEOUT:.0f} s (another version may word it otherwise)"
                )
            time.sleep(_POLL)


def scores(entries: Iterable[Entry], pod: str) -> dict[str, Any] | None:
    """Return the pod's scores (of plugins and in total) by node; None if there are none."""
    nodes: dict[str, Any] = {}
    for entry in entries:
        if entry.fields.get("pod") != pod:
            continue
        if entry.message in {_PLUGIN_SCORE, _TOTAL_SCORE}:
            of_node = nodes.setdefault(entry.fields["node"], {"plugins": {}})
            score = int(entry.fields["score"])
            if entry.message == _TOTAL_SCORE:
                of_node["total"] = score
            else:
                of_node["plugins"][entry.fields["plugin"]] = score
    return nodes or None


def _parsed(lines: Iterable[str]) -> Iterator[Entry]:
    for line in lines:
        match = _LINE.search(line)
        if match:
            fields = {
                name: quoted or bare for name, quoted, bare in _FIELD.findall(match["fields"])
            }
            yield Entry(match["message"], fields)
