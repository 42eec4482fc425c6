import pytest

from mooring.cel.cel_errors import CompileError
from mooring.cel.compiler import compiled


def test_a_program_says_how_many_bytes_it_takes() -> None:
    small = compiled('device.driver == "gpu"', newer=True)
    large = compiled('device.driver == "gpu" || device.driver == "nic"', newer=True)
    assert small.memory < large.memory


def test_all_mistakes_of_the_types_are_told_at_once() -> None:
    with pytest.raises(CompileError, match=r"(?s)undeclared reference to 'a'.*reference to 'b'"):
        compiled("a && b", newer=True)


def test_constants_are_checked_where_the_types_are_right() -> None:
    with pytest.raises(CompileError, match="invalid duration argument"):
        compiled("duration('x') == duration('1s')", newer=True)


def test_a_selector_that_is_no_bool_is_a_mistake_without_a_place() -> None:
    with pytest.raises(CompileError, match=r"^must evaluate to bool or the unknown type, not int$"):
        compiled("1", newer=True)


def test_older_rules_know_no_type_of_attributes_that_loops_accept() -> None:
    loop = 'device.attributes["a"].b.exists(each, each == 1)'
    assert compiled(loop, newer=True)
    with pytest.raises(CompileError, match="cannot be range of a comprehension"):
        compiled(loop, newer=False)
