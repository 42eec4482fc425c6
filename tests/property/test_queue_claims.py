"""Devices of claims that queues use, after random events: each count equals a recount."""

from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from device_builders import device_claim, request
from mooring.claims.model.device_classes import CLASS_PREFIX
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import claim_keys, parse_pod
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.quota.usage import used_at
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import namespace, node, pod, queue_object

DEVICES: Final = f"{CLASS_PREFIX}gpu"
LEAVES: Final = ("a", "b")
CLAIMS: Final = ("c1", "c2", "c3")
PODS: Final = tuple(f"p{number}" for number in range(5))

leaves, claims, names = map(st.sampled_from, (LEAVES, CLAIMS, PODS))


class QueueClaims(RuleBasedStateMachine):
    """Pods that share claims come, change and end; claims and queues come and go."""

    @initialize()
    def begin(self) -> None:
        self.state = ClusterState()
        self.asked: dict[str, int] = {}
        for raw in (node("n1"), namespace("default"), queue_object("all", {DEVICES: 9})):
            self.put(raw)
        for name in LEAVES:
            self.make(name, 2)

    def put(self, raw: dict[str, Any]) -> None:
        kind = Kind(raw["kind"])
        self.state.put(kind, object_key(kind, raw), parse_object(kind, raw))

    @rule(name=leaves, lends=st.integers(0, 2))
    def make(self, name: str, lends: int) -> None:
        quota = {"nominalQuota": 2, "lendingLimit": lends}
        self.put(queue_object(name, {DEVICES: quota}, parent="all"))

    @rule(name=leaves)
    def end_queue(self, name: str) -> None:
        self.state.delete(Kind.QUEUE, name)

    @rule(name=names, of=leaves, made=claims)
    def place(self, name: str, of: str, made: str) -> None:
        """Place the pod, or show it with another label and another claim of its template."""
        if of not in self.state.queues.states:
            return  # a pod on a node stays in its queue then
        number = int(name.removeprefix("p"))
        entries = [
            {"name": "x", "resourceClaimName": CLAIMS[number % 3]},
            {"name": "y", "resourceClaimName": CLAIMS[number % 2]},
            {"name": "z", "resourceClaimTemplateName": "t"},
        ]
        raw = pod(name, node="n1", labels={QUEUE_LABEL: of}, spec={"resourceClaims": entries})
        raw["status"] = {"resourceClaimStatuses": [{"name": "z", "resourceClaimName": made}]}
        self.put(raw)

    @rule(name=names)
    def end(self, name: str) -> None:
        self.state.delete(Kind.POD, parse_pod(pod(name)).uid)

    @rule(name=claims, count=st.integers(1, 3))
    def show(self, name: str, count: int) -> None:
        self.asked[f"default/{name}"] = count
        self.put(device_claim(name, request(count=count)))

    @rule(name=claims)
    def delete(self, name: str) -> None:
        self.asked.pop(f"default/{name}", None)
        self.state.delete(Kind.RESOURCE_CLAIM, f"default/{name}")

    @rule(gone=st.lists(names, unique=True))
    def leave_out(self, gone: list[str]) -> None:
        """Leave pods out, both as reclaim counts and in a trial; both change nothing in the end."""
        uids = {parse_pod(pod(name)).uid for name in gone}
        placed = [each.pod for each in self.state.pods if each.pod.uid in uids]
        usage = used_at(self.state.pod_columns.slots_of(placed), ClusterView(self.state))
        with self.state.queues.without(usage):
            self.recount(without=uids)
        self.counts_are_those_of_a_recount()
        with self.state.trial() as trial:
            for uid in uids:
                trial.remove(uid)
            self.recount(without=uids)

    @invariant()
    def counts_are_those_of_a_recount(self) -> None:
        if hasattr(self, "state"):
            self.recount()

    def recount(self, without: Any = ()) -> None:
        states, total = self.state.queues.states, 0
        for name in (each for each in LEAVES if each in states):
            pods = [placed.pod for placed in self.state.pods if placed.pod.uid not in without]
            named = {key for p in pods if p.labels[QUEUE_LABEL] == name for key in claim_keys(p)}
            used = sum(self.asked.get(key, 0) for key in named)
            assert states[name].used[DEVICES] == used
            total += max(0, used - states[name].guaranteed[DEVICES])
        assert states["all"].used[DEVICES] == total


TestQueueClaims = QueueClaims.TestCase
TestQueueClaims.settings = settings(max_examples=60, stateful_step_count=30)
