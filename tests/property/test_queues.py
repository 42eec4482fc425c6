"""Queues after random events: counts equal a recount, and no preemption takes what is not borrowed.

The slow model computes the quotas of a tree from its written specs each time.
"""

from dataclasses import replace
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deciding import Deciding
from mooring.framework.post_filter import Nomination
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.quota.model.queue import QUEUE_LABEL, Preempts
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.state.cluster import ClusterState
from mooring.testing.builders import namespace, node, pod, queue_object
from slow_queues import SlowQueues

GPU: Final = "nvidia.com/gpu"
LEAVES: Final = ("a", "b", "c", "d")
PARENTS: Final = {"a": "root", "b": "root", "mid": "root", "c": "mid", "d": "mid"}
NODES: Final = ("n1", "n2", "n3")

leaves = st.sampled_from(LEAVES)
amounts = st.integers(1, 4)
limits = st.sampled_from((None, None, 0, 2))
policies = st.sampled_from(("Any", "LowerPriority", "Never"))


def model_of(state: ClusterState) -> SlowQueues:
    """Return a slow model of the queues and the pods of the state."""
    queues = state.objects.of(Kind.QUEUE)
    return SlowQueues(queues, [placed.pod for placed in state.pods], GPU)


class Queues(RuleBasedStateMachine):
    """Pods of queues come and end, quotas change, and preemption is carried out at once."""

    @initialize()
    def begin(self) -> None:
        self.deciding = Deciding(*(node(n, cpu="64", resources={GPU: 6}) for n in NODES))
        self.state = self.deciding.state
        self.number = 0
        self.waiting: dict[Uid, dict[str, Any]] = {}
        self.put(namespace("default"))
        self.put(queue_object("root", {GPU: 2}))
        for name, parent in PARENTS.items():
            self.put(queue_object(name, {} if name == "mid" else {GPU: 4}, parent=parent))

    def put(self, raw: dict[str, Any]) -> None:
        kind = Kind(raw["kind"])
        self.state.put(kind, object_key(kind, raw), parse_object(kind, raw))

    @rule(
        name=leaves, nominal=st.integers(0, 8), borrows=limits, lends=limits,
        reclaims=policies, within=policies,
    )  # fmt: skip
    def change_quota(
        self,
        name: str,
        nominal: int,
        borrows: int | None,
        lends: int | None,
        reclaims: str,
        within: str,
    ) -> None:
        quota: dict[str, Any] = {"nominalQuota": nominal}
        if borrows is not None:
            quota["borrowingLimit"] = borrows
        if lends is not None:
            quota["lendingLimit"] = lends
        preemption = {"reclaimWithinCohort": reclaims, "withinQueue": within}
        self.put(queue_object(name, {GPU: quota}, parent=PARENTS[name], preemption=preemption))

    @rule(name=leaves, gpu=amounts, priority=st.integers(0, 2))
    def schedule(self, name: str, gpu: int, priority: int) -> None:
        self.number += 1
        labels, day = {QUEUE_LABEL: name}, f"2026-01-01T00:00:00.{self.number:06}Z"
        raw = pod(
            f"p{self.number}", requests={GPU: gpu}, labels=labels, priority=priority, created=day
        )
        victims = self.attempt(raw)
        for victim in victims:  # who was evicted takes nothing back from who evicted it
            again = raw_of(victim)
            outcome = self.deciding.outcome(again)
            if isinstance(outcome, FitError) and isinstance(outcome.nomination, Nomination):
                taken = {pod.name for pod in outcome.nomination.victims}
                assert raw["metadata"]["name"] not in taken

    def attempt(self, raw: dict[str, Any]) -> list[Pod]:
        """Carry out the decision about the pod; return the pods that were evicted for it."""
        one, model = parse_pod(raw), model_of(self.state)
        name, gpu = one.labels[QUEUE_LABEL], one.spec.demand.resources[GPU]
        outcome = self.deciding.outcome(raw)
        if isinstance(outcome, ScheduleResult):
            assert model.available(name) >= gpu
            self.state.assume(one, outcome.row)
            return []
        if not isinstance(outcome.nomination, Nomination):
            self.no_borrower_is_enough(model, one)
            return []
        victims = list(outcome.nomination.victims)
        leaving = {pod.uid for pod in model.pods if pod.terminating}
        new = [victim for victim in victims if victim.uid not in leaving]
        self.no_share_is_lost(model, one, leaving, new)
        self.state.nominate(one, outcome.nomination.node, victims=victims)
        for victim in new:
            self.state.put(Kind.POD, victim.uid, replace(victim, terminating=True))
        self.waiting[one.uid] = raw
        return new

    def no_share_is_lost(
        self, model: SlowQueues, one: Pod, leaving: set[Uid], victims: list[Pod]
    ) -> None:
        """Assert that the victims' queues keep their quota once all that leave are gone."""
        before, after = model_of(self.state), model_of(self.state)
        before.pods = [pod for pod in model.pods if pod.uid not in leaving]
        gone = leaving | {victim.uid for victim in victims}
        after.pods = [pod for pod in model.pods if pod.uid not in gone]
        name = one.labels[QUEUE_LABEL]
        for victim in victims:
            its = victim.labels[QUEUE_LABEL]
            if its == name:
                assert victim.spec.priority <= one.spec.priority
                continue
            for each in (q for q in model.path(its) if q not in model.path(name)):
                assert before.used(each) > before.nominal(each)
                assert after.used(each) >= after.nominal(each)

    def no_borrower_is_enough(self, model: SlowQueues, one: Pod) -> None:
        """Assert that the end of no single pod that uses borrowed quota would be enough for it."""
        name, gpu = one.labels[QUEUE_LABEL], one.spec.demand.resources[GPU]
        leave = self.waiting or any(pod.terminating for pod in model.pods)
        if leave or model.queues[name].reclaims is not Preempts.ANY:
            return
        for other in model.pods:
            after = model_of(self.state)
            after.pods = [pod for pod in model.pods if pod is not other]
            its = model.path(other.labels[QUEUE_LABEL])
            sides = [each for each in its if each not in model.path(name)]
            own = [each for each in model.path(name) if each not in its]
            if not sides or not own or after.available(name) < gpu:
                continue
            entitled = model.used(own[-1]) + gpu <= model.nominal(own[-1])
            borrows = all(model.used(each) > model.nominal(each) for each in sides)
            keeps = all(after.used(each) >= after.nominal(each) for each in sides)
            if entitled and borrows and keeps:
                assert not any(self.room(node, after) >= gpu for node in NODES), other.name

    def room(self, node: str, model: SlowQueues) -> int:
        """Return how many GPUs of the node the pods of the model leave free."""
        there = (pod for pod in model.pods if pod.node_name == node)
        return 6 - sum(pod.spec.demand.resources[GPU] for pod in there)

    @rule()
    def all_that_leave_are_gone(self) -> None:
        """Nominated pods get their nodes then, unless quotas have changed meanwhile."""
        for placed in list(self.state.pods):
            if placed.pod.terminating:
                self.state.delete(Kind.POD, placed.pod.uid)
        waiting, self.waiting = self.waiting, {}
        for uid, raw in waiting.items():
            outcome = self.deciding.outcome(raw)
            self.state.withdraw(uid)
            if isinstance(outcome, ScheduleResult):
                self.state.assume(parse_pod(raw), outcome.row)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if uids := [placed.pod.uid for placed in self.state.pods]:
            self.state.delete(Kind.POD, data.draw(st.sampled_from(uids)))

    @rule(data=st.data())
    def begin_to_end(self, data: st.DataObject) -> None:
        if pods := [placed.pod for placed in self.state.pods]:
            one = data.draw(st.sampled_from(pods))
            self.state.put(Kind.POD, one.uid, replace(one, terminating=True))

    @rule(data=st.data(), name=leaves)
    def relabel(self, data: st.DataObject, name: str) -> None:
        if placed := list(self.state.pods):
            one = data.draw(st.sampled_from(placed)).pod
            labels = {**one.labels, QUEUE_LABEL: name}
            self.state.put(Kind.POD, one.uid, replace(one, labels=labels))

    @rule(data=st.data())
    def try_without(self, data: st.DataObject) -> None:
        """Leave some pods out in a trial, which changes nothing in the end."""
        if uids := [placed.pod.uid for placed in self.state.pods]:
            gone = data.draw(st.lists(st.sampled_from(uids), unique=True))
            with self.state.trial() as trial:
                for uid in gone:
                    trial.remove(uid)
                self.same_counts(model_of(self.state))

    @rule(name=leaves)
    def make_anew(self, name: str) -> None:
        before = self.state.objects.of(Kind.QUEUE)[name]
        self.state.delete(Kind.QUEUE, name)
        assert name not in self.state.queues.states
        self.state.put(Kind.QUEUE, name, before)

    @invariant()
    def counts_are_those_of_a_recount(self) -> None:
        if hasattr(self, "state"):
            self.same_counts(model_of(self.state))

    def same_counts(self, model: SlowQueues) -> None:
        states = self.state.queues.states
        assert states.keys() == model.queues.keys()
        for name, found in states.items():
            assert found.nominal[GPU] == model.nominal(name)
            assert found.used[GPU] == model.used(name)
            assert found.available(GPU) == model.available(name)


def raw_of(one: Pod) -> dict[str, Any]:
    """Return the manifest of a new pod like this one, which its controller makes."""
    return pod(
        f"{one.name}-again",
        requests={GPU: one.spec.demand.resources[GPU]},
        labels=dict(one.labels),
        priority=one.spec.priority,
        created="2026-02-01T00:00:00Z",
    )


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=40, stateful_step_count=30)
