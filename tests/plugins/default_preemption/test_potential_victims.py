"""What evictions would free, on small clusters; tests/property has the large ones."""

import numpy as np

from mooring.model.pod import parse_pod
from mooring.plugins.default_preemption.potential_victims import FreeResources, PotentialVictims
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster, node, pdb, pod


def room_for(state: ClusterState, cpu: int, *, priority: int = 100) -> PotentialVictims:
    seen = Snapshot(state)
    wanting = parse_pod(pod("new", cpu=f"{cpu}m", priority=priority))
    return PotentialVictims(wanting, {"cpu": cpu}, seen.nodes_in_order, seen)


def two_nodes() -> ClusterState:
    return cluster(
        node("a", cpu="2"),
        node("b", cpu="2", pods=1),
        pod("a-low", cpu="1", node="a", priority=1),
        pod("a-mid", cpu="1", node="a", priority=50),
        pod("b-high", cpu="1", node="b", priority=500),
    )


def test_only_pods_of_lower_priority_are_candidates() -> None:
    potential = room_for(two_nodes(), 1000)
    assert potential.candidates.tolist() == [2, 0]
    assert {p.name for p in potential.candidates_at(0)} == {"a-mid", "a-low"}


def test_it_suffices_where_the_candidates_free_enough() -> None:
    assert room_for(two_nodes(), 2000).suffices.tolist() == [True, False]
    assert room_for(two_nodes(), 2001).suffices.tolist() == [False, False]


def test_what_is_still_lacking_has_upstreams_words() -> None:
    lacking = dict(room_for(two_nodes(), 1500).lacking())
    assert lacking["Too many pods"].tolist() == [False, True]
    assert lacking["Insufficient cpu"].tolist() == [False, True]


def test_the_least_important_pods_go() -> None:
    potential = room_for(two_nodes(), 1000)
    victims = potential.victims()
    assert [p.name for p in potential.candidate(0, victims).victims] == ["a-low"]


def test_rows_are_ranked_by_the_cost_of_their_victims() -> None:
    state = cluster(
        *(node(name, cpu="1") for name in ("a", "b", "c")),
        *(
            pod(f"{name}-0", cpu="1", node=name, priority=priority)
            for name, priority in (("a", 30), ("b", 10), ("c", 20))
        ),
    )
    potential = room_for(state, 1000)
    assert potential.ranked(potential.victims()).tolist() == [1, 2, 0]


def test_of_equal_rows_the_one_whose_victim_started_last_is_cheapest() -> None:
    days = {"a": "2026-01-02", "b": "2026-01-03", "c": "2026-01-01"}
    state = cluster(
        *(node(name, cpu="1") for name in days),
        *(pod(n, cpu="1", node=n, started=f"{day}T00:00:00Z") for n, day in days.items()),
    )
    potential = room_for(state, 1000)
    assert potential.ranked(potential.victims()).tolist() == [1, 0, 2]


def test_a_pod_is_put_back_only_into_a_free_slot() -> None:
    state = cluster(node("a", pods=2), pod("x", node="a"), pod("y", node="a", priority=1))
    seen = Snapshot(state)
    potential = PotentialVictims(parse_pod(pod("new", priority=9)), {}, seen.nodes_in_order, seen)
    assert [p.name for p in potential.candidate(0, potential.victims()).victims] == ["x"]


def test_room_promised_to_nominated_pods_is_not_counted_again() -> None:
    state = two_nodes()
    state.nominate(parse_pod(pod("hoping", cpu="1", priority=100)), "a")
    assert room_for(state, 1500).suffices.tolist() == [False, False]
    assert room_for(state, 1500, priority=101).suffices.tolist() == [True, False]


def test_spared_pods_are_no_candidates() -> None:
    state = two_nodes()
    seen = Snapshot(state)
    protected = np.array([p is not None and p.name == "a-low" for p in seen.pod_columns.pods])
    wanting = parse_pod(pod("new", priority=100))
    potential = PotentialVictims(wanting, {}, seen.nodes_in_order, seen, protected)
    assert [p.name for p in potential.candidates_at(0)] == ["a-mid"]


def test_budgets_matter_only_in_the_namespaces_of_candidates() -> None:
    state = two_nodes()
    potential = room_for(state, 1000)
    assert not potential.meets_budgets(Snapshot(state))
    for raw, expected in ((pdb("x", {}, namespace="other"), False), (pdb("x", {}), True)):
        guarded = cluster(raw, *_objects())
        assert room_for(guarded, 1000).meets_budgets(Snapshot(guarded)) is expected


def _objects() -> list[dict[str, object]]:
    return [node("a", cpu="1"), pod("a-low", cpu="1", node="a")]


def test_putting_back_takes_from_what_is_left() -> None:
    left = FreeResources({"cpu": 1500}, slots=2)
    one = parse_pod(pod("a", cpu="1", memory="1Gi"))
    assert left.take(one)
    assert not left.take(one)
    assert (left.amounts, left.slots) == ({"cpu": 500}, 1)
