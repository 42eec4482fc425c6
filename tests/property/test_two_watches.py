"""Names return, two watches tell of them with two delays, and no node is given away twice.

The cluster is a slow model that knows every pod by uid: what etcd holds, and what each watch has
told so far. Mooring's state is told the same, in any order in which two watches may tell it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.kube import resources
from mooring.mirroring.mirror import Mirror
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import cluster, node, pod
from relists import relisted

NAMES = ("web-0", "web-1")
NODES = ("a", "b")
CPU = 4000

Event = Literal["ADDED", "MODIFIED", "DELETED"]

names = st.sampled_from(NAMES)
nodes = st.sampled_from(NODES)
sizes = st.sampled_from((1500, 3000))


@dataclass
class Stored:
    """A pod in etcd."""

    uid: str
    name: str
    cpu: int
    node: str | None = None

    def raw(self, *, placed: bool = True) -> dict[str, Any]:
        """Return the pod as the API server shows it, or as it was before it had a node."""
        raw = pod(self.name, cpu=f"{self.cpu}m", node=self.node if placed else None)
        raw["metadata"]["uid"] = self.uid
        return raw


class TwoWatches(RuleBasedStateMachine):
    """Every pod is assumed only where the state says that it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.state = cluster(*(node(name, cpu=f"{CPU}m") for name in NODES))
        self.mirror = Mirror(self.state)
        self.etcd: dict[str, Stored] = {}
        """By name, as there."""
        self.assigned: deque[tuple[Event, Stored] | list[Stored]] = deque()
        """What the watch of assigned pods has yet to tell: events, and lists as of some moment."""
        self.pending: deque[Stored] = deque()
        """What the watch of pods without a node has yet to tell."""
        self.waiting: dict[str, Pod] = {}
        """Pods that it has told of, by uid, as Mooring's queue has them."""
        self.known: dict[str, tuple[str, int]] = {}
        """Node and cpu by uid of the pods that the watch of assigned pods has told of."""
        self.assumed: dict[str, tuple[str, int]] = {}
        self.bindings: dict[str, Pod] = {}
        """Bindings by uid that the API server has not seen yet."""
        self.uids = 0

    # What happens in etcd

    @rule(name=names, cpu=sizes)
    def created_again(self, name: str, cpu: int) -> None:
        """Create it with other requests; its predecessor, if there is one, is deleted before."""
        if (before := self.etcd.pop(name, None)) is not None and before.node is not None:
            self.assigned.append(("DELETED", before))
        self.uids += 1
        self.etcd[name] = Stored(f"uid-{self.uids}", name, cpu)
        self.pending.append(self.etcd[name])

    @rule(name=names)
    def its_status_changes(self, name: str) -> None:
        if (stored := self.etcd.get(name)) is not None:
            if stored.node is not None:
                self.assigned.append(("MODIFIED", stored))
            else:
                self.pending.append(stored)

    @precondition(lambda self: self.bindings)
    @rule(data=st.data())
    def binding_comes(self, data: st.DataObject) -> None:
        """Bind the pod or, if the pod has gone, refuse the binding and forget the pod."""
        uid = data.draw(st.sampled_from(sorted(self.bindings)))
        assumed = self.bindings.pop(uid)
        stored = self.etcd.get(assumed.name)
        if stored is None or stored.uid != uid or stored.node is not None:
            self.state.forget(assumed)
            self.assumed.pop(uid, None)
            return
        assert assumed.node_name is not None
        stored.node = assumed.node_name
        there = [each for each in self.etcd.values() if each.node == stored.node]
        assert sum(each.cpu for each in there) <= CPU, f"{stored.node} has {there}"
        self.assigned.append(("ADDED", stored))

    # What the watches tell

    @rule()
    def the_watch_of_assigned_pods_ends(self) -> None:
        """Lose what the watch has not told; a list as of now comes later."""
        self.assigned.clear()
        self.assigned.append([each for each in self.etcd.values() if each.node is not None])

    @precondition(lambda self: self.assigned)
    @rule()
    def assigned_pods_are_told(self) -> None:
        told = self.assigned.popleft()
        if isinstance(told, list):
            relisted(self.mirror, resources.POD, [each.raw() for each in told])
            self.known = {each.uid: self.place(each) for each in told}
        else:
            event, stored = told
            self.mirror.apply(resources.POD, event, stored.raw())
            self.known[stored.uid] = self.place(stored)
            if event == "DELETED":
                del self.known[stored.uid]
                self.assumed.pop(stored.uid, None)
        for uid in self.known:
            self.assumed.pop(uid, None)

    @precondition(lambda self: self.pending)
    @rule()
    def a_pending_pod_is_told(self) -> None:
        stored = self.pending.popleft()
        self.waiting[stored.uid] = parse_pod(stored.raw(placed=False))

    # What Mooring does

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), on=nodes)
    def decided(self, data: st.DataObject, on: str) -> None:
        """Assume a pod if its node has space for it; do not decide one that is placed."""
        waiting = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        row = self.state.nodes.row_of[on]
        fits = self.state.nodes.fits_requests(row, waiting.spec.demand.resources)
        if waiting.uid in self.held() or not fits:
            return
        self.state.assume(waiting, row)
        cpu = waiting.spec.demand.resources["cpu"]
        self.assumed[waiting.uid] = (on, cpu)
        self.bindings[waiting.uid] = next(
            each.pod for each in self.state.pods if each.pod.uid == waiting.uid
        )

    @precondition(lambda self: self.assumed.keys() - self.bindings.keys())
    @rule(data=st.data())
    def asked(self, data: st.DataObject) -> None:
        """Forget a pod that was bound and has gone before a watch told of it."""
        uid = data.draw(st.sampled_from(sorted(self.assumed.keys() - self.bindings.keys())))
        if uid not in {each.uid for each in self.etcd.values()}:
            placed = next(each.pod for each in self.state.pods if each.pod.uid == uid)
            self.state.forget(placed)
            del self.assumed[uid]

    def held(self) -> Mapping[str, tuple[str, int]]:
        """Return, by uid, node and cpu of each pod that the watch told of or that is assumed."""
        return self.known | self.assumed

    @staticmethod
    def place(stored: Stored) -> tuple[str, int]:
        assert stored.node is not None
        return stored.node, stored.cpu

    @invariant()
    def every_pod_is_counted_where_it_is(self) -> None:
        placed = {
            each.pod.uid: (self.state.nodes.names[each.row], each.assumed)
            for each in self.state.pods
        }
        held = {uid: (on, uid in self.assumed) for uid, (on, _) in self.held().items()}
        assert placed == held

    @invariant()
    def nodes_have_what_their_pods_leave(self) -> None:
        for name in NODES:
            left = CPU - sum(cpu for on, cpu in self.held().values() if on == name)
            row = self.state.nodes.row_of[name]
            assert self.state.nodes.fits_requests(row, {"cpu": left})
            assert not self.state.nodes.fits_requests(row, {"cpu": left + 1})


TestTwoWatches = TwoWatches.TestCase
TestTwoWatches.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
