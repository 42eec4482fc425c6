"""The resources that are free without potential victims; tests/property has more cases."""

import numpy as np
import pytest

from mooring.model.pod import parse_pod
from mooring.plugins.default_preemption.potential_victims import FreeResources, PotentialVictims
from mooring.plugins.default_preemption.victims import pods_of
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pdb, pod, uid_of


def potential_victims(state: ClusterState, cpu: int, *, priority: int = 100) -> PotentialVictims:
    cluster_view = ClusterView(state)
    preemptor = parse_pod(pod("new", cpu=f"{cpu}m", priority=priority))
    return PotentialVictims(preemptor, {"cpu": cpu}, cluster_view.nodes_in_order, cluster_view)


def names_at(potential: PotentialVictims) -> list[str]:
    """Return the names of the potential victims on the node of the first row."""
    return [pod.name for victim in potential.victims_at(0) for pod in pods_of(victim)]


def two_nodes() -> ClusterState:
    return cluster(
        node("a", cpu="2"),
        node("b", cpu="2", pods=1),
        pod("a-low", cpu="1", node="a", priority=1),
        pod("a-mid", cpu="1", node="a", priority=50),
        pod("b-high", cpu="1", node="b", priority=500),
    )


def test_the_pod_fits_where_the_potential_victims_free_enough() -> None:
    assert potential_victims(two_nodes(), 2000).fits.tolist() == [True, False]
    assert potential_victims(two_nodes(), 2001).fits.tolist() == [False, False]


def test_of_equal_rows_the_one_whose_victim_started_last_is_cheapest() -> None:
    days = {"a": "2026-01-02", "b": "2026-01-03", "c": "2026-01-01"}
    state = cluster(
        *(node(name, cpu="1") for name in days),
        *(pod(n, cpu="1", node=n, started=f"{day}T00:00:00Z") for n, day in days.items()),
    )
    potential = potential_victims(state, 1000)
    assert potential.ranked(potential.victims()).tolist() == [1, 0, 2]


def test_a_pod_is_reprieved_only_into_a_free_slot() -> None:
    state = cluster(node("a", pods=2), pod("x", node="a"), pod("y", node="a", priority=1))
    cluster_view = ClusterView(state)
    potential = PotentialVictims(
        parse_pod(pod("new", priority=9)), {}, cluster_view.nodes_in_order, cluster_view
    )
    assert [p.name for p in potential.candidate(0, potential.victims()).pods] == ["x"]


def test_the_requests_of_nominated_pods_are_not_free() -> None:
    state = two_nodes()
    state.nominate(parse_pod(pod("nominated", cpu="1", priority=100)), "a")
    assert potential_victims(state, 1500).fits.tolist() == [False, False]
    assert potential_victims(state, 1500, priority=101).fits.tolist() == [True, False]


def test_protected_pods_are_no_potential_victims() -> None:
    state = two_nodes()
    cluster_view = ClusterView(state)
    protected = np.array(
        [p is not None and p.name == "a-low" for p in cluster_view.pod_columns.pods]
    )
    preemptor = parse_pod(pod("new", priority=100))
    potential = PotentialVictims(
        preemptor, {}, cluster_view.nodes_in_order, cluster_view, protected
    )
    assert names_at(potential) == ["a-mid"]


def test_only_budgets_in_the_namespace_of_a_potential_victim_can_match() -> None:
    state = two_nodes()
    potential = potential_victims(state, 1000)
    assert not potential.may_match_budgets(ClusterView(state))
    for raw, expected in ((pdb("x", {}, namespace="other"), False), (pdb("x", {}), True)):
        guarded = cluster(raw, *_objects())
        assert potential_victims(guarded, 1000).may_match_budgets(ClusterView(guarded)) is expected


def _objects() -> list[dict[str, object]]:
    return [node("a", cpu="1"), pod("a-low", cpu="1", node="a")]


def test_a_reprieved_pods_requests_are_free_no_more() -> None:
    free = FreeResources({"cpu": 1500}, slots=2)
    one = parse_pod(pod("a", cpu="1", memory="1Gi"))
    assert free.reprieve(one)
    assert not free.reprieve(one)
    assert (free.amounts, free.slots) == ({"cpu": 500}, 1)


@pytest.mark.parametrize("first", ["p1", "p2"])
def test_the_victim_of_equal_pods_is_the_one_that_came_last_whatever_trials_have_done(
    first: str,
) -> None:
    """A trial that removes pods and adds them again changes their slots."""
    state = cluster(node("a", cpu="2"), *(pod(name, cpu="1", node="a") for name in ("p1", "p2")))
    with state.trial() as trial:
        back = state.pods.get(uid_of(first))
        assert back is not None
        for name in ("p1", "p2"):
            trial.remove(uid_of(name))
        trial.add(back.pod, back.row)
    potential = potential_victims(state, 1000)
    assert names_at(potential) == ["p1", "p2"]
    victims = potential.candidate(0, potential.victims()).pods
    assert [p.name for p in victims] == ["p2"]
