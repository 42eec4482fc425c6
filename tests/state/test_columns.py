import numpy as np
import pytest

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


def test_a_resource_has_one_column_from_its_first_mention_on() -> None:
    columns = Columns()
    resources = ResourceColumns(columns)
    assert resources.known("cpu") is None
    assert resources.column("cpu") is resources.column("cpu") is resources.known("cpu")
    assert [*resources] == ["cpu"]


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
