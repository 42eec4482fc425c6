"""The status of a Queue."""

from typing import Any

import pytest

from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.quota.model.queue import QUEUE_LABEL, Queue, parse_queue
from mooring.quota.status.queue_status import (
    Amounts,
    QueueView,
    amount_quantity,
    queue_views,
    status_of,
)
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pod, queue_object

NOW = "2026-02-01T00:00:00Z"
GPU = "example.com/gpu"


def running(queue: str, count: int, **requests: Any) -> list[dict[str, Any]]:
    """Return `count` pods of the Queue on the node."""
    labels = {QUEUE_LABEL: queue}
    return [pod(f"{queue}-{i}", node="n", labels=labels, **requests) for i in range(count)]


def views_of(state: ClusterState, **waiting: int) -> dict[str, QueueView]:
    return queue_views(state.objects.of(Kind.QUEUE), state.queues, waiting)


def put(state: ClusterState, raw: dict[str, Any], generation: int) -> Queue:
    """Store the Queue with this generation; return the parsed Queue."""
    raw["metadata"]["generation"] = generation
    queue: Queue = parse_object(Kind.QUEUE, raw)
    state.put(Kind.QUEUE, queue.name, queue)
    return queue


def test_counts_and_amounts_of_a_queue_have_those_of_the_queues_below_it() -> None:
    state = cluster(
        node("n"),
        queue_object("all", {"cpu": 2}, selector=None),
        queue_object("a", {"cpu": 4}, parent="all"),
        queue_object("b", {"cpu": 4}, parent="all"),
        *running("a", 1, cpu="1"),
        *running("b", 3, cpu="2"),
    )
    views = views_of(state, a=5, b=1)
    assert {name: (view.pods, view.waiting) for name, view in views.items()} == {
        "all": (4, 6),
        "a": (1, 5),
        "b": (3, 1),
    }
    assert {name: view.amounts["cpu"] for name, view in views.items()} == {
        "all": Amounts(10_000, 7_000, 0, 0),
        "a": Amounts(4_000, 1_000, 0, 2_000),
        "b": Amounts(4_000, 6_000, 2_000, 0),
    }
    assert views["b"].share == pytest.approx(0.2)


def test_what_a_queue_does_not_lend_is_not_its_parents() -> None:
    keeps = {"nominalQuota": 4, "lendingLimit": 1}
    state = cluster(
        node("n"),
        queue_object("all", selector=None),
        queue_object("a", {GPU: keeps}, parent="all"),
        queue_object("b", {GPU: 4}, parent="all"),
        *running("a", 2, requests={GPU: 1}),
        *running("b", 5, requests={GPU: 1}),
    )
    views = views_of(state)
    assert views["all"].amounts[GPU] == Amounts(5, 5, 0, 0)
    assert views["a"].amounts[GPU] == Amounts(4, 2, 0, 1)


def test_a_queue_lends_to_the_queues_below_its_parents_siblings_too() -> None:
    state = cluster(
        node("n"),
        queue_object("all", selector=None),
        *(queue_object(name, parent="all", selector=None) for name in ("left", "right")),
        queue_object("a", {"pods": 3}, parent="left"),
        queue_object("b", {"pods": 1}, parent="right"),
        *running("b", 3),
    )
    views = views_of(state)
    lent = {name: view.amounts["pods"].lent for name, view in views.items()}
    assert lent == {"all": 0, "left": 2, "a": 2, "right": 0, "b": 0}


def test_pods_that_wait_for_a_queue_that_is_not_in_force_are_counted() -> None:
    state = cluster(queue_object("a", {"cpu": 4}, parent="none"))
    view = views_of(state, a=3)["a"]
    assert (view.waiting, view.pods, view.amounts, view.in_force) == (3, 0, {}, 0)


def test_a_status_has_the_condition_the_counts_and_the_amounts() -> None:
    state = cluster(node("n"), queue_object("all", {"cpu": 2}), *running("all", 1, cpu="500m"))
    queue = put(state, queue_object("all", {"cpu": 2, "memory": "3Gi", GPU: 4}), 3)
    assert status_of(queue, views_of(state, all=2)["all"], NOW) == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "observedGeneration": 3,
                "lastTransitionTime": NOW,
                "reason": "InForce",
                "message": "in force",
            }
        ],
        "pods": 1,
        "waiting": 2,
        "share": "0",
        "resources": [
            {"name": "cpu", "nominal": "2", "used": "500m", "borrowed": "0", "lent": "0"},
            {"name": GPU, "nominal": "4", "used": "0", "borrowed": "0", "lent": "0"},
            {"name": "memory", "nominal": "3Gi", "used": "0", "borrowed": "0", "lent": "0"},
        ],
    }


def test_a_queue_that_is_not_in_force_says_why_and_what_stays() -> None:
    state = cluster(queue_object("all"))
    put(state, queue_object("all", {"cpu": 1}), 2)
    assert state.queues.problem("all") is None
    queue = put(state, queue_object("all", {"cpu": 1}, parent="none"), 3)
    (condition,) = status_of(queue, views_of(state)["all"], NOW)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Invalid")
    assert condition["message"] == (
        "generation 2 stays in force: spec.parent: queue none does not exist (all -> none)"
    )


@pytest.mark.parametrize(("known", "since"), [("True", "2026-01-01T00:00:00Z"), ("False", NOW)])
def test_the_time_of_a_condition_changes_with_its_status(known: str, since: str) -> None:
    before = {"type": "Ready", "status": known, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    raw = queue_object("all", status={"conditions": [before]})
    (condition,) = status_of(parse_queue(raw), views_of(cluster(raw))["all"], NOW)["conditions"]
    assert condition["lastTransitionTime"] == since


def test_the_share_of_a_queue_of_weight_zero_that_borrows_is_infinite() -> None:
    state = cluster(
        node("n"),
        queue_object("all", {"pods": 3}, selector=None),
        queue_object("a", parent="all", fairSharing={"weight": 0}),
        *running("a", 1),
    )
    queue = put(state, queue_object("a", parent="all", fairSharing={"weight": 0}), 1)
    assert status_of(queue, views_of(state)["a"], NOW)["share"] == "inf"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("ephemeral-storage", 1000, "1k"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        (GPU, 16, "16"),
        ("pods", 0, "0"),
    ],
)
def test_amounts_are_quantities_in_canonical_form(resource: str, amount: int, text: str) -> None:
    assert amount_quantity(resource, amount) == text
