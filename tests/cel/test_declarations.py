from mooring.cel.declarations import functions
from mooring.cel.function_calls import binding_of
from mooring.cel.tree import (
    AND,
    CONDITIONAL,
    EQUALS,
    INDEX,
    OPTIONAL_INDEX,
    OPTIONAL_SELECT,
    OR,
)
from mooring.cel.types import optional_of, parameter

PLANNED = {AND, OR, CONDITIONAL, EQUALS, "_!=_", INDEX, OPTIONAL_INDEX, OPTIONAL_SELECT}
LAZY = {"or", "orValue"}


def test_every_overload_has_a_name_of_its_own() -> None:
    names = [overload.name for overloads in functions().values() for overload in overloads]
    assert len(set(names)) == len(names) > 250


def test_every_overload_is_implemented() -> None:
    for function, overloads in functions().items():
        if function in PLANNED | LAZY:
            continue
        for overload in overloads:
            constants = [None] * len(overload.parameters)
            binding = binding_of(function, overload.name, constants, newer=True, lenient=False)
            assert callable(binding.call)


def test_overloads_for_lists_came_first_until_1_37() -> None:
    assert functions(newer=False)["indexOf"][0].name == "list_a_index_of_int"
    assert functions()["indexOf"][0].name == "string_index_of_string"


def test_methods_know_their_target() -> None:
    (value,) = functions()["value"]
    assert value.is_method
    assert value.parameters == (optional_of(parameter("V")),)
    (none,) = functions()["optional.none"]
    assert not none.is_method
    assert none.parameters == ()
