from typing import Any

from bench.scheduler_perf.bound_pods import BindingTimes, BoundPods


def pod(uid: str, namespace: str = "a", **labels: str) -> dict[str, Any]:
    return {"uid": uid, "name": uid, "namespace": namespace, "labels": labels}


def test_pods_are_counted_by_namespace_and_labels_until_they_are_deleted() -> None:
    bound = BoundPods()
    for one in (pod("1", app="x"), pod("2"), pod("3", "b", app="x")):
        bound.on_event("ADDED", one)
    bound.on_event("MODIFIED", pod("1", app="x"))
    assert (bound.count("a"), bound.count("b"), bound.count("c")) == (2, 1, 0)
    assert bound.count("a", {"app": "x"}) == 1
    for _ in range(2):
        bound.on_event("DELETED", pod("1", app="x"))
    assert bound.count("a") == 1
    assert bound.count("a", {"app": "x"}) == 0


def test_a_pod_of_a_name_that_returns_is_another_one() -> None:
    bound = BoundPods()
    for uid in ("1", "2"):
        bound.on_event("ADDED", {**pod(uid), "name": "same"})
    assert bound.count("a") == 2


def test_a_follower_is_told_each_pod_once_while_it_follows() -> None:
    bound, told = BoundPods(), list[str]()

    def follower(metadata: dict[str, Any]) -> None:
        told.append(metadata["uid"])

    bound.on_event("ADDED", pod("1"))
    bound.follow(follower)
    for kind in ("MODIFIED", "MODIFIED", "DELETED"):
        bound.on_event(kind, pod("2"))
    bound.unfollow(follower)
    bound.on_event("ADDED", pod("3"))
    assert told == ["2"]


def test_times_are_those_of_the_namespaces_and_labels_that_are_measured() -> None:
    times = BindingTimes({"a"}, {"app": "x"})
    for one in (pod("1", app="x"), pod("2"), pod("3", "b", app="x"), pod("4", app="x")):
        times.note(one)
    assert len(times.times) == 2
    assert times.began <= times.times[0] <= times.times[1]
