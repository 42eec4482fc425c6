"""The quotas in one tree of Queues; tests/property/test_queues.py compares them with sums."""

from mooring.quota.model.queue import Queue, Quota
from mooring.quota.state.queue_tree import QueueState


def tree(*queues: Queue) -> dict[str, QueueState]:
    """Return the states by name; `queues` has each parent before its children."""
    states = dict[str, QueueState]()
    for number, queue in enumerate(queues):
        states[queue.name] = QueueState(queue, number, states.get(queue.parent))
    states[queues[0].name].add_up({"cpu": None})
    states[queues[0].name].note_guaranteed(lends_all=True)
    return states


def queue(name: str, nominal: int = 0, parent: str = "all", **limits: int) -> Queue:
    return Queue(name, parent, {"cpu": Quota(nominal, **limits)})


ALL = queue("all", parent="")


def test_a_parent_has_what_its_children_lend() -> None:
    states = tree(ALL, queue("a", 4), queue("b", 6, lending_limit=1))
    assert states["all"].nominal == {"cpu": 5}
    assert states["b"].guaranteed == {"cpu": 5}


def test_use_counts_at_the_parent_beyond_what_is_guaranteed() -> None:
    states = tree(ALL, queue("b", 6, lending_limit=1))
    states["b"].charge({"cpu": 5})
    assert states["all"].used == {"cpu": 0}
    states["b"].charge({"cpu": 2})
    assert states["all"].used == {"cpu": 2}
    states["b"].charge({"cpu": -7})
    assert states["all"].used == states["b"].used == {"cpu": 0}


def test_what_is_available_ends_at_the_borrowing_limit() -> None:
    states = tree(ALL, queue("a", 4, borrowing_limit=2), queue("b", 6))
    assert states["a"].available("cpu") == 6
    states["b"].charge({"cpu": 9})
    assert states["a"].available("cpu") == 1
    assert states["a"].stays_nominal({"cpu": 1})
    assert not states["a"].stays_nominal({"cpu": 2})


def test_a_resource_that_no_queue_names_is_not_counted() -> None:
    states = tree(ALL, queue("a", 4))
    states["a"].charge({"memory": 7})
    assert states["a"].used == {"cpu": 0}


def test_a_share_is_what_is_borrowed_of_what_the_parent_has() -> None:
    states = tree(ALL, queue("a", 2), queue("b", 6))
    states["a"].charge({"cpu": 2})
    assert states["a"].share == 0.0
    states["a"].charge({"cpu": 4})
    assert states["a"].share == 0.5
    assert states["all"].share == 0.0
    assert [state.name for state in states["a"].path] == ["a", "all"]
    assert states["a"].root is states["all"]
