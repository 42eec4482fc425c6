"""Counts and sets by key; empty entries are removed."""

from collections import Counter

from mooring.model.indexes import add_count, drop_item


def test_a_count_of_zero_is_not_kept() -> None:
    counts = Counter({"a": 1})
    add_count(counts, "a", -1)
    add_count(counts, "b", 2)
    assert counts == {"b": 2}
    assert "a" not in counts


def test_the_last_item_takes_its_key_away() -> None:
    sets = {"a": {1, 2}, "b": {1}}
    drop_item(sets, "a", 1)
    drop_item(sets, "b", 1)
    assert sets == {"a": {2}}
    dicts = {"a": {1: "one"}}
    drop_item(dicts, "a", 1)
    assert dicts == {}


def test_an_item_that_is_not_there_may_be_dropped() -> None:
    sets = {"a": {1}}
    drop_item(sets, "a", 2)
    drop_item(sets, "b", 1)
    assert sets == {"a": {1}}
