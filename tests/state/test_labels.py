from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mooring.state.columns import Columns
from mooring.state.labels import ABSENT, LabelColumn, LabelColumns

CHANGES = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from((None, "", "a", "b", "c", "d"))), max_size=60
)


def column() -> LabelColumn:
    columns = Columns()
    return LabelColumn("zone", columns, columns.add(np.int64, ABSENT))


def put(zones: LabelColumn, row: int, value: str | None) -> None:
    zones.put(row, {} if value is None else {"zone": value, "other": "x"})


def values(zones: LabelColumn, rows: int) -> list[str | None]:
    codes = zones.codes.data[:rows].tolist()
    return [None if code == ABSENT else zones.values[code] for code in codes]


@given(changes=CHANGES)
def test_each_row_has_the_code_of_its_value_after_any_changes(
    changes: list[tuple[int, str | None]],
) -> None:
    zones, expected = column(), dict.fromkeys(range(8))
    labels: dict[int, str | None] = dict(expected)
    for row, value in changes:
        put(zones, row, value)
        labels[row] = value
    assert values(zones, 8) == [labels[row] for row in range(8)]
    carried = Counter(value for value in labels.values() if value is not None)
    assert zones.index.keys() == carried.keys()
    assert zones.held == carried.total()
    *inhabited, absent = zones.inhabited.tolist()
    assert not absent
    assert {zones.values[code] for code, some in enumerate(inhabited) if some} == carried.keys()


def test_codes_are_reused_so_that_nodes_that_come_and_go_leave_nothing_behind() -> None:
    hosts = column()
    for i in range(1000):
        put(hosts, i % 3, f"host-{i}")
    assert len(hosts.values) <= 4
    assert len(hosts.index) == 3


def test_a_value_keeps_its_code_while_a_row_has_it() -> None:
    zones = column()
    put(zones, 0, "a")
    put(zones, 1, "b")
    put(zones, 0, None)
    put(zones, 2, "c")
    assert values(zones, 3) == [None, "b", "c"]
    assert zones.codes.data[1] == 1


def test_a_column_is_filled_on_the_first_call_and_follows_the_nodes_afterwards() -> None:
    columns = LabelColumns(Columns())
    rows = [(0, {"zone": "a"}), (1, {"rack": "r"})]
    for row, labels in rows:
        columns.put(row, {}, labels)
    zones = columns.column("zone", rows)
    assert columns.column("zone", ()) is zones
    assert values(zones, 2) == ["a", None]
    columns.put(1, {"rack": "r"}, {"zone": "b"})
    columns.put(0, {"zone": "a"}, {})
    assert values(zones, 2) == [None, "b"]


def test_keys_that_no_node_has_take_no_memory_over_the_nodes() -> None:
    table = Columns()
    columns = LabelColumns(table)
    table.reserve(8192)
    before = table.bytes
    kept = [columns.column(f"invented-{i}", ()) for i in range(1000)]
    assert (table.bytes, len(columns)) == (before, 0)
    assert all(column.held == 0 for column in kept)


def test_a_column_kept_by_a_reader_follows_its_key_through_no_node_and_back() -> None:
    table = Columns()
    columns = LabelColumns(table)
    zones, before = columns.column("zone", ()), table.bytes
    columns.put(3, {}, {"zone": "a"})
    assert columns.column("zone", ()) is zones
    assert values(zones, 4) == [None, None, None, "a"]
    columns.put(3, {"zone": "a"}, {"rack": "r"})
    assert (values(zones, 4), table.bytes, len(columns)) == ([None] * 4, before, 0)
    assert columns.column("zone", ()) is zones
