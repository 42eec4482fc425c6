"""Compares two policies: each places the same pods on the same nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
import orjson

from mooring.framework.registry import Registry
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY
from mooring.quota.model.queue import Queue
from mooring.scheduling.what_if import stays_on_its_node
from mooring.simulate.chosen_pods import EVERY_POD, ChosenPods, take_off
from mooring.simulate.inputs import Inputs
from mooring.simulate.load_profiles import LoadedProfile
from mooring.simulate.manifests import InputError, read_text
from mooring.simulate.new_objects import owner_of
from mooring.simulate.simulation import SimulatedAttempt, Simulation
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "node.kubernetes.io/instance-type",
)
"""The labels that name a node's pool; the first of these labels on a node is used."""

_NO_POOL: Final = "(none)"
COMPARED: Final = (CPU, MEMORY)
"""The resources that the comparison shows."""
_LARGE: Final = 95
"""The requests of a large pod, as a percentile of all pods' requests."""

_Timed = Callable[[Iterable[SimulatedAttempt], int], Iterable[SimulatedAttempt]]


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The use of a pool of nodes.

    Attributes:
        empty: The number of nodes that have only pods of DaemonSets and static pods.
        cpu: The requested part of the allocatable cpu, from 0 to 1.
        memory: The requested part of the allocatable memory, from 0 to 1.
        fragmentation: The share of large pods that would fit into the sum of the pool's free
            resources, but fit on no single node.
    """

    nodes: int
    empty: int
    cpu: float
    memory: float
    fragmentation: float

    def document(self) -> dict[str, Any]:
        """Return the pool's use as a JSON object."""
        shares = {"cpu": self.cpu, "memory": self.memory, "fragmentation": self.fragmentation}
        rounded = {name: round(share, 4) for name, share in shares.items()}
        return {"nodes": self.nodes, "emptyNodes": self.empty, **rounded}


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A pod that two policies place differently.

    `owner` is its controller as `Kind namespace/name`, or "". `reason` says why `new` is None; else
    it is "".
    """

    pod: str
    owner: str
    old: str | None
    new: str | None
    reason: str

    def document(self) -> dict[str, Any]:
        """Return the pod with its nodes as a JSON object."""
        return {"pod": self.pod, "old": self.old, "new": self.new, "reason": self.reason or None}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two policies.

    Attributes:
        pods: The number of pods that both policies tried to place.
        moves: The pods that move to another node, lose their node, or gain a node. Equal pods of a
            controller that only exchange their nodes are left out.
        pools: Each pool's use with the old and with the new policy.
        utilisation: With the old and with the new policy, the number of nodes with 0 to 10 % of
            their cpu requested, with 10 to 20 %, and so on.
    """

    pods: int
    moves: tuple[ChangedNode, ...]
    pools: Mapping[str, tuple[PoolUse, PoolUse]]
    utilisation: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def lost(self) -> tuple[ChangedNode, ...]:
        """The pods that have a node with the old policy only."""
        return tuple(move for move in self.moves if move.new is None)

    @property
    def gained(self) -> tuple[ChangedNode, ...]:
        """The pods that have a node with the new policy only."""
        return tuple(move for move in self.moves if move.old is None)

    @property
    def moved(self) -> tuple[ChangedNode, ...]:
        """The pods that both policies place, but on different nodes."""
        return tuple(move for move in self.moves if move.old and move.new)

    def document(self) -> dict[str, Any]:
        """Return the comparison as the JSON object that `-o json` prints."""
        return {
            "pods": self.pods,
            "summary": {
                "moved": len(self.moved),
                "lost": len(self.lost),
                "gained": len(self.gained),
            },
            "moves": [move.document() for move in self.moves],
            "pools": {
                name: {"old": old.document(), "new": new.document()}
                for name, (old, new) in self.pools.items()
            },
            "nodesByCpu": {"old": [*self.utilisation[0]], "new": [*self.utilisation[1]]},
        }


@dataclass(frozen=True, slots=True)
class Side:
    """The result of one policy: each pod's node, or why it has none, and the use of the pools."""

    nodes: Mapping[str, str | None]
    reasons: Mapping[str, str]
    pools: Mapping[str, PoolUse]
    utilisation: tuple[int, ...]


