from mooring.claims.plugin.constraints import (
    DistinctAttribute,
    LastDistinctAttribute,
    MatchAttribute,
)

A, B = (str, "a"), (str, "b")


def test_a_constraint_without_requests_is_for_all_and_else_for_those_it_names() -> None:
    assert MatchAttribute(frozenset(), []).applies("r", "r")
    named = MatchAttribute(frozenset({"r", "first/a"}), [])
    assert named.applies("r", "r")
    assert named.applies("r", "r/a")
    assert named.applies("first", "first/a")
    assert not named.applies("first", "first/b")


def test_match_attribute_admits_the_value_of_the_first_device() -> None:
    match = MatchAttribute(frozenset(), [])
    assert match.admits(A)
    match.add("r", A)
    assert match.admits(A)
    assert not match.admits(B)
    match.remove("r")
    assert match.admits(B)


def test_values_of_different_types_are_different() -> None:
    match = MatchAttribute(frozenset(), [])
    match.add("r", (bool, True))
    assert not match.admits((int, 1))
    assert not match.admits((str, "True"))


def test_a_device_without_the_attribute_is_never_admitted() -> None:
    for kind in (MatchAttribute, DistinctAttribute, LastDistinctAttribute):
        assert not kind(frozenset(), []).admits(None)
        assert not kind(frozenset(), []).may_ever_admit(None)


def test_distinct_attribute_admits_a_value_once() -> None:
    distinct = DistinctAttribute(frozenset(), [])
    distinct.add("r", A)
    distinct.add("r", B)
    assert not distinct.admits(A)
    distinct.remove("r")
    assert distinct.admits(B)
    assert not distinct.may_ever_admit(A)


def test_before_1_37_only_the_last_value_of_a_request_is_remembered() -> None:
    distinct = LastDistinctAttribute(frozenset(), [])
    distinct.add("r", A)
    assert not distinct.admits(A)
    distinct.add("r", B)
    assert distinct.admits(A)
    assert not distinct.admits(B)
    distinct.add("s", A)
    assert not distinct.admits(A)


def test_before_1_37_to_give_a_device_back_forgets_the_value_of_its_request() -> None:
    distinct = LastDistinctAttribute(frozenset(), [])
    distinct.add("r", A)
    distinct.add("r", B)
    distinct.remove("r")
    assert distinct.admits(A)
    assert distinct.may_ever_admit(B)


def test_the_state_says_what_later_answers_depend_on() -> None:
    for kind in (MatchAttribute, DistinctAttribute, LastDistinctAttribute):
        constraint = kind(frozenset(), [])
        empty = constraint.state()
        constraint.add("r", A)
        with_a = constraint.state()
        assert with_a != empty
        constraint.remove("r")
        assert constraint.state() == empty
        constraint.add("r", B)
        assert constraint.state() != with_a
