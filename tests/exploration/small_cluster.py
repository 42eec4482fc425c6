"""A cluster of at most three pods and two nodes as the API server has it, and its events.

Each pod and each node has at most one of the events in this module; the total number is limited.
The program is told of the events as by kopf and the reflectors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from exploration.explorer import Action, Broken
from mooring.framework.registry import Registry
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.model.events import Kind
from mooring.model.node import Node, parse_node
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod

REGISTRY: Final = Registry(SHIPPED, {})
KOPF: Final = "kopf"
ASSIGNED: Final = "the watch of assigned pods"
_PLUGINS: Final[dict[str, Any]] = {
    "multiPoint": {
        "disabled": [{"name": "*"}],
        "enabled": [
            {"name": name}
            for name in (
                "PrioritySort",
                "SchedulingGates",
                "NodeUnschedulable",
                "NodeResourcesFit",
                "GangScheduling",
                "DefaultBinder",
            )
        ],
    }
}
"""Those that these worlds need: a profile of all plugins takes as long to build as ten actions."""
_GANGS: Final = {
    "name": "GangScheduling",
    "args": {"reserveAfter": "5m", "reservedNodesPercent": 100},
}
_SPEC: Final = read(SchedulingProfileSpec, {"plugins": _PLUGINS, "pluginConfig": [_GANGS]}, "spec")
_RESOLVED: Final = resolve(_SPEC, REGISTRY)


@dataclass(frozen=True)
class Stored:
    """A pod in etcd; `cpu` is its request."""

    name: str
    number: int
    """How many pods of this name there were before."""
    cpu: int
    group: str | None = None
    node: str | None = None
    label: str = ""
    labelled: bool = False
    """Whether a label names the group, which may change, and not the spec."""

    @property
    def uid(self) -> Uid:
        return Uid(f"{self.name}-{self.number}")

    @property
    def parsed(self) -> Pod:
        """The pod as the watches show it."""
        return _parsed(self)


@dataclass(frozen=True)
class StoredNode:
    """A node in etcd."""

    name: str
    cpu: int
    cordoned: bool = False

    @property
    def parsed(self) -> Node:
        """The node as its watch shows it."""
        return _parsed_node(self)


@cache
def _parsed(stored: Stored) -> Pod:
    labels = {"changed": stored.label} if stored.label else {}
    if stored.labelled and stored.group is not None:
        labels[COSCHEDULING_LABEL] = stored.group
    group = stored.group if not stored.labelled else None
    raw = pod(stored.name, cpu=str(stored.cpu), node=stored.node, labels=labels, group=group)
    raw["metadata"]["uid"] = stored.uid
    return parse_pod(raw)


@cache
def _parsed_node(stored: StoredNode) -> Node:
    return parse_node(node(stored.name, cpu=str(stored.cpu), unschedulable=stored.cordoned))


class SmallCluster:
    """The objects of the API server, the possible events, and the rules for every world.

    `events` limits the number of events. `EngineWorld` says how the program is told.
    """

    scheduler: SchedulerState
    enqueuer: PodEnqueuer

    def __init__(self, pods: list[Stored], nodes: list[StoredNode], events: int) -> None:
        self.events = events
        self.pods = {each.name: each for each in pods}
        self.nodes = {each.name: each for each in nodes}
        self.befallen = set[str]()
        """The pods, nodes and groups that have had their event."""
        self.gone = set[Uid]()
        """The pods that were deleted."""
        self.others_bind = False
        """Whether another scheduler has bound a pod, which may leave too little for others."""
        self.largest = max(each.cpu for each in pods)

    def put_profile(self) -> None:
        """Put the profile for these worlds in force."""
        self.scheduler.profiles.put(SchedulingProfile("default-scheduler", _SPEC), _RESOLVED)

    # What the program is told

    def tell(self, stream: str, what: str, tell: Callable[[], object]) -> None:
        """Call `tell`, which passes an event of kopf or of the watch to the program."""
        raise NotImplementedError

    # What happens

    def events_that_may_come(self) -> Iterator[Action]:
        """Yield an action for each event that is possible now."""
        if not self.events:
            return
        for name in ("a", "b", "c"):
            if name in self.befallen:
                continue
            if name not in self.pods:
                yield Action(f"pod {name} is created", "pod_created", (name,))
                continue
            yield Action(f"pod {name} is deleted", "pod_deleted", (name,))
            yield Action(f"another pod of the name {name} comes for it", "pod_replaced", (name,))
            if self.pods[name].node is None:
                yield Action(f"the labels of pod {name} change", "pod_changed", (name,))
                if (on := self._node_for(self.pods[name])) is not None:
                    words = f"another scheduler binds pod {name} to {on}"
                    yield Action(words, "bound_elsewhere", (name, on))
        for name in ("n0", "n1"):
            if name not in self.befallen:
                yield from self._events_of_node(name)

    def _events_of_node(self, name: str) -> Iterator[Action]:
        if name not in self.nodes:
            yield Action(f"node {name} is added", "node_put", (StoredNode(name, self.largest),))
            return
        known = self.nodes[name]
        larger = replace(known, cpu=known.cpu + 1)
        cordoned = "uncordoned" if known.cordoned else "cordoned"
        changed = replace(known, cordoned=not known.cordoned)
        yield Action(f"node {name} gets another CPU", "node_put", (larger,))
        yield Action(f"node {name} is {cordoned}", "node_put", (changed,))
        yield Action(f"node {name} is removed", "node_removed", (name,))
        words = f"a larger node of the name {name} comes for it"
        yield Action(words, "node_replaced", (larger,))

    def befall(self, name: str) -> None:
        """Note that the object `name` had its event."""
        self.befallen.add(name)
        self.events -= 1

    def pod_created(self, name: str) -> None:
        raise NotImplementedError

    def create(self, stored: Stored) -> None:
        self.pods[stored.name] = stored
        self.tell(KOPF, f"{stored.uid} came", lambda: self.enqueuer.pending(stored.parsed))

    def pod_deleted(self, name: str) -> None:
        self.befall(name)
        self.delete(name)

    def delete(self, name: str) -> None:
        """Delete the pod of this name."""
        stored = self.pods.pop(name)
        uid = stored.uid
        self.gone.add(uid)
        if stored.node is None:
            self.tell(KOPF, f"{uid} went", lambda: self.enqueuer.gone(uid))
        else:
            state = self.scheduler.state
            self.tell(ASSIGNED, f"{uid} went", lambda: state.delete(Kind.POD, uid))

    def pod_replaced(self, name: str) -> None:
        """Delete the pod of this name, and create its successor."""
        self.befall(name)
        before = self.pods[name]
        self.delete(name)
        self.create(replace(before, number=before.number + 1, node=None, label=""))

    def pod_changed(self, name: str) -> None:
        """Change the labels of a pod without a node."""
        self.befall(name)
        stored = self.pods[name] = replace(self.pods[name], label="yes")
        self.tell(KOPF, f"{stored.uid} changed", lambda: self.enqueuer.pending(stored.parsed))

    def pod_moved(self, name: str, group: str) -> None:
        """Change the group label of a pod without a node."""
        self.befall(name)
        stored = self.pods[name] = replace(self.pods[name], group=group)
        words = f"{stored.uid} is in group {group}"
        self.tell(KOPF, words, lambda: self.enqueuer.pending(stored.parsed))

    def bound_elsewhere(self, name: str, on: str) -> None:
        """Let another scheduler bind the pod to the node `on`."""
        self.befall(name)
        self.others_bind = True
        self.bind(name, on)

    def bind(self, name: str, on: str) -> None:
        """Bind the pod to the node, and let both watches show this."""
        stored = self.pods[name] = replace(self.pods[name], node=on)
        uid, state = stored.uid, self.scheduler.state
        self.tell(ASSIGNED, f"{uid} is bound", lambda: state.put(Kind.POD, uid, stored.parsed))
        self.tell(KOPF, f"{uid} is bound", lambda: self.enqueuer.gone(uid))

    def node_put(self, stored: StoredNode) -> None:
        """Add or change the node, as the event of this node."""
        self.befall(stored.name)
        self.put_node(stored)

    def put_node(self, stored: StoredNode) -> None:
        """Add or change the node, and let the watch show this at once."""
        self.nodes[stored.name] = stored
        self.scheduler.state.put(Kind.NODE, stored.name, stored.parsed)

    def node_removed(self, name: str) -> None:
        """Remove the node; its pods stay, as for some minutes in a real cluster."""
        self.befall(name)
        self._remove_node(name)

    def _remove_node(self, name: str) -> None:
        del self.nodes[name]
        self.scheduler.state.delete(Kind.NODE, name)

    def node_replaced(self, stored: StoredNode) -> None:
        """Remove the node, and add another one with the same name."""
        self.befall(stored.name)
        self._remove_node(stored.name)
        self.put_node(stored)

    # What is true of it

    def free(self, name: str) -> int:
        """Return the free CPUs of a node, computed from its pods."""
        return self.nodes[name].cpu - sum(p.cpu for p in self.pods.values() if p.node == name)

    def _node_for(self, stored: Stored) -> str | None:
        """Return a node on which the pod fits now; None if there is none."""
        fits = (n for n, each in self.nodes.items() if not each.cordoned)
        return next((n for n in fits if self.free(n) >= stored.cpu), None)

    def check_places(self, in_flight: set[Uid]) -> None:
        """Check that each pod is in only one place, and that the counts of the queue are right.

        `in_flight` are the uids of pods with a running attempt.
        """
        queue, state = self.scheduler.queue, self.scheduler.state
        queued = list(queue)
        uids = [each.pod.uid for each in queued]
        if len(uids) != len(set(uids)):
            raise Broken(f"a pod is in the queue twice: {uids}")
        for part in SubQueue:
            if queue.counts()[part.value] != sum(each.queue is part for each in queued):
                raise Broken(f"the queue counts its {part} pods wrong")
        for each in queued:
            uid = each.pod.uid
            if queue.get(uid) is not each:
                raise Broken(f"the queue does not find pod {uid}")
            if each.queue is None and uid not in in_flight:
                raise Broken(f"pod {uid} is in flight, and no attempt about it runs")
            if each.queue is not None and state.pods.get(uid) is not None:
                raise Broken(f"pod {uid} is among the {each.queue} pods, and on a node as well")

    def check_books(self) -> None:
        """Check that each node's counted requests are those of its pods and fit its capacity."""
        cluster, state = self.scheduler.cluster, self.scheduler.state
        for name, known in self.nodes.items():
            row = cluster.row(name)
            placed = [each.pod for each in state.pods if each.pod.node_name == name]
            taken = sum(each.spec.demand.resources["cpu"] for each in placed)
            if row is None or int(cluster.nodes.requested("cpu")[row]) != taken:
                raise Broken(f"node {name} is said to have other requests than its pods")
            if taken > 1000 * known.cpu and not self.others_bind:
                raise Broken(f"node {name} has more on it than it has")

    def check_gone(self, still_named: set[Uid]) -> None:
        """Check that nothing is kept about deleted pods, except where a Binding was sent."""
        scheduler = self.scheduler
        state = scheduler.state
        places: dict[str, set[Uid]] = {
            "in the queue": {each.pod.uid for each in scheduler.queue},
            "on a node": {each.pod.uid for each in state.pods},
            "nominated": {nominee.pod.uid for nominee in state.nominations},
            "without a profile": set(scheduler.without_profile),
            "a member of its group": {
                uid for group in scheduler.cluster.pod_groups for uid in group.unscheduled
            },
        }
        for place, uids in places.items():
            if left := sorted(uids & self.gone - still_named):
                raise Broken(f"pod {left[0]} was deleted, and is still {place}")

    def check_nobody_sleeps(self) -> None:
        """Check, when the scheduler is at rest, that every pod that fits has a node."""
        queue = self.scheduler.queue
        for stored in self.pods.values():
            if stored.node is not None:
                continue
            queued = queue.get(stored.uid)
            if queued is None:
                raise Broken(f"pod {stored.uid} has no node, and is not in the queue")
            on = self._node_for(stored) if stored.group is None else None
            if on is not None:
                where = f"is left among the {queued.queue} pods"
                raise Broken(f"pod {stored.uid} fits on {on}, and {where}")