def compare(
    inputs: Inputs,
    registry: Registry,
    old: Sequence[LoadedProfile],
    new: Sequence[LoadedProfile],
    queues: tuple[Sequence[Queue], Sequence[Queue]] = ((), ()),
    *,
    selection: ChosenPods = EVERY_POD,
    as_profile: str | None = None,
    order: Sequence[str] | None = None,
    pool_label: str | None = None,
    seed: int = 0,
    progress: _Timed = lambda attempts, _: attempts,
) -> Comparison:
    """Place the selected pods from scratch, once with each policy, and compare the results.

    Running pods first leave their nodes; static and terminating pods stay. Pods that neither policy
    takes are left out. If `old` and `new` have one profile each, these profiles decide about all
    selected pods. Profiles in mode Shadow decide, too.

    Args:
        inputs: The cluster and its pods; the function changes this cluster.
        registry: The plugins that profiles may name.
        old: The profiles of the old policy; if empty, the profiles of the inputs.
        new: The profiles of the new policy; if empty, the profiles of the inputs.
        queues: The Queues of the old and of the new policy, which replace the cluster's Queues of
            the same names.
        selection: Which pods are placed.
        as_profile: In each policy, the profile of this name decides about every pod.
        order: If given, only these pods ("namespace/name") are placed, in this order.
        pool_label: The node label that names a node's pool, instead of `POOL_LABELS`.
        seed: Chooses among nodes of equal score.
        progress: Called with the attempts of the new policy and their number; yields them again.

    Raises:
        InputError: if no pod is selected, a policy has no profile `as_profile`, or the old policy
            fails.
    """
    names = [as_profile, as_profile]
    if as_profile is None and len(old) == len(new) == 1:
        names = [old[0].profile.name, new[0].profile.name]
    policies = ([each.active() for each in policy or inputs.profiles] for policy in (old, new))
    simulations = [
        Simulation(replace(inputs, profiles=tuple(p)), registry, seed=seed, nodes=0, profile=name)
        for p, name in zip(policies, names, strict=True)
    ]
    wanted = {key: position for position, key in enumerate(order or ())}

    def selected(pod: Pod) -> bool:
        taken = any(simulation.takes(pod) for simulation in simulations)
        return taken and selection.takes(pod, inputs) and (order is None or pod.key in wanted)

    found = [pod for pod in take_off(inputs, selected).pending if selected(pod)]
    if not found:
        raise InputError("there is no pod to compare the policies by")
    if order is not None:  # the queue is sorted by time, so the order is that of the times
        found.sort(key=lambda pod: wanted[pod.key])
        found = [replace(pod, created=float(n)) for n, pod in enumerate(found, start=1)]
    large = large_requests(found)

    def side(attempts: Iterable[SimulatedAttempt], changed: Iterable[Queue]) -> Side:
        for queue in changed:
            inputs.state.put(Kind.QUEUE, queue.name, queue)
        return _side(attempts, inputs.state, large, pool_label)

    receiver, sender = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(
        target=_send, args=(sender, lambda: side(simulations[0].attempts(found), queues[0]))
    )
    child.start()  # the old policy runs at the same time
    sender.close()
    try:
        after = side(progress(simulations[1].attempts(found), len(found)), queues[1])
        before = _received(receiver)
    finally:
        child.terminate()
        child.join()
    return comparison_of(found, before, after)


def recorded_order(path: str) -> list[str]:
    """Return the pods of a file's decision records, in the order of their arrival.

    Raises InputError if the file has no decision records.
    """
    try:
        return arrival_order(orjson.loads(read_text(path))["decisions"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path}: holds no decision records; it must be what /debug/decisions answers"
        ) from None


