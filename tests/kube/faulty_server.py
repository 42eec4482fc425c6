"""A server with a history of changed pods; its first connections end in faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from hypothesis import strategies as st

from kube.api_server import bookmark, event, pod, status_object

if TYPE_CHECKING:
    from kube.api_server import Request

FAULTS: Final = ("end", "cut", "half a line", "junk", "gone event", "gone at once", "refused")


@dataclass(frozen=True)
class Connection:
    """An answer of the server: how many further events it sends, and how it ends."""

    events: int
    fault: str


CONNECTIONS = st.lists(
    st.builds(Connection, st.integers(0, 4), st.sampled_from(FAULTS)), max_size=6
)
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12)
"""Pods by name; a pod that exists is changed, or deleted if the flag is set."""


class FaultyServer:
    """A responder; the resourceVersion of an event is its number in the history."""

    def __init__(self, changes: list[tuple[str, bool]], connections: list[Connection]) -> None:
        self._connections = list(connections)
        self._seen = 0  # events that have happened so far, as far as clients can know
        self._events: list[dict[str, Any]] = []
        self._states: list[dict[str, int]] = [{}]
        for version, (name, delete) in enumerate(changes, start=1):
            state = dict(self._states[-1])
            if delete and name in state:
                kind = "DELETED"
                del state[name]
            else:
                kind = "MODIFIED" if name in state else "ADDED"
                state[name] = version
            self._events.append(event(kind, pod(name, version)))
            self._states.append(state)

    @property
    def final(self) -> dict[str, int]:
        """The last version of each pod at the end of the history, by name."""
        return self._states[-1]

    def respond(self, request: Request) -> None:
        """Send some events and end with the next fault; after the last fault, send all events."""
        last = Connection(len(self._events), "none")
        connection = self._connections.pop(0) if self._connections else last
        resumes = "resourceVersion" in request.query
        if connection.fault == "refused" or (connection.fault == "gone at once" and not resumes):
            request.refuse(500, "InternalError", "no")
        elif connection.fault == "gone at once":
            request.refuse(410, "Expired", "too old resource version")
        else:
            self._stream(request, connection)

    def _stream(self, request: Request, connection: Connection) -> None:
        if "resourceVersion" in request.query:
            position = int(request.query["resourceVersion"])
        else:
            position = self._seen
            state = self._states[position]
            request.send(*(event("ADDED", pod(name, at)) for name, at in state.items()))
            request.send(bookmark(position, initial_end=True))
        self._seen = min(len(self._events), self._seen + connection.events)
        shown = self._events[position : self._seen]
        request.send(*shown)
        match connection.fault:
            case "end":
                request.end()
            case "cut":
                request.cut()
            case "half a line":
                whole = orjson.dumps(event("DELETED", pod("a", len(self._events) + 1)))
                request.send_bytes(whole[:-5])
                request.end()
            case "junk":
                request.send_bytes(b"{]\n")
            case "gone event":
                request.send(event("ERROR", status_object(410, "Expired", "too old")))
