"""What budgets allow while our own evictions are under way."""

from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pdb, pod

WEB = {"app": "web"}


def placed(name: str, **fields: object) -> dict[str, object]:
    return pod(name, node="n1", labels=WEB, **fields)  # type: ignore[arg-type] # builder's words


def guarded(allowed: int) -> ClusterState:
    return cluster(
        node("n1"), placed("a"), placed("b"), placed("c"), pdb("guard", WEB, allowed=allowed)
    )


def known(state: ClusterState, name: str) -> Pod:
    found = state.pods.get(f"default/{name}")
    assert found is not None
    return found.pod


def budget(state: ClusterState) -> PodDisruptionBudget:
    found: PodDisruptionBudget = state.objects.of(Kind.POD_DISRUPTION_BUDGET)["default/guard"]
    return found


def report(state: ClusterState, allowed: int) -> None:
    """The disruption controller writes the budget's status."""
    raw = pdb("guard", WEB, allowed=allowed)
    state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_object(Kind(raw["kind"]), raw))


PREEMPTOR = parse_pod(pod("high", priority=100))


def test_a_budget_covers_the_pods_its_selector_selects_in_its_namespace() -> None:
    state = guarded(1)
    assert [b.name for b in state.evictions.covering(known(state, "a"))] == ["guard"]
    assert state.evictions.covering(parse_pod(pod("a", namespace="other", labels=WEB))) == []
    assert state.evictions.covering(parse_pod(pod("a", labels={"app": "db"}))) == []


def test_a_pod_without_labels_is_covered_by_no_budget() -> None:
    state = cluster(pdb("all", {}, allowed=0))
    assert state.evictions.covering(parse_pod(pod("a"))) == []


def test_an_eviction_counts_from_its_beginning() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    assert state.evictions.allowed(budget(state)) == 1


def test_an_eviction_counts_until_the_victim_leaves_and_the_status_is_new() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    report(state, 2)
    assert state.evictions.allowed(budget(state)) == 1, "the victim is not even terminating yet"
    leaving = parse_pod(placed("a", terminating=True))
    state.put(Kind.POD, leaving.key, leaving)
    assert state.evictions.allowed(budget(state)) == 2
    report(state, 1)
    assert state.evictions.allowed(budget(state)) == 1


def test_a_status_from_before_the_victim_left_still_counts_the_eviction() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    state.delete(Kind.POD, "default/a")
    assert state.evictions.allowed(budget(state)) == 1


def test_a_failed_eviction_counts_no_more() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    state.evictions.failed(known(state, "a"))
    assert state.evictions.allowed(budget(state)) == 2


def test_a_refused_eviction_exhausts_the_budget_until_its_next_status() -> None:
    state = guarded(2)
    state.evictions.refused(known(state, "a"))
    assert state.evictions.allowed(budget(state)) == 0
    report(state, 2)
    assert state.evictions.allowed(budget(state)) == 2


def test_victims_are_leaving_until_they_are_gone() -> None:
    state = guarded(2)
    assert not state.evictions.leaving(PREEMPTOR)
    state.evictions.begun(PREEMPTOR, [known(state, "a"), known(state, "b")])
    state.delete(Kind.POD, "default/a")
    assert state.evictions.leaving(PREEMPTOR)
    state.delete(Kind.POD, "default/b")
    assert not state.evictions.leaving(PREEMPTOR)


def test_a_successor_of_the_victims_name_is_not_the_victim() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    raw = placed("a")
    raw["metadata"] = {**raw["metadata"], "uid": "another"}  # type: ignore[dict-item]
    successor = parse_pod(raw)
    state.put(Kind.POD, successor.key, successor)
    assert not state.evictions.leaving(PREEMPTOR)


def test_a_pod_is_evicted_once_however_many_ask_for_it() -> None:
    state = guarded(2)
    other = parse_pod(pod("other", priority=100))
    assert state.evictions.begun(PREEMPTOR, [known(state, "a")]) == [known(state, "a")]
    new = state.evictions.begun(other, [known(state, "a"), known(state, "b")])
    assert new == [known(state, "b")]
    assert state.evictions.leaving(other)
    assert state.evictions.allowed(budget(state)) == 0
    assert state.evictions.covering(known(state, "a")) == [], "it is charged already"


def test_nobody_waits_for_a_victim_that_stays() -> None:
    state = guarded(2)
    other = parse_pod(pod("other", priority=100))
    for preemptor in (PREEMPTOR, other):
        state.evictions.begun(preemptor, [known(state, "a")])
    state.evictions.failed(known(state, "a"))
    assert not state.evictions.leaving(PREEMPTOR)
    assert not state.evictions.leaving(other)


def test_a_pod_that_is_leaving_anyway_is_waited_for_but_not_evicted() -> None:
    leaving = parse_pod(placed("a", terminating=True))
    state = cluster(node("n1"), placed("a", terminating=True))
    assert state.evictions.begun(PREEMPTOR, [leaving]) == []
    assert state.evictions.leaving(PREEMPTOR)


def test_who_is_forgotten_waits_for_no_victims() -> None:
    state = guarded(2)
    state.evictions.begun(PREEMPTOR, [known(state, "a")])
    state.evictions.forget(PREEMPTOR)
    assert not state.evictions.leaving(PREEMPTOR)