def arrival_order(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each pod of the decision records once, in the order in which pods were first seen.

    Records without times come first, in the given order.
    """
    timed = sorted(records, key=lambda record: (record.get("seen") or "", record.get("time") or ""))
    return [*dict.fromkeys(str(record["pod"]) for record in timed)]


def _send(sender: Connection, work: Callable[[], Side]) -> None:
    try:
        sender.send(work())
    except Exception as error:  # noqa: BLE001 - the other process says so to the user
        sender.send(f"{type(error).__name__}: {error}")


def _received(receiver: Connection) -> Side:
    try:
        answer = receiver.recv()
    except EOFError:
        raise InputError("the process that tries the old policy has ended") from None
    if not isinstance(answer, Side):
        raise InputError(f"the old policy cannot be tried: {answer}")
    return answer


def _side(
    attempts: Iterable[SimulatedAttempt],
    state: ClusterState,
    large: Mapping[str, int],
    label: str | None,
) -> Side:
    nodes: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for attempt in attempts:
        decision = attempt.decision
        nodes[decision.pod.key] = decision.node
        if decision.node is None:
            preempts = f"would preempt on {decision.nominated_node}"
            reasons[decision.pod.key] = preempts if decision.nominated_node else attempt.reason
    rows = state.nodes.order()
    columns, present = ClusterView(state).nodes.take(rows), state.nodes.nodes
    busy = {placed.row for placed in state.pods if not stays_on_its_node(placed.pod)}
    use = NodeUse(
        {name: columns.allocatable(name) for name in COMPARED},
        {name: columns.requested(name) for name in COMPARED},
        np.maximum(columns.pod_slots - columns.pod_count, 0),
        np.array([row not in busy for row in rows.tolist()], np.bool_),
        large,
    )
    found = (present[row] for row in rows.tolist())
    pools = [pool_of(node.labels if node is not None else {}, label) for node in found]
    return Side(nodes, reasons, use.by_pool(pools), use.histogram())


def pool_of(labels: Mapping[str, str], label: str | None = None) -> str:
    """Return the pool of a node with these labels: the value of `label`, or "(none)".

    If `label` is None, the first of `POOL_LABELS` that the node has is used.
    """
    keys = POOL_LABELS if label is None else (label,)
    return next((labels[key] for key in keys if key in labels), _NO_POOL)


@dataclass(eq=False, repr=False)
class NodeUse:
    """The free and used resources of nodes; every array has one item per node.

    Args:
        allocatable: The allocatable cpu and memory, int64.
        requested: The requested cpu and memory, int64.
        slots: How many more pods each node's limit of pods allows.
        empty: Whether the node has only pods of DaemonSets and static pods.
        large: The requests of a large pod, see `large_requests`.
    """

    allocatable: Mapping[str, IntArray]
    requested: Mapping[str, IntArray]
    slots: IntArray
    empty: BoolArray
    large: Mapping[str, int]

    def by_pool(self, pools: Iterable[str]) -> dict[str, PoolUse]:
        """Return the use of each pool; `pools` has the pool of each node."""
        members: dict[str, list[int]] = {}
        for position, pool in enumerate(pools):
            members.setdefault(pool, []).append(position)
        return {pool: self._of(np.array(members[pool])) for pool in sorted(members)}

    def _of(self, index: IntArray) -> PoolUse:
        """Return how much is used of the nodes at the positions `index`."""
        shares = {}
        fits, together = self.slots[index], int(self.slots[index].sum())
        for name in COMPARED:
            allocatable = self.allocatable[name][index]
            requested = self.requested[name][index]
            shares[name] = _share(int(requested.sum()), int(allocatable.sum()))
            if self.large[name]:
                free = np.maximum(allocatable - requested, 0)
                fits = np.minimum(fits, free // self.large[name])
                together = min(together, int(free.sum()) // self.large[name])
        lost = 1 - _share(int(fits.sum()), together) if together else 0.0
        empty = int(self.empty[index].sum())
        return PoolUse(len(index), empty, shares[CPU], shares[MEMORY], lost)

    def histogram(self) -> tuple[int, ...]:
        """Return how many nodes have 0 to 10 % of their cpu requested, 10 to 20 %, and so on."""
        allocatable = np.maximum(self.allocatable[CPU], 1)
        tenths = np.minimum(self.requested[CPU] * 10 // allocatable, 9)
        return tuple(np.bincount(tenths, minlength=10).tolist())


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def large_requests(pods: Iterable[Pod]) -> dict[str, int]:
    """Return, for each resource, the percentile `_LARGE` of the requests of all pods."""
    demands = [pod.spec.demand.resources for pod in pods]
    return {
        name: int(np.percentile([demand.get(name, 0) for demand in demands], _LARGE))
        for name in COMPARED
    }


def comparison_of(pods: Sequence[Pod], before: Side, after: Side) -> Comparison:
    """Return how the placements of two sides differ; both began with the same pods and nodes."""
    alike: dict[Any, list[Pod]] = {}
    for pod in pods:
        owner = (pod.namespace, pod.owner.kind, pod.owner.name) if pod.owner else pod.key
        alike.setdefault((owner, id(pod.spec)), []).append(pod)
    moves = [move for group in alike.values() for move in _moves(group, before, after)]
    pools = {name: (before.pools[name], after.pools[name]) for name in before.pools}
    return Comparison(len(pods), tuple(moves), pools, (before.utilisation, after.utilisation))


def _moves(pods: Iterable[Pod], before: Side, after: Side) -> Iterator[ChangedNode]:
    """Yield which of these equal pods changed their node, without pods that swapped nodes."""
    pods = [*pods]
    old = [before.nodes[pod.key] for pod in pods]
    new = Counter(after.nodes[pod.key] for pod in pods)
    leaving: list[tuple[Pod, str | None]] = []
    for pod, node in zip(pods, old, strict=True):
        if new[node]:
            new[node] -= 1
        else:
            leaving.append((pod, node))
    why = next((after.reasons[pod.key] for pod in pods if pod.key in after.reasons), "")
    targets = [*(+new).elements()]
    for (pod, node), target in zip(leaving, targets, strict=True):
        yield ChangedNode(pod.key, owner_of(pod), node, target, why if target is None else "")


def merged(moves: Iterable[ChangedNode]) -> list[list[ChangedNode]]:
    """Group the moves: each list has pods of one controller with the same kind of change.

    Pods that lose their node come first; pods that get another node come last.
    """
    groups: dict[tuple[str, str | None, str | None, str], list[ChangedNode]] = {}
    for move in sorted(moves, key=lambda move: (move.new is not None, move.old is not None)):
        alike = (move.owner or move.pod, move.old, move.new, move.reason)
        # Pods that get another node are together, whatever their nodes are.
        if move.old is not None and move.new is not None:
            alike = (move.owner or move.pod, "", "", "")
        groups.setdefault(alike, []).append(move)
    return list(groups.values())
