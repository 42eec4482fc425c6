"""Counts the situations in the runs: pairs of an event and the state of its object.

`Coverage` examines each change. A situation is a pair, for example ("node goes", "running"). To add
situations, write a function that yields the pairs of a change, put it into `SITUATIONS`, and put
all its possible pairs into `POSSIBLE`, so that a missing situation has a name.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Final

from mooring.kube.api_resources import (
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)
from mooring.model.pod import Uid
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.pod_report import pod_state
from mooring.volumes.model.storage_objects import SELECTED_NODE
from simulation.actors.devices import claim_of, pool_of
from simulation.actors.faults import FAULTS
from simulation.actors.group_formats import RESOURCES
from simulation.actors.groups import Groups, group_of
from simulation.actors.neighbours import KINDS, kinds_of
from simulation.actors.plugins import WRONGS
from simulation.actors.readers import QUESTIONS
from simulation.network import Outcome
from simulation.scenario import NAMESPACE
from simulation.state_invariants import leader
from simulation.storage import Change, Raw
from simulation.subject_situations import (
    POSSIBLE_OF_SUBJECTS,
    moves,
    nominated,
    requests,
    shared_devices,
    victims,
)

if TYPE_CHECKING:
    from simulation.world import World


Pair = tuple[str, str]
"""An event, and a state."""


class Coverage:
    """Counts situations over any number of runs."""

    def __init__(self) -> None:
        self.met: Counter[Pair] = Counter()

    def note(self, world: "World", change: Change) -> None:
        for situations in SITUATIONS:
            self.met.update(situations(world, change))

    def note_fault(self, world: "World", name: str) -> None:
        """Count a fault, with the states of pods in the leader."""
        self.met.update(faults(world, name))

    def note_question(self, world: "World", name: str) -> None:
        """Count a reader's question, with the states of pods in the leader."""
        self.met.update(_with_states_in_leader(world, f"asks: {name}"))

    def note_plugin(self, method: str, how: str) -> None:
        """Count a faulty call of a plugin."""
        self.met[f"plugin: {method}", how] += 1

    def note_reclaim(self, victim: str) -> None:
        """Count an eviction of a pod in a Queue, for its own Queue or for another."""
        self.met["preempts in a queue", victim] += 1

    def note_request(self, what: str, outcome: Outcome) -> None:
        """Count a request with this fault."""
        self.met.update(requests(what, outcome))

    def never_met(self) -> list[Pair]:
        """Return the possible situations that did not occur."""
        return [pair for pair in POSSIBLE if not self.met[pair]]

    def table(self) -> str:
        """Return a table of all situations with their numbers."""
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
    """Yield the change of a pod, and the pod's former state."""
    if change.resource is POD and change.before is not None:
        yield _event(change), _state(change.before)


