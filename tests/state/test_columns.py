import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.state.columns import ChangeLog, Columns, Interned, ResourceColumns, read_only


def test_a_read_only_view_raises_on_writes_and_follows_the_original() -> None:
    array = np.zeros(2, np.int64)
    view = read_only(array)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    array[1] = 7
    assert view.tolist() == [0, 7]


def test_columns_of_a_table_grow_together_and_keep_what_they_hold() -> None:
    columns = Columns()
    counts, flags = columns.add(np.int64, fill=-1), columns.add(np.bool_)
    counts.data[3] = 5
    columns.reserve(1000)
    assert len(counts.data) == len(flags.data) == columns.capacity >= 1000
    assert (counts.data[3], counts.data[999], bool(flags.data[999])) == (5, -1, False)


def test_a_column_added_late_has_all_rows() -> None:
    columns = Columns()
    columns.reserve(1000)
    assert len(columns.add(np.int64).data) == columns.capacity


def test_reserving_rows_that_exist_changes_nothing() -> None:
    columns = Columns()
    column = columns.add(np.int64)
    data = column.data
    columns.reserve(columns.capacity)
    assert column.data is data


AMOUNTS = st.sampled_from((1, 7, 2**61, 2**62, 2**63 - 1))


class TestResourceColumns:
    def test_a_resource_of_few_rows_takes_no_column(self) -> None:
        columns = Columns()
        columns.reserve(8192)
        resources = ResourceColumns(columns)
        for i in range(500):
            resources.put(f"example.com/r{i}", i, 5)
        assert columns.bytes == 0
        amounts = resources.amounts("example.com/r7", 9)
        assert amounts is not None
        assert amounts.tolist() == [0, 0, 0, 0, 0, 0, 0, 5, 0]

    def test_a_resource_of_many_rows_has_a_column_until_the_last_row_is_without_it(self) -> None:
        columns = Columns()
        resources = ResourceColumns(columns)
        for row in range(4):
            resources.put("cpu", row, row + 1)
        assert columns.bytes == columns.capacity * 8
        for row in range(4):
            resources.put("cpu", row, 0)
        assert (columns.bytes, [*resources], resources.amounts("cpu", 4)) == (0, [], None)

    @given(st.lists(st.tuples(st.integers(0, 2), AMOUNTS), max_size=12), st.data())
    def test_sums_stay_within_int64_and_what_was_added_can_be_subtracted(
        self, added: list[tuple[int, int]], data: st.DataObject
    ) -> None:
        resources, exact, rows = ResourceColumns(Columns()), [0] * 3, np.arange(3)
        left = data.draw(st.permutations(added))
        for sign, changes in ((1, added), (-1, left)):
            for row, amount in changes:
                resources.add("cpu", row, sign * amount)
                exact[row] += sign * amount
                shown = [min(total, 2**63 - 1) for total in exact]
                assert resources.of_rows("cpu", rows).tolist() == shown
                wrapped = resources.wrapped("cpu", rows).tolist()
                assert [(w - e) % 2**64 for w, e in zip(wrapped, exact, strict=True)] == [0] * 3

    @given(
        changes=st.lists(
            st.tuples(st.integers(0, 200), st.sampled_from((0, 0, 1, 7, 2**62))), max_size=80
        )
    )
    def test_amounts_are_what_was_put_last(self, changes: list[tuple[int, int]]) -> None:
        columns = Columns()
        columns.reserve(256)
        resources, expected = ResourceColumns(columns), [0] * 201
        for row, amount in changes:
            resources.put("cpu", row, amount)
            expected[row] = amount
            assert resources.at("cpu", row) == amount
        amounts = resources.amounts("cpu", 201)
        assert expected == ([0] * 201 if amounts is None else amounts.tolist())
        for rows in ([200], [7, 7, 3], [*range(200, -1, -1)]):
            assert resources.of_rows("cpu", np.array(rows)).tolist() == [expected[r] for r in rows]


def test_equal_values_share_a_code_and_rows_begin_with_the_first() -> None:
    columns = Columns()
    interned: Interned[str] = Interned(columns, "nothing")
    interned.put(1, "a")
    interned.put(2, "b")
    interned.put(3, "a")
    interned.put(1, "nothing")
    values = [interned.values[code] for code in interned.codes.data[:4]]
    assert values == ["nothing", "nothing", "b", "a"]
    assert interned.values == ["nothing", "a", "b"]


def test_codes_are_reused_so_that_values_that_come_and_go_leave_nothing_behind() -> None:
    interned: Interned[str] = Interned(Columns(), "")
    for i in range(1000):
        interned.put(i % 3, f"value-{i}")
    assert len(interned.values) <= 5
    assert interned.code_of("value-1") is None
    assert interned.code_of("value-999") is not None


class TestChangeLog:
    def test_a_reader_learns_which_rows_changed_since_it_last_looked(self) -> None:
        log = ChangeLog()
        log.mark(5)
        seen = log.position
        for row in (7, 3, 7):
            log.mark(row)
        changed = log.since(seen)
        assert changed is not None
        assert changed.tolist() == [7, 3, 7]
        assert log.since(log.position) is not None

    def test_a_position_older_than_the_log_has_no_changes(self) -> None:
        log = ChangeLog()
        start = log.position
        for row in range(100_000):
            log.mark(row % 10)
        assert log.since(start) is None
        recent = log.since(log.position - 3)
        assert recent is not None
        assert recent.tolist() == [7, 8, 9]

    def test_a_position_before_the_first_change_has_no_changes(self) -> None:
        assert ChangeLog().since(-1) is None
