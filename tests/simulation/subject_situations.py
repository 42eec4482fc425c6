"""Situations in runs about a subject: preemption, moves, shared devices and requests.

How to add one: see `simulation.coverage`.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from mooring.kube.api_resources import POD, RESOURCE_CLAIM, SCHEDULING_PROFILE
from simulation.actors.rebalancing import MOVED
from simulation.network import Outcome
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World


_KINDS: Final = ("host port", "spread", "neither")
_BUDGETS: Final = ("no budget", "one budget", "several budgets")
_GOALS: Final = ("Violations", "MakeRoom", "Pack", "a whole group")
_SHARES: Final = ("alone", "beside others")

POSSIBLE_OF_SUBJECTS: Final[list[tuple[str, str]]] = [
    *product(("pod is nominated", "pod bound beside a nominated one"), _KINDS),
    *product(("victim leaves, budgets: Default",), _BUDGETS),
    *product(("victim leaves, budgets: Strict",), _BUDGETS[:2]),
    *product(("pod moved",), (*_GOALS, *_BUDGETS[:2])),
    *product(("preempts in a queue",), ("its own queue", "another queue")),
    *product(("shared device given", "shared device freed"), _SHARES),
    *product((f"request: {outcome}" for outcome in Outcome), ("a write", "a read")),
]


def nominated(world: "World", change: Change) -> Iterator[tuple[str, str]]:
    """Yield that a pod is nominated, or bound beside a nominated pod, with this pod's demands."""
    if change.resource is not POD or change.after is None:
        return
    node = _nominated_to(change.after)
    if node and node != _nominated_to(change.before or {}):
        yield "pod is nominated", _kind(change.after)
    if change.what == "bind":
        there, uid = change.object["spec"]["nodeName"], change.object["metadata"]["uid"]
        for raw in world.server.storage.all(POD):
            waits = not raw["spec"].get("nodeName") and raw["metadata"]["uid"] != uid
            if waits and _nominated_to(raw) == there:
                yield "pod bound beside a nominated one", _kind(raw)


def victims(world: "World", change: Change) -> Iterator[tuple[str, str]]:
    """Yield that a replica removes a pod for another one, and the number of its budgets."""
    removes = change.what in {"evict", "delete pods"} and change.resource is POD
    if not removes or change.before is None or _was_moved(world, change.before):
        return
    profile = world.server.storage.get(SCHEDULING_PROFILE, change.object["spec"]["schedulerName"])
    spec: Mapping[str, Any] = profile["spec"] if profile is not None else {}
    budgets = (spec.get("preemption") or {}).get("disruptionBudgets", "Default")
    yield f"victim leaves, budgets: {budgets}", _budgets_of(world, change.before)


def moves(world: "World", change: Change) -> Iterator[tuple[str, str]]:
    """Yield that a pod is moved, with the goal and the number of its budgets."""
    if change.resource is not POD or change.what != "evict" or change.before is None:
        return
    if not _was_moved(world, change.before):
        return
    metadata = change.before["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    goal = next((m["goal"] for m in _rebalancing(world).get("plan", ()) if m["pod"] == key), "")
    if change.before["spec"].get("schedulingGroup"):
        yield "pod moved", "a whole group"
    elif goal:
        yield "pod moved", goal
    yield "pod moved", _budgets_of(world, change.before)


def shared_devices(world: "World", change: Change) -> Iterator[tuple[str, str]]:
    """Yield that a claim gets or frees a device that other claims may share."""
    if change.resource is not RESOURCE_CLAIM:
        return
    had, has = _shares(change.before or {}), _shares(change.after or {})
    for event, shares in (
        ("shared device given", has - had),
        ("shared device freed", had - has),
    ):
        if shares:
            own = change.object["metadata"]["uid"]
            claims = world.server.storage.all(RESOURCE_CLAIM)
            others = (raw for raw in claims if raw["metadata"]["uid"] != own)
            yield event, _SHARES[any(_shares(raw) & shares for raw in others)]


def requests(what: str, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the fault of a request, and whether the request is a write."""
    if not what.startswith("connect"):
        yield f"request: {outcome}", "a read" if what.startswith(("get", "watch")) else "a write"


def _nominated_to(raw: Raw) -> str:
    return str((raw.get("status") or {}).get("nominatedNodeName") or "")


def _kind(raw: Raw) -> str:
    if any(port.get("hostPort") for port in _ports(raw)):
        return "host port"
    return "spread" if raw["spec"].get("topologySpreadConstraints") else "neither"


def _ports(raw: Raw) -> Iterator[Raw]:
    for container in raw["spec"].get("containers") or ():
        yield from container.get("ports") or ()


def _rebalancing(world: "World") -> Raw:
    profile = world.server.storage.get(SCHEDULING_PROFILE, MOVED)
    return ((profile or {}).get("status") or {}).get("rebalancing") or {}


def _was_moved(world: "World", raw: Raw) -> bool:
    """Return whether the pod is evicted for a move, and not by preemption."""
    is_its = raw["spec"].get("schedulerName") == MOVED
    return is_its and raw["metadata"]["uid"] not in world.preempted


def _budgets_of(world: "World", raw: Raw) -> str:
    return _BUDGETS[min(len(world.server.budgets_of(raw)), 2)]


def _shares(raw: Raw) -> set[str]:
    """Return the shared devices of the claim as pool/device."""
    allocation = (raw.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return {f"{each['pool']}/{each['device']}" for each in results if each.get("shareID")}
