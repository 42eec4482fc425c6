from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.pod import Uid, parse_pod
from mooring.state.pods import Assumption, PlacedPod, PodTable
from mooring.testing.builders import pod, uid_of


def placed(name: str, row: int, *, assumed: bool = False) -> PlacedPod:
    return PlacedPod(parse_pod(pod(name)), row, Assumption() if assumed else None)


def test_pods_are_found_by_uid_and_by_row() -> None:
    table = PodTable()
    for name, row in (("a", 0), ("b", 0), ("c", 1)):
        table.put(placed(name, row))
    found = table.get(uid_of("a"))
    assert found is not None
    assert found.row == 0
    assert {p.pod.name for p in table.on(0)} == {"a", "b"}
    assert not table.on(7)
    assert (len(table), {p.pod.name for p in table}) == (3, {"a", "b", "c"})


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2)), max_size=30))
def test_a_row_has_the_pods_that_came_to_it_and_have_not_left(steps: list[tuple[str, int]]) -> None:
    """Each step adds a pod, moves it to another row, or removes it if it is on this row."""
    table, rows = PodTable(), dict[str, int]()
    for name, row in steps:
        known = table.get(uid_of(name))
        if known is None:
            table.put(placed(name, row))
        elif known.row != row:
            table.move(known, row)
        else:
            table.pop(known.pod.uid)
            del rows[name]
            continue
        rows[name] = row
    for row in range(3):
        on_row = table.on(row)
        assert sorted(p.pod.name for p in on_row) == sorted(
            n for n, at in rows.items() if at == row
        )
        assert all(p.row == row for p in on_row)


def test_a_pod_is_placed_once() -> None:
    table = PodTable()
    table.put(placed("a", 0))
    with pytest.raises(ValueError, match="default/a is placed already"):
        table.put(placed("a", 1))


def test_a_removed_pod_is_in_no_index() -> None:
    table = PodTable()
    entry = placed("a", 0, assumed=True)
    table.put(entry)
    assert table.assumed == {uid_of("a"): entry}
    assert table.pop(uid_of("a")) is entry
    assert (len(table), [*table.on(0)], table.assumed) == (0, [], {})
    assert table.pop(uid_of("a")) is None
    assert table.named("default/a") is None


def test_of_two_pods_of_a_name_the_one_created_last_is_found_by_it() -> None:
    table = PodTable()
    first, second = placed("a", 0), placed("a", 1)
    second.pod = replace(second.pod, uid=Uid("successor"), created=first.pod.created + 1.0)
    for entry in (first, second):
        table.put(entry)
    table.pop(first.pod.uid)
    table.put(first)  # as after a trial
    assert table.named("default/a") is second
    assert (table.get(uid_of("a")), table.get(Uid("successor"))) == (first, second)
    table.pop(Uid("successor"))
    assert table.named("default/a") is first