def nodes(world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a node, and the states of its pods."""
    if change.resource is not NODE:
        return
    event = {"ADDED": "node comes", "MODIFIED": "node changes", "DELETED": "node goes"}[change.verb]
    name = change.object["metadata"]["name"]
    there = [raw for raw in world.server.storage.all(POD) if raw["spec"].get("nodeName") == name]
    for state in {_state(raw) for raw in there} or {"none"}:
        yield event, state


def pods_of_the_leader(world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a pod, and the pod's state in the leader."""
    if change.resource is POD and change.before is not None:
        yield _event(change), _state_in_leader(world, change.before["metadata"]["uid"])


def faults(world: "World", name: str) -> Iterator[Pair]:
    """Yield the fault, and each state that pods have in the leader now."""
    yield from _with_states_in_leader(world, f"fault: {name}")


def groups(world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a group, a member or a member's node, and the group's state."""
    if change.resource in RESOURCES:
        event = {"ADDED": "group comes", "MODIFIED": "group changes", "DELETED": "group goes"}
        if "status" not in change.what:
            yield event[change.verb], _state_of_group(world, change.object["metadata"]["name"])
    elif change.resource is POD and (name := group_of(change.object)) is not None:
        if change.what == "bind":
            event_of_pod = "member bound"
        elif change.before is None:
            event_of_pod = "member comes"
        else:
            event_of_pod = {"pod gone": "member gone"}.get(_event(change), "member changes")
        yield event_of_pod, _state_of_group(world, name)
    elif change.resource is NODE and change.after is None:
        there = change.object["metadata"]["name"]
        members = [raw for raw in world.server.storage.all(POD) if group_of(raw) is not None]
        for raw in members:
            if raw["spec"].get("nodeName") == there:
                yield "node of a member goes", _state_of_group(world, str(group_of(raw)))


def claims(world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a claim or of its pod, and the claim's state."""
    if change.resource is POD and (volumes := change.object["spec"].get("volumes")):
        name = volumes[0]["persistentVolumeClaim"]["claimName"]
        claim = world.server.storage.get(PERSISTENT_VOLUME_CLAIM, name, NAMESPACE)
        event = "pod comes" if change.before is None else _event(change)
        yield f"{event}, with a claim", _state_of_claim(claim)
    elif change.resource is PERSISTENT_VOLUME_CLAIM and change.before is not None:
        event = "claim goes" if change.after is None else "claim changes"
        yield event, _state_of_claim(change.before)


def devices(world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a slice, of a claim for devices or of its pod, and the state."""
    raw = change.object
    if change.resource is POD and raw["spec"].get("resourceClaims"):
        event = "pod comes" if change.before is None else _event(change)
        yield f"{event}, with devices", _state_of_devices(claim_of(world, raw))
    elif change.resource is RESOURCE_CLAIM and change.before is not None:
        event = "claim for devices goes" if change.after is None else "claim for devices changes"
        yield event, _state_of_devices(change.before)
    elif change.resource is RESOURCE_SLICE:
        events = {"ADDED": "slice comes", "MODIFIED": "slice changes", "DELETED": "slice goes"}
        pool = raw["spec"]["pool"]["name"]
        pools = (pool_of(claim) for claim in world.server.storage.all(RESOURCE_CLAIM))
        yield events[change.verb], "devices: in use" if pool in pools else "devices: free"


def constraints(_world: "World", change: Change) -> Iterator[Pair]:
    """Yield the change of a pod with constraints, and each kind of its constraints."""
    if change.resource is POD:
        event = "pod comes" if change.before is None else _event(change)
        for kind in kinds_of(change.object):
            yield f"{event}, with a constraint", kind
            if change.by == "neighbours" and change.before is not None:
                yield "labels of a pod with a constraint change", kind


def _with_states_in_leader(world: "World", event: str) -> Iterator[Pair]:
    """Yield the event with each state that pods have in the leader now."""
    uids = [raw["metadata"]["uid"] for raw in world.server.storage.all(POD)]
    for state in {_state_in_leader(world, uid) for uid in uids}:
        yield event, state


def _state_in_leader(world: "World", uid: str) -> str:
    found = leader(world)
    if found is None:
        return "leader: nobody"
    state = pod_state(found[1].scheduler, Uid(uid))
    return f"leader: {state.value if state is not None else 'unknown'}"


def _state_of_group(world: "World", name: str) -> str:
    needs = world.actor(Groups).needs(world, name)
    if needs is None:
        return "group: undefined"
    members = [raw for raw in world.server.storage.all(POD) if group_of(raw) == name]
    bound = sum("nodeName" in raw["spec"] for raw in members)
    minimum, _ = needs
    if bound >= minimum:
        return "group: placed"
    if bound:
        return "group: partly bound"
    return "group: waiting" if len(members) >= minimum else "group: incomplete"


def _state_of_claim(claim: Raw | None) -> str:
    if claim is None:
        return "claim: none"
    if "volumeName" in claim["spec"]:
        return "claim: bound"
    selected = SELECTED_NODE in (claim["metadata"].get("annotations") or {})
    return "claim: node selected" if selected else "claim: unbound"


def _state_of_devices(claim: Raw | None) -> str:
    if claim is None:
        return "devices: no claim"
    if claim["status"].get("reservedFor"):
        return "devices: reserved"
    return "devices: allocated" if pool_of(claim) else "devices: none"


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
    """Return the pod's state as one word."""
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


SITUATIONS: Final[list[Callable[["World", Change], Iterator[Pair]]]] = [
    pods,
    pods_of_the_leader,
    nodes,
    groups,
    claims,
    devices,
    constraints,
    nominated,
    victims,
    moves,
    shared_devices,
]

_WAITING: Final = ("pending", "unschedulable", "nominated")
_PLACED: Final = ("bound", "running", "terminating", "finished")

_QUEUED: Final = (
    PodState.ACTIVE,
    PodState.BACKOFF,
    PodState.UNSCHEDULABLE,
    PodState.IN_FLIGHT,
)
_GROUPS: Final = tuple(
    f"group: {state}" for state in ("undefined", "incomplete", "waiting", "partly bound", "placed")
)
_DEVICES: Final = tuple(
    f"devices: {state}" for state in ("no claim", "none", "allocated", "reserved")
)
_CLAIMS: Final = tuple(f"claim: {state}" for state in ("none", "unbound", "node selected", "bound"))


def _in_leader(*states: PodState) -> list[str]:
    return [f"leader: {state.value}" for state in states]


POSSIBLE: Final[list[Pair]] = [
    *(("pod bound", state) for state in (*_WAITING, "finished")),
    *product(("pod gone", "pod changes"), ("gated", *_WAITING, *_PLACED)),
    *(("pod terminates", state) for state in ("bound", "running", "finished")),
    *(("pod finishes", state) for state in (*_WAITING, "bound", "running", "terminating")),
    *product(("node comes", "node changes", "node goes"), ("none", *_PLACED)),
    *product(
        ("pod gone", "pod changes"),
        _in_leader(*_QUEUED, PodState.BINDING, PodState.BOUND, PodState.GATED),
    ),
    *product(("pod terminates",), _in_leader(PodState.BINDING, PodState.BOUND)),
    *product(("pod bound",), _in_leader(PodState.BINDING)),
    *(
        (f"fault: {name}", state)
        for name in sorted(FAULTS)
        for state in _in_leader(*_QUEUED, PodState.BINDING, PodState.BOUND)
    ),
    *(
        (f"asks: {name}", state)
        for name in QUESTIONS
        for state in _in_leader(*_QUEUED, PodState.BINDING, PodState.BOUND)
    ),
    *product(("member comes", "member gone"), _GROUPS),
    *product(("group changes",), _GROUPS[1:]),  # one without a definition has nothing to change
    *product(("member bound", "node of a member goes"), _GROUPS[3:]),
    *product(("group comes",), _GROUPS[1:]),
    ("group goes", "group: undefined"),
    *product(("pod comes, with a claim", "pod gone, with a claim"), _CLAIMS),
    ("pod bound, with a claim", "claim: bound"),
    *product(("claim goes", "claim changes"), _CLAIMS[1:]),
    *product(("pod comes, with devices", "pod gone, with devices"), _DEVICES),
    ("pod bound, with devices", "devices: reserved"),
    *product(("claim for devices changes",), _DEVICES[1:]),
    ("claim for devices goes", "devices: none"),
    *product(("slice comes", "slice changes", "slice goes"), ("devices: free", "devices: in use")),
    *product(
        (
            *("pod comes, with a constraint", "pod bound, with a constraint"),
            *("pod gone, with a constraint", "pod terminates, with a constraint"),
            "labels of a pod with a constraint change",
        ),
        KINDS,
    ),
    *((f"plugin: {method}", how) for method, ways in WRONGS.items() for how in ways),
    *POSSIBLE_OF_SUBJECTS,
]
