from mooring.cel.types import (
    DYN,
    INT,
    NAMED,
    STRING,
    Substitutions,
    list_of,
    map_of,
    optional_of,
    parameter,
)


def test_a_parameter_stands_for_the_type_that_it_meets() -> None:
    known = Substitutions()
    free = known.new_parameter()
    assert known.assign(list_of(free), list_of(INT))
    assert known.resolved(map_of(STRING, free)) == map_of(STRING, INT)
    assert not known.assign(free, STRING)


def test_an_attempt_that_fails_leaves_nothing_behind() -> None:
    known = Substitutions()
    first, second = known.new_parameter(), known.new_parameter()
    assert not known.assign_all((first, INT), (STRING, STRING))
    assert known.resolved(first) == first
    assert known.assign_all((first, second), (INT, first))
    assert known.resolved(second) == INT


def test_no_type_contains_itself() -> None:
    known = Substitutions()
    free = known.new_parameter()
    assert not known.assign(free, list_of(free))


def test_anything_may_stand_for_a_dynamic_type_and_null_for_an_object() -> None:
    known = Substitutions()
    assert known.assign(DYN, INT)
    assert known.assign(list_of(DYN), list_of(INT))
    assert known.assign(NAMED["null_type"], NAMED["Quantity"])
    assert not known.assign(NAMED["null_type"], INT)


def test_types_are_shown_as_messages_show_them() -> None:
    assert map_of(STRING, optional_of(INT)).shown == "map(string, optional_type(int))"
    assert NAMED["duration"].shown == "duration"
    assert str(parameter("A")) == "<A>"
