from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mooring.state.row_counts import RowCounts


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40))
def test_rows_are_counted_as_a_counter_counts_them(steps: list[tuple[bool, int]]) -> None:
    counts, model = RowCounts(), Counter[int]()
    for adds, row in steps:
        if adds:
            counts.add(row)
            model[row] += 1
        elif model[row]:
            counts.remove(row)
            model[row] -= 1
        expected = +model
        assert dict(counts.items()) == expected
        rows, numbers = list[int](), list[int]()
        counts.extend(rows, numbers)
        assert dict(zip(rows, numbers, strict=True)) == expected
        assert (len(counts), bool(counts)) == (len(expected), bool(expected))
