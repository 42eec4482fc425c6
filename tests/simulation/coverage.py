"""Which situations the runs have met: an event, and the state that the object of it was in.

`Coverage` looks at each change. A situation is a pair, such as ("node goes", "running"). How to add
one: write a function that yields the pairs of a change and put it into `SITUATIONS`, and put every
pair that it can yield into `POSSIBLE`, so that what was never met has a name.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Final

from mooring.kube.resources import NODE, POD
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["POSSIBLE", "SITUATIONS", "Coverage", "Pair"]

Pair = tuple[str, str]
"""An event, and a state."""


class Coverage:
    """Counts situations over any number of runs."""

    def __init__(self) -> None:
        self.met: Counter[Pair] = Counter()

    def note(self, world: "World", change: Change) -> None:
        """Count the situations of a change."""
        for situations in SITUATIONS:
            self.met.update(situations(world, change))

    def never_met(self) -> list[Pair]:
        """Return what could have been met and was not."""
        return [pair for pair in POSSIBLE if not self.met[pair]]

    def table(self) -> str:
        """Return a table of all pairs: how often each was met."""
        states = list(dict.fromkeys(state for _, state in POSSIBLE))
        events = list(dict.fromkeys(event for event, _ in POSSIBLE))
        width = max(map(len, states)) + 2
        lines = []
        for event in events:
            lines.append(event)
            lines += [
                f"  {state:<{width}}{self.met[event, state] or 'never'}"
                for state in states
                if (event, state) in POSSIBLE
            ]
        return "\n".join(lines)


def pods(_world: "World", change: Change) -> Iterator[Pair]:
    """Yield what happens to a pod, and the state in which it was."""
    if change.resource is POD and change.before is not None:
        yield _event(change), _state(change.before)


def nodes(world: "World", change: Change) -> Iterator[Pair]:
    """Yield what happens to a node, and the states of the pods on it."""
    if change.resource is not NODE:
        return
    event = {"ADDED": "node comes", "MODIFIED": "node changes", "DELETED": "node goes"}[change.verb]
    name = change.object["metadata"]["name"]
    there = [raw for raw in world.server.storage.all(POD) if raw["spec"].get("nodeName") == name]
    for state in {_state(raw) for raw in there} or {"none"}:
        yield event, state


def _event(change: Change) -> str:
    if change.what == "bind":
        return "pod bound"
    if change.after is None:
        return "pod gone"
    before = change.before or change.after
    if "deletionTimestamp" in change.after["metadata"].keys() - before["metadata"].keys():
        return "pod terminates"
    if _phase(change.after) in {"Succeeded", "Failed"} and _phase(before) != _phase(change.after):
        return "pod finishes"
    return "pod changes"


def _phase(raw: Raw) -> str:
    return str((raw.get("status") or {}).get("phase"))


def _state(raw: Raw) -> str:
    """Return the state of a pod in a word."""
    if "deletionTimestamp" in raw["metadata"]:
        return "terminating"
    if _phase(raw) in {"Succeeded", "Failed"}:
        return "finished"
    if raw["spec"].get("nodeName"):
        return "running" if _phase(raw) == "Running" else "bound"
    if raw["spec"].get("schedulingGates"):
        return "gated"
    conditions = raw["status"].get("conditions") or ()
    refused = any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)
    if raw["status"].get("nominatedNodeName"):
        return "nominated"
    return "unschedulable" if refused else "pending"


SITUATIONS: Final[list[Callable[["World", Change], Iterator[Pair]]]] = [pods, nodes]

_WAITING: Final = ("pending", "unschedulable", "nominated")
_PLACED: Final = ("bound", "running", "terminating", "finished")

POSSIBLE: Final[list[Pair]] = [
    *(("pod bound", state) for state in (*_WAITING, "finished")),
    *product(("pod gone", "pod changes"), ("gated", *_WAITING, *_PLACED)),
    *(("pod terminates", state) for state in ("bound", "running", "finished")),
    *(("pod finishes", state) for state in (*_WAITING, "bound", "running", "terminating")),
    *product(("node comes", "node changes", "node goes"), ("none", *_PLACED)),
]
