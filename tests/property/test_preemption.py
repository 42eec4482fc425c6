"""Counting on columns finds the plan that trying every node would find."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deciding import Deciding
from mooring.engine.cycle import LiveDryRun
from mooring.engine.outcome import FitError
from mooring.model.pod import Pod, parse_pod
from mooring.plugins.default_preemption.candidates import Candidate, select_victims
from mooring.testing.builders import node, pdb, pod

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


def _tried_everywhere(deciding: Deciding, raw: Raw) -> list[Candidate]:
    """Every plan there is, found by trials alone."""
    search, asked = deciding.search(raw)
    dry_run, plans = LiveDryRun(search, asked), list[Candidate]()
    kept = search.rejected_with_nominated(asked, search.feasible(asked))
    for row in search.diagnose(asked, kept).resolvable_rows.tolist():
        priority = search.pod.shape.priority
        lower = [p.pod for p in deciding.cluster.pods_on(row) if p.pod.shape.priority < priority]
        with dry_run.trial() as trial:
            for victim in lower:
                trial.remove(victim.key)
            if not lower or dry_run.rejection(row):
                continue

            def keeps(back: Pod, row: int = row) -> bool:
                trial.add(back, row)
                if not dry_run.rejection(row):
                    return True
                trial.remove(back.key)
                return False

            plans.append(select_victims(row, lower, keeps, deciding.state.evictions))
    return plans


def _evict_one_in(deciding: Deciding, every: int) -> None:
    """Some of the pods are on their way out for somebody else."""
    earlier = parse_pod(pod("earlier", priority=1000))
    placed = [placed.pod for placed in deciding.state.pods]
    deciding.state.evictions.begun(earlier, placed[::every])


@given(
    _nodes,
    st.integers(1, 4),
    st.sampled_from([10, 20, 50, 100]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 2, 5]),
)
def test_the_chosen_plan_costs_what_the_cheapest_tried_plan_costs(
    drawn: list[Any], cpus: int, priority: int, allowed: int | None, evicted: int | None
) -> None:
    objects = _objects(drawn)
    if allowed is not None:
        objects.append(pdb("guard", {"guarded": "yes"}, allowed=allowed))
    deciding = Deciding(*objects)
    for n, (_, _, hoping) in enumerate(drawn):
        if hoping:
            deciding.nominate(pod(f"hoping-{n}", cpu="1", priority=20), f"n{n}")
    if evicted is not None:
        _evict_one_in(deciding, evicted)
    raw = pod("new", cpu=str(cpus), priority=priority)
    outcome = deciding.outcome(raw)
    if not isinstance(outcome, FitError):
        return
    plans = _tried_everywhere(deciding, raw)
    if outcome.nomination is None:
        assert plans == []
        return
    chosen = outcome.nomination
    match = [plan for plan in plans if deciding.cluster.node_names[plan.row] == chosen.node]
    assert len(match) == 1
    gone = (*match[0].victims, *match[0].leaving)
    assert {v.key for v in gone} == {v.key for v in chosen.victims}
    assert match[0].cost == min(plan.cost for plan in plans)
