"""Preemption against slow models.

Counting on columns finds the candidate that a dry run on every node would find, and the records of
evictions are what a replay of everything that happened says.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deciding import Deciding
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.plugins.default_preemption.candidates import Candidate, select_victims
from mooring.plugins.default_preemption.victims import Victim
from mooring.scheduling.cycle import LiveDryRun
from mooring.scheduling.outcome import FitError
from mooring.testing.builders import cluster, node, pdb, pod, pod_group

Raw = dict[str, Any]

_pods = st.tuples(st.integers(1, 2), st.sampled_from([0, 10, 20]), st.integers(0, 3), st.booleans())
_nodes = st.lists(
    st.tuples(st.integers(2, 6), st.lists(_pods, max_size=4), st.integers(0, 1)),
    min_size=1,
    max_size=5,
)


def _objects(drawn: list[tuple[int, list[tuple[int, int, int, bool]], int]]) -> list[Raw]:
    objects: list[Raw] = []
    for n, (cpus, pods, _) in enumerate(drawn):
        objects.append(node(f"n{n}", cpu=str(cpus), pods=4))
        objects += [
            pod(
                f"n{n}-{i}",
                cpu=str(cpu),
                node=f"n{n}",
                priority=priority,
                labels={"guarded": "yes" if guarded else "no"},
                started=f"2026-01-0{day + 1}T00:00:00Z",
            )
            for i, (cpu, priority, day, guarded) in enumerate(pods)
        ]
    return objects


def _by_dry_runs(deciding: Deciding, raw: Raw) -> list[Candidate]:
    """Return every candidate there is, found by dry runs alone."""
    search, asked = deciding.search(raw)
    dry_run, candidates = LiveDryRun(search, asked, deciding.shared), list[Candidate]()
    kept = search.rejected_with_nominated(asked, search.feasible(asked))
    for row in search.diagnose(asked, kept).resolvable_rows.tolist():
        priority = search.pod.spec.priority
        lower = [p.pod for p in deciding.cluster.pods_on(row) if p.pod.spec.priority < priority]
        with dry_run.trial() as trial:
            for victim in lower:
                trial.remove(victim.uid)
            if not lower or dry_run.rejection(row):
                continue

            def reprieve(back: Victim, row: int = row) -> bool:
                assert isinstance(back, Pod)
                trial.add(back, row)
                if not dry_run.rejection(row):
                    return True
                trial.remove(back.uid)
                return False

            candidates.append(select_victims(row, lower, reprieve, deciding.state.evictions))
    return candidates


def _evict_one_in(deciding: Deciding, every: int) -> None:
    """Begin to evict some of the pods for another preemptor."""
    earlier = parse_pod(pod("earlier", priority=1000))
    placed = [placed.pod for placed in deciding.state.pods]
    deciding.state.begin_evictions(earlier, placed[::every])


@given(
    _nodes,
    st.integers(1, 4),
    st.sampled_from([10, 20, 50, 100]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 2, 5]),
)
def test_the_chosen_candidate_costs_what_the_cheapest_dry_run_costs(
    drawn: list[Any], cpus: int, priority: int, allowed: int | None, evicted: int | None
) -> None:
    objects = _objects(drawn)
    if allowed is not None:
        objects.append(pdb("guard", {"guarded": "yes"}, allowed=allowed))
    deciding = Deciding(*objects)
    for n, (_, _, nominated) in enumerate(drawn):
        if nominated:
            deciding.nominate(pod(f"nominated-{n}", cpu="1", priority=20), f"n{n}")
    if evicted is not None:
        _evict_one_in(deciding, evicted)
    raw = pod("new", cpu=str(cpus), priority=priority)
    outcome = deciding.outcome(raw)
    if not isinstance(outcome, FitError):
        return
    candidates = _by_dry_runs(deciding, raw)
    if outcome.nomination is None:
        assert candidates == []
        return
    chosen = outcome.nomination
    match = [c for c in candidates if deciding.cluster.node_names[c.row] == chosen.node]
    assert len(match) == 1
    assert {v.key for v in match[0].all_pods} == {v.key for v in chosen.victims}
    assert match[0].cost == min(candidate.cost for candidate in candidates)


_in_groups = st.lists(
    st.tuples(
        st.integers(2, 4),
        st.lists(
            st.tuples(st.integers(1, 2), st.sampled_from(["", "w0", "w1", "w2"]), st.booleans()),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=4,
)
"""Nodes: their CPUs, and of each pod the CPUs, its group, and whether a budget matches it."""
_PRIORITIES = {"": 10, "w0": 0, "w1": 10, "w2": 20}


def _with_groups(drawn: list[tuple[int, list[tuple[int, str, bool]]]], allowed: int) -> list[Raw]:
    """Return nodes with pods, of which some are in groups that are disrupted as a whole."""
    objects = [pdb("guard", {"guarded": "yes"}, allowed=allowed)]
    for name, priority in _PRIORITIES.items():
        if name:
            objects.append(pod_group(name, 1, disruption_mode="PodGroup", priority=priority))
    for n, (cpus, pods) in enumerate(drawn):
        objects.append(node(f"n{n}", cpu=str(cpus), pods=4))
        for i, (cpu, group, guarded) in enumerate(pods):
            fields: dict[str, Any] = {"group": group} if group else {}
            labels = {"guarded": "yes" if guarded else "no"}
            objects.append(
                pod(
                    f"n{n}-{i}",
                    cpu=str(cpu),
                    node=f"n{n}",
                    priority=_PRIORITIES[group],
                    labels=labels,
                    ports=[80] if i == 0 else [],
                    started=f"2026-01-0{i + 1}T00:00:0{n}Z",
                    **fields,
                )
            )
    return objects


@dataclass(frozen=True)
class Together:
    """Pods that leave together, with their rows."""

    pods: tuple[tuple[Pod, int], ...]
    is_group: bool

    @property
    def importance(self) -> tuple[int, bool, int, float]:
        """The most important has the smallest."""
        priority = self.pods[0][0].spec.priority
        earliest = min(pod.started or 0.0 for pod, _ in self.pods)
        return (-priority, not self.is_group, -len(self.pods), earliest)


def _units(deciding: Deciding) -> list[Together]:
    """Return what leaves together, on whatever nodes."""
    found: dict[str, list[tuple[Pod, int]]] = {}
    for placed in deciding.state.pods:
        name = placed.pod.scheduling_group or placed.pod.uid
        found.setdefault(name, []).append((placed.pod, placed.row))
    return [Together(tuple(ps), ps[0][0].scheduling_group is not None) for ps in found.values()]


def _by_budget(units: list[Together], allowed: int) -> list[tuple[Together, int]]:
    """Return the units in the order in which they are reprieved, with their violations."""
    found = list[tuple[Together, int]]()
    for unit in sorted(units, key=lambda unit: unit.importance):
        guarded = sum(gone.labels["guarded"] == "yes" for gone, _ in unit.pods)
        found.append((unit, min(guarded, max(guarded - allowed, 0))))
        allowed = max(allowed - guarded, 0)
    return sorted(found, key=lambda each: not each[1])


def _slow_candidate(
    dry_run: LiveDryRun, row: int, lower: list[Together], allowed: int
) -> tuple[Any, set[str]] | None:
    """Return the cost and the victims on a row, as SelectVictimsOnNode of 1.37 finds them."""
    here = [unit for unit in lower if any(at == row for _, at in unit.pods)]
    victims, violated = list[Pod](), 0
    with dry_run.trial() as trial:
        for unit in here:
            for gone, _ in unit.pods:
                trial.remove(gone.uid)
        if not here or dry_run.rejection(row):
            return None
        for unit, violations in _by_budget(here, allowed):
            for back, at in unit.pods:
                trial.add(back, at)
            if dry_run.rejection(row):
                victims += (gone for gone, _ in unit.pods)
                violated += violations
                for gone, _ in unit.pods:
                    trial.remove(gone.uid)
    highest = max(gone.spec.priority for gone in victims)
    earliest = min(gone.started or 0.0 for gone in victims if gone.spec.priority == highest)
    total = sum(gone.spec.priority + 2**31 for gone in victims)
    return (violated, highest, total, len(victims), -earliest), {gone.key for gone in victims}


@given(_in_groups, st.integers(1, 3), st.integers(0, 2), st.sampled_from([[], [80]]))
def test_groups_that_are_disrupted_as_a_whole_are_victims_as_in_a_slow_search(
    drawn: list[Any], cpus: int, allowed: int, ports: list[int]
) -> None:
    deciding = Deciding(*_with_groups(drawn, allowed))
    raw = pod("new", cpu=str(cpus), priority=15, ports=ports)
    outcome = deciding.outcome(raw)
    if not isinstance(outcome, FitError):
        return
    search, asked = deciding.search(raw)
    kept = search.rejected_with_nominated(asked, search.feasible(asked))
    lower = [unit for unit in _units(deciding) if unit.pods[0][0].spec.priority < 15]
    expected = dict[str, tuple[Any, set[str]]]()
    for row in search.diagnose(asked, kept).resolvable_rows.tolist():
        found = _slow_candidate(LiveDryRun(search, asked, deciding.shared), row, lower, allowed)
        if found is not None:
            expected[deciding.cluster.node_names[row]] = found
    if outcome.nomination is None:
        assert expected == {}
        return
    chosen = outcome.nomination
    cost, victims = expected[chosen.node]
    assert {victim.key for victim in chosen.victims} == victims
    assert cost == min(cost for cost, _ in expected.values())


VICTIMS, PREEMPTORS = ("v0", "v1", "v2"), ("p0", "p1")
NODES, BUDGETS = ("n0", "n1"), ("b0", "b1")
victim_names, preemptor_names = st.sampled_from(VICTIMS), st.sampled_from(PREEMPTORS)


@dataclass
class Placed:
    """A pod on a node, which may be a victim."""

    pod: Pod
    assumed: bool
    evicting: bool = False


@dataclass
class Charge:
    """A begun eviction of the pod of that uid, as one budget sees it."""

    uid: str
    counted: bool
    left: bool = False
    written: bool = False

    @property
    def over(self) -> bool:
        return self.left and (self.written or not self.counted)


class Evicting(RuleBasedStateMachine):
    """Pods, budgets and preemptions in any order; the model looks for everything by scanning."""

    def __init__(self) -> None:
        super().__init__()
        self.state = cluster(*(node(name) for name in NODES))
        self.placed: dict[Uid, Placed] = {}
        self.awaited: dict[str, set[str]] = {}
        self.charges: dict[str, list[Charge]] = {}
        self.budgets: dict[str, int] = {}
        self.exhausted: set[str] = set()
        self.uids = 0
        self.pending: dict[str, Pod] = {}
        """Pods whose binding was called off, by name: they may come back."""

    def parsed(self, name: str, *, uid: Uid | None = None, **fields: Any) -> Pod:
        """Return a pod, which all budgets match; every other one is ready on its node."""
        raw = pod(name, labels={"app": "web"}, **fields)
        if uid is None:
            self.uids += 1
            uid = Uid(f"uid-{self.uids}")
        raw["metadata"]["uid"] = uid
        if "node" in fields and uid[-1] in "02468":
            raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        return parse_pod(raw)

    def preemptor(self, name: str) -> Pod:
        return self.parsed(name, uid=Uid(name), priority=100)

    def one_of_the_pods(self, data: st.DataObject) -> Placed:
        """Return a placed pod; another one may have its name."""
        return self.placed[data.draw(st.sampled_from(sorted(self.placed)))]

    def left(self, uid: Uid) -> None:
        """Note that the pod is on no node any more."""
        gone = self.placed.pop(uid, None)
        if gone is None:
            return
        for waited in self.awaited.values():
            waited.discard(gone.pod.uid)
        for key, charges in self.charges.items():
            for charge in charges:
                charge.left |= charge.uid == gone.pod.uid
            if gone.assumed:
                self.charges[key] = [c for c in charges if c.uid != gone.pod.uid]

    @rule(name=victim_names, on=st.sampled_from(NODES), same=st.booleans())
    def pod_assumed(self, name: str, on: str, *, same: bool) -> None:
        """Assume a pod that returns after its binding was called off, or another of its name."""
        back = self.pending.pop(name, None)
        waiting = self.parsed(name, uid=back.uid if back is not None and same else None)
        self.state.assume(waiting, self.state.nodes.row_of[on])
        self.left(waiting.uid)
        self.placed[waiting.uid] = Placed(waiting, assumed=True)

    @rule(name=victim_names, on=st.sampled_from(NODES))
    def another_pod_seen_bound(self, name: str, on: str) -> None:
        """Show a pod bound, perhaps before the end of an earlier one of its name is seen."""
        seen = self.parsed(name, node=on)
        self.state.put(Kind.POD, seen.uid, seen)
        self.placed[seen.uid] = Placed(seen, assumed=False)

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), on=st.sampled_from(NODES))
    def pod_seen_bound(self, data: st.DataObject, on: str) -> None:
        """Confirm an assumed pod, perhaps elsewhere."""
        known = self.one_of_the_pods(data)
        before = self.state.pods.get(known.pod.uid)
        assert before is not None
        stays, pod = before.pod.node_name == on, known.pod
        seen = self.parsed(pod.name, uid=pod.uid, node=on, terminating=pod.terminating)
        self.state.put(Kind.POD, seen.uid, seen)
        if stays:
            known.pod, known.assumed = seen, False
            return
        self.left(seen.uid)
        self.placed[seen.uid] = Placed(seen, assumed=False)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def pod_terminates(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        placed = self.state.pods.get(known.pod.uid)
        assert placed is not None
        on = placed.pod.node_name
        known.pod = self.parsed(known.pod.name, uid=known.pod.uid, node=on, terminating=True)
        known.assumed = False
        self.state.put(Kind.POD, known.pod.uid, known.pod)
        for charge in (c for charges in self.charges.values() for c in charges):
            charge.left |= charge.uid == known.pod.uid

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def a_pod_is_gone(self, data: st.DataObject) -> None:
        self.pod_gone(self.one_of_the_pods(data).pod.uid)

    def pod_gone(self, uid: Uid) -> None:
        self.state.delete(Kind.POD, uid)
        self.left(uid)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def binding_ends_without_success(self, data: st.DataObject) -> None:
        """End a binding that failed, or was called off at Permit or PreBind."""
        known = self.one_of_the_pods(data)
        self.state.forget(known.pod)
        if known.assumed:
            self.pending[known.pod.name] = known.pod
            self.left(known.pod.uid)
        else:  # the eviction has failed: its preemptors lose their nomination and are tried again
            uid = known.pod.uid
            self.stays(known, {p for p, waited in self.awaited.items() if uid in waited})

    def stays(self, known: Placed, withdrawn: Iterable[str] = ()) -> None:
        """Note that the pod is not evicted any more, and stays on its node."""
        uid = known.pod.uid
        for preemptor in withdrawn:
            del self.awaited[preemptor]
        for waited in self.awaited.values():
            waited.discard(uid)
        if known.evicting:
            known.evicting = False
            self.charges = {k: [c for c in v if c.uid != uid] for k, v in self.charges.items()}

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def eviction_fails(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        waited = {p for p, victims in self.awaited.items() if known.pod.uid in victims}
        preemptors = self.state.abandon_eviction(known.pod)
        assert {p.name for p in preemptors} == waited
        self.stays(known)

    @rule(name=preemptor_names, gone=st.sets(victim_names), data=st.data())
    def preemption_begins(self, name: str, gone: set[str], data: st.DataObject) -> None:
        known = sorted(self.placed)
        victims = data.draw(st.sets(st.sampled_from(known))) if known else set()
        preemptor = self.preemptor(name)
        self.state.nominate(preemptor, NODES[0])
        there = [self.placed[uid] for uid in sorted(victims)]
        others = [self.parsed(v) for v in sorted(gone)]
        new = [p for p in there if not p.pod.terminating and not p.evicting]
        begun = self.state.begin_evictions(preemptor, [*(p.pod for p in there), *others])
        assert [v.uid for v in begun] == [p.pod.uid for p in new]
        self.awaited[name] = {p.pod.uid for p in there}
        for placed in new:
            placed.evicting = True
            for key in self.budgets:
                # A pod is charged once, also if it was evicted from another node before.
                charged = [c for c in self.charges.get(key, ()) if c.uid != placed.pod.uid]
                self.charges[key] = [*charged, Charge(placed.pod.uid, placed.pod.ready)]

    @rule(name=preemptor_names, how=st.sampled_from(["withdrawn", "assumed"]))
    def preemptor_waits_no_more(self, name: str, how: str) -> None:
        preemptor = self.preemptor(name)
        if how == "withdrawn":
            self.state.withdraw(preemptor.uid)
        else:
            self.state.assume(preemptor, 0)
            self.state.forget(preemptor)
        self.awaited.pop(name, None)

    @rule(name=st.sampled_from(BUDGETS), allowed=st.integers(0, 2))
    def budget_written(self, name: str, allowed: int) -> None:
        raw = pdb(name, {"app": "web"}, allowed=allowed)
        self.state.put(
            Kind.POD_DISRUPTION_BUDGET, f"default/{name}", parse_object(Kind(raw["kind"]), raw)
        )
        self.budgets[name] = allowed
        self.status_written(name)

    @rule(name=st.sampled_from(BUDGETS))
    def budget_deleted(self, name: str) -> None:
        self.state.delete(Kind.POD_DISRUPTION_BUDGET, f"default/{name}")
        self.budgets.pop(name, None)
        self.status_written(name)

    def status_written(self, name: str) -> None:
        self.exhausted.discard(name)
        for charge in self.charges.get(name, ()):
            charge.written = True

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def budget_is_exhausted(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        self.state.eviction_refused(known.pod, by_budget=True)
        newer = {
            key
            for key, charges in self.charges.items()
            if any(c.uid == known.pod.uid and c.written and not c.left for c in charges)
        }
        self.exhausted |= self.budgets.keys() - newer

    @invariant()
    def evicting_pods_are_those_whose_eviction_has_not_ended(self) -> None:
        expected = {p.pod.uid for p in self.placed.values() if p.evicting}
        found = {p.pod.uid for p in self.state.pods if self.state.evictions.evicting(p.pod)}
        assert found == expected
        columns = self.state.pod_columns
        marked = zip(columns.pods, columns.evicting.tolist(), strict=True)
        assert {p.uid for p, evicting in marked if p is not None and evicting} == expected

    @invariant()
    def preemptors_await_victims_that_are_still_on_a_node(self) -> None:
        for name in PREEMPTORS:
            awaits = self.state.evictions.awaits_victims(self.preemptor(name))
            assert awaits == bool(self.awaited.get(name))

    @invariant()
    def budgets_allow_what_their_status_says_without_the_charges_it_does_not_show(self) -> None:
        for name, allowed in self.budgets.items():
            budget = self.state.objects.of(Kind.POD_DISRUPTION_BUDGET)[f"default/{name}"]
            charged = [c for c in self.charges.get(name, ()) if not c.over]
            expected = 0 if name in self.exhausted else allowed - len(charged)
            assert self.state.evictions.disruptions_allowed(budget) == expected

    def teardown(self) -> None:
        """Check that nothing is recorded once all pods have gone and all budgets are written."""
        for uid in tuple(self.placed):
            self.pod_gone(uid)
        for name in BUDGETS:
            self.budget_written(name, 1)
        self.evicting_pods_are_those_whose_eviction_has_not_ended()
        self.preemptors_await_victims_that_are_still_on_a_node()
        for name in BUDGETS:
            budget = self.state.objects.of(Kind.POD_DISRUPTION_BUDGET)[f"default/{name}"]
            assert self.state.evictions.disruptions_allowed(budget) == 1


TestEvicting = Evicting.TestCase
TestEvicting.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
