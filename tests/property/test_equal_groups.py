"""Equal pod groups are tried one after the other, and none that fits is left waiting.

What fits is found by trying every placement, and not by the queue or the search for nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, count, product

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mooring.groups.model.pod_group import parse_pod_group
from mooring.groups.search.group_decision import GroupDecision, place_group
from mooring.groups.search.members import GroupBackoffs, group_of, take_members
from mooring.model.events import Kind
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.result_cache import ResultCache
from mooring.testing.builders import node, pod, pod_group, uid_of
from scheduler_states import put_profile, scheduler_state, silent_pod_enqueuer

NODES = {"a": 4, "b": 3}
"""CPUs of each node."""
KINDS = ((1, 1), (2, 2), (2, 1), (3, 1), (1, 1, 1, 1))
"""CPUs of the members."""
SOME_GROUPS = st.tuples(st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 3))
"""The CPUs of their members, their minimum, and how many groups."""
MOST_ATTEMPTS = 200


@dataclass(eq=False)
class Group:
    """What the test knows of a group: the CPUs of its members without a node, by name."""

    name: str
    kind: tuple[int, ...]
    minimum: int
    waiting: dict[str, int] = field(default_factory=dict)
    placed: int = 0
    changed: bool = True
    """Whether it is to be tried for itself, because it is new or has changed."""
    untried: bool = False
    """Whether it has not been tried since one of its members got a node or ended there."""


class EqualGroups(RuleBasedStateMachine):
    """Groups come and change, pods of other schedulers come and go, and the loop works."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.numbers = count()
        nodes = (node(n, cpu=str(cpu)) for n, cpu in NODES.items())
        self.scheduler = scheduler_state(*nodes, clock=lambda: self.now)
        self.pipeline = put_profile(self.scheduler).pipeline
        self.state, self.queue = self.scheduler.state, self.scheduler.queue
        self.cache, self.backoffs = ResultCache(self.scheduler.cluster), GroupBackoffs()
        self.pod_enqueuer = silent_pod_enqueuer(self.scheduler)
        self.state.on_events(self.pod_enqueuer.on_events)
        self.groups: dict[str, Group] = {}
        self.running: dict[str, tuple[str, int]] = {}
        """The node and the CPUs of each pod on a node, by its name."""

    def free(self) -> dict[str, int]:
        taken = dict.fromkeys(NODES, 0)
        for at, cpu in self.running.values():
            taken[at] += cpu
        return {name: cpu - taken[name] for name, cpu in NODES.items()}

    def fits(self, group: Group) -> bool:
        """Return whether any placement of as many members as the group needs exists."""
        needed, free = max(group.minimum - group.placed, 1), self.free()
        return any(
            all(sum(c for c, at in zip(cpus, on, strict=True) if at == n) <= free[n] for n in NODES)
            for cpus in combinations(group.waiting.values(), needed)
            for on in product(NODES, repeat=needed)
        )

    @initialize(groups=st.lists(SOME_GROUPS, min_size=1, max_size=3))
    def groups_wait_for_full_nodes(self, groups: list[tuple[tuple[int, ...], int, int]]) -> None:
        for at, cpus in NODES.items():
            for _ in range(cpus):
                self.a_pod_of_another_scheduler_comes(at, 1)
        for some in groups:
            self.groups_come(some)
        self.the_loop_works()

    @rule(some=SOME_GROUPS)
    def groups_come(self, some: tuple[tuple[int, ...], int, int]) -> None:
        cpus, minimum, number = some
        for _ in range(number):
            group = Group(f"g{next(self.numbers)}", cpus, minimum)
            self.groups[group.name] = group
            self.define(group)
            for i, cpu in enumerate(cpus):
                raw = pod(f"{group.name}-{i}", group=group.name, cpu=str(cpu), labels={"i": str(i)})
                group.waiting[f"{group.name}-{i}"] = cpu
                self.pod_enqueuer.pending(parse_pod(raw))

    def define(self, group: Group) -> None:
        defined = parse_pod_group(pod_group(group.name, group.minimum))
        self.state.put(Kind.POD_GROUP, f"default/{group.name}", defined)

    @rule(at=st.sampled_from(tuple(NODES)), cpu=st.integers(1, 3))
    def a_pod_of_another_scheduler_comes(self, at: str, cpu: int) -> None:
        if self.free()[at] >= cpu:
            other = parse_pod(pod(f"x{next(self.numbers)}", cpu=str(cpu), node=at))
            self.running[other.name] = at, cpu
            self.state.put(Kind.POD, other.uid, other)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), number=st.integers(1, 3))
    def pods_end(self, data: st.DataObject, number: int) -> None:
        for _ in range(min(number, len(self.running))):
            self.a_pod_ends(data.draw(st.sampled_from(sorted(self.running))))
        self.the_loop_works()

    def a_pod_ends(self, name: str) -> None:
        del self.running[name]
        for group in self.groups.values():
            if name.startswith(f"{group.name}-"):
                group.placed -= 1
                group.untried = True
        self.state.delete(Kind.POD, uid_of(name))

    @precondition(lambda self: any(group.waiting for group in self.groups.values()))
    @rule(data=st.data())
    def a_member_without_a_node_is_deleted(self, data: st.DataObject) -> None:
        group = self.a_waiting_group(data)
        name = data.draw(st.sampled_from(sorted(group.waiting)))
        del group.waiting[name]
        group.changed = True
        self.pod_enqueuer.gone(uid_of(name))

    @precondition(lambda self: any(group.waiting for group in self.groups.values()))
    @rule(data=st.data(), minimum=st.integers(1, 3))
    def the_minimum_of_a_group_changes(self, data: st.DataObject, minimum: int) -> None:
        group = self.a_waiting_group(data)
        group.minimum, group.changed = minimum, True
        self.define(group)

    def a_waiting_group(self, data: st.DataObject) -> Group:
        names = sorted(group.name for group in self.groups.values() if group.waiting)
        return self.groups[data.draw(st.sampled_from(names))]

    @rule()
    def the_loop_works(self) -> None:
        """Work to the end: no group waits that fits, and few were tried in vain."""
        in_vain = 0
        groups = self.groups.items()
        alone = {name for name, g in groups if g.changed or g.untried or g.placed > 0}
        waiting = [(g.minimum, sorted(g.waiting.values())) for g in self.groups.values()]
        equal = {(minimum, *cpus, cpu) for minimum, cpus in waiting for cpu in cpus}
        for attempt, placed in enumerate(self.attempts()):
            assert attempt < MOST_ATTEMPTS
            in_vain += not placed
        for group in self.groups.values():
            group.changed = False
            if group.placed + len(group.waiting) >= group.minimum:
                assert not group.waiting or not self.fits(group)
        # Of groups that are equal, one is tried in vain for each spec of their members. A group
        # that was placed in part is tried once more for the others, and one that lacks members is
        # told so by itself, before any node is looked at.
        alone |= {name for name, g in self.groups.items() if g.placed > 0}
        alone |= {name for name, g in self.groups.items() if g.placed + len(g.waiting) < g.minimum}
        assert in_vain <= len(alone) + len(equal)

    def attempts(self) -> Iterator[bool]:
        """Run one attempt after the other; yield whether each placed members."""
        while True:
            while self.queue.run_hints(self.now):
                pass
            queued = self.queue.pop(self.now)
            if queued is not None:
                group = group_of(queued.pod, self.pipeline, self.scheduler.cluster)
                assert group is not None
                if not self.backoffs.postpone(group, queued, self.scheduler, self.now):
                    taken = take_members(group, queued, self.scheduler, self.now)
                    yield self.attempt([*taken.values()])
            elif self.queue.counts()[SubQueue.BACKOFF]:
                self.now += 11.0
            else:
                return

    def assume(self, rows: Mapping[Uid, int], _devices: object) -> None:
        for uid, row in rows.items():
            queued = self.queue.get(uid)
            assert queued is not None
            assume_and_reserve(queued.pod, row, self.pipeline, self.state)

    def attempt(self, members: list[QueuedPod]) -> bool:
        group = group_of(members[0].pod, self.pipeline, self.scheduler.cluster)
        assert group is not None
        decision = GroupDecision({}, plugins=frozenset(("GangScheduling",)))
        pods = [member.pod for member in members]
        self.groups[group.key.name].untried = False
        if group.incomplete is None:
            about = self.pipeline, self.cache
            decision = place_group(group, pods, *about, self.assume, seed=0)
        for member in members:
            if (row := decision.rows.get(member.pod.uid)) is None:
                member.decided_by_specs = decision.by_specs
                self.queue.add_unschedulable(member, decision.plugins, self.now)
            else:
                self.bound(member.pod, self.state.nodes.names[row])
                self.queue.assumed(member, self.now)
                self.queue.done(member, self.now)
        return bool(decision.rows)

    def bound(self, member: Pod, at: str) -> None:
        group = self.groups[member.scheduling_group or ""]
        cpu = group.waiting.pop(member.name)
        group.placed += 1
        group.untried = True
        self.running[member.name] = at, cpu
        self.state.announce(member)
        raw = pod(member.name, group=group.name, cpu=str(cpu), node=at, labels=dict(member.labels))
        self.state.put(Kind.POD, member.uid, parse_pod(raw))


TestEqualGroups = EqualGroups.TestCase
TestEqualGroups.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
