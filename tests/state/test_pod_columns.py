"""Placed and nominated pods as columns."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.pod import Pod, Uid, parse_pod
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import PlacedPod, PodTable
from mooring.testing.builders import pod, uid_of


class Columns(PodColumns):
    """Pod columns together with the table of placed pods."""

    def __init__(self) -> None:
        self.table = PodTable()
        super().__init__(self.table)

    def put(self, pod: Pod, row: int = 0, *, group: int | None = None) -> PlacedPod:
        placed = PlacedPod(pod, row)
        self.table.put(placed)
        self.place(placed, arrival=len(self.table), evicting=False, group=group)
        return placed

    def drop(self, placed: PlacedPod) -> int:
        arrival = self.displace(placed)
        self.table.pop(placed.pod.uid)
        return arrival


def test_a_slot_has_what_its_pod_requests() -> None:
    columns = Columns()
    started = "1970-01-01T00:00:10Z"
    columns.put(parse_pod(pod("a", cpu="500m", priority=7, started=started)), 3)
    assert columns.rows.tolist() == [3]
    assert columns.priority.tolist() == [7]
    assert columns.started.tolist() == [10.0]
    assert columns.requests("cpu").tolist() == [500]
    assert columns.requests("example.com/gpu").tolist() == [0]


def test_a_pod_that_has_not_started_counts_as_the_latest() -> None:
    columns = Columns()
    columns.put(parse_pod(pod("a")), 0)
    assert np.isinf(columns.started[0])


def test_a_free_slot_is_used_again_and_clean() -> None:
    columns = Columns()
    first = parse_pod(pod("a", cpu="1", requests={"example.com/gpu": 2}))
    assert columns.drop(columns.put(first, 0)) == 1
    columns.put(parse_pod(pod("b", cpu="1")), 1)
    assert len(columns.pods) == 1
    assert columns.requests("example.com/gpu").tolist() == [0]


def test_only_pods_that_are_somewhere_have_a_priority_below_another() -> None:
    columns = Columns()
    assert not columns.has_below(9)
    placed = columns.put(parse_pod(pod("a", priority=7)))
    assert columns.has_below(8)
    assert not columns.has_below(7)
    columns.drop(placed)
    assert not columns.has_below(8)


def test_a_newer_version_of_a_pod_renews_its_start() -> None:
    columns = Columns()
    placed = columns.put(parse_pod(pod("a")), 0)
    placed.pod = parse_pod(pod("a", started="1970-01-01T00:00:10Z"))
    columns.renew(placed)
    assert columns.started.tolist() == [10.0]


def test_slots_are_found_by_the_number_of_the_group() -> None:
    columns = Columns()
    placed = [
        columns.put(parse_pod(pod(f"p{i}")), group=number)
        for i, number in enumerate((4, None, 7, 4))
    ]
    assert columns.in_groups([4]).tolist() == [True, False, False, True]
    columns.renew(placed[0], 7)
    columns.drop(placed[3])
    assert columns.groups.tolist() == [7, -1, 7, -1]


def test_slots_are_found_of_pods_that_are_on_a_node_and_not_of_others_of_their_name() -> None:
    columns = Columns()
    a, b, c = (parse_pod(pod(name)) for name in "abc")
    columns.put(a, 0)
    columns.put(b, 1)
    columns.nominate(c, 2, 1, -np.inf)
    successor = replace(a, uid=Uid("another"))
    assert columns.slots_of((b, c, successor)).tolist() == [1]
    assert columns.slots_of(()).tolist() == []


def test_the_slot_of_a_pod_that_is_named_twice_is_found_once() -> None:
    """Otherwise the pod's requests would be freed twice."""
    columns, one = Columns(), parse_pod(pod("a"))
    columns.put(one, 0)
    assert columns.slots_of((one, one)).tolist() == [0]


def test_slots_are_found_by_namespace() -> None:
    columns = Columns()
    for namespace in ("x", "y", "x"):
        name = f"p{len(columns.pods)}"
        columns.put(parse_pod(pod(name, namespace=namespace)), 0)
    assert columns.in_namespaces(["x", "unknown"]).tolist() == [True, False, True]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=20))
def test_nominated_demand_is_the_sum_over_nominated_pods_of_at_least_the_priority(
    drawn: list[tuple[int, int, bool]],
) -> None:
    columns = Columns()
    for i, (row, priority, nominated) in enumerate(drawn):
        one = parse_pod(pod(f"p{i}", cpu="1", priority=priority))
        if nominated:
            columns.nominate(one, row, priority + 1, -np.inf)
        else:
            columns.put(one, row)
    pods, sums = columns.nominated_demand(["cpu"], 3, uid_of("p0"), 4)
    expected = [
        sum(r == row and n and p >= 3 and i != 0 for i, (r, p, n) in enumerate(drawn))
        for row in range(4)
    ]
    assert pods.tolist() == expected
    assert sums["cpu"].tolist() == [1000 * count for count in expected]
