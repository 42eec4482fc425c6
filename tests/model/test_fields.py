from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mooring.model.fields import (
    at_most,
    boolean,
    integer,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    quantity,
    required,
    strings,
    text,
    texts,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity

Reader = Callable[[Mapping[str, Any], str, str], object]


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (mapping, {"a": 1}, {"a": 1}),
        (optional_mapping, {"a": 1}, {"a": 1}),
        (mappings, [{"a": 1}, {}], [{"a": 1}, {}]),
        (strings, {"a": "b"}, {"a": "b"}),
        (texts, ["a", "b"], ("a", "b")),
        (text, "a", "a"),
        (integer, 3, 3),
        (boolean, True, True),
        (quantity, "1Ki", Quantity(1024 * 10**9)),
    ],
)
def test_a_field_of_the_right_type_is_read(read: Reader, value: object, expected: object) -> None:
    assert read({"field": value}, "field", "spec") == expected


@pytest.mark.parametrize(
    ("read", "empty"),
    [
        (mapping, {}),
        (optional_mapping, None),
        (mappings, []),
        (strings, {}),
        (texts, ()),
        (text, ""),
        (integer, None),
        (boolean, False),
        (quantity, None),
    ],
)
@pytest.mark.parametrize("raw", [{}, {"field": None}])
def test_an_absent_field_and_a_null_field_are_read_as_empty(
    read: Reader, empty: object, raw: Mapping[str, Any]
) -> None:
    assert read(raw, "field", "spec") == empty


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (mapping, [], "spec.field: must be an object, not []"),
        (mapping, 0, "spec.field: must be an object, not 0"),
        (optional_mapping, "a", "spec.field: must be an object, not 'a'"),
        (mappings, {}, "spec.field: must be a list, not {}"),
        (mappings, [{}, 7], "spec.field[1]: must be an object, not 7"),
        (strings, {"a": 1}, "spec.field.a: must be a string, not 1"),
        (texts, "ab", "spec.field: must be a list, not 'ab'"),
        (texts, ["a", None], "spec.field[1]: must be a string, not None"),
        (text, 1, "spec.field: must be a string, not 1"),
        (integer, True, "spec.field: must be a whole number, not True"),
        (integer, "1", "spec.field: must be a whole number, not '1'"),
        (boolean, "yes", "spec.field: must be true or false, not 'yes'"),
    ],
)
def test_a_field_of_another_type_raises_an_error_with_its_name(
    read: Reader, value: object, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        read({"field": value}, "field", "spec")
    assert str(caught.value) == message


def test_a_malformed_quantity_raises_an_error_with_its_name() -> None:
    with pytest.raises(ManifestError) as caught:
        quantity({"capacity": "5GB"}, "capacity")
    assert caught.value.where == "capacity"


def test_a_field_at_the_top_has_no_dot_before_it() -> None:
    with pytest.raises(ManifestError) as caught:
        text({"provisioner": 1}, "provisioner")
    assert caught.value.where == "provisioner"


def test_a_huge_value_is_shortened_in_the_error() -> None:
    with pytest.raises(ManifestError) as caught:
        text({"field": ["x" * 1000]}, "field")
    assert len(str(caught.value)) < 100


def test_names_come_from_the_metadata_and_the_namespace_has_a_default() -> None:
    raw = {"metadata": {"name": "web", "namespace": "team-a"}}
    assert (namespace_of(raw), name_of(raw)) == ("team-a", "web")
    assert namespace_of({"metadata": {"name": "web"}}) == "default"


@pytest.mark.parametrize("metadata", [{}, {"name": None}, {"name": ""}])
def test_an_object_needs_a_name(metadata: Mapping[str, Any]) -> None:
    with pytest.raises(ManifestError) as caught:
        name_of({"metadata": metadata})
    assert str(caught.value) == "metadata.name: is missing; every object needs a name"


def test_a_required_object_may_be_empty_but_not_absent() -> None:
    assert required({"spec": {}}, "spec") == {}
    for raw in ({}, {"spec": None}):
        with pytest.raises(ManifestError) as caught:
            required(raw, "spec")
        assert str(caught.value) == "spec: is missing; it must be an object"
    with pytest.raises(ManifestError, match=r"spec: must be an object, not \[\]"):
        required({"spec": []}, "spec")


@naming_the_object("Widget")
def parse_widget(raw: Mapping[str, Any]) -> str:
    return text(raw, "colour")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"name": "web", "namespace": "team-a"}, "Widget team-a/web"),
        ({"name": "web"}, "Widget web"),
        ({}, "Widget (no name)"),
    ],
)
def test_errors_of_an_object_name_it(metadata: Mapping[str, Any], named: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_widget({"metadata": metadata, "colour": 1})
    assert str(caught.value) == f"{named} colour: must be a string, not 1"


def test_the_decorated_parser_returns_the_parsed_value() -> None:
    assert parse_widget({"colour": "blue"}) == "blue"


def test_an_object_whose_metadata_is_not_an_object_raises_an_error() -> None:
    with pytest.raises(ManifestError):
        parse_widget({"metadata": "x", "colour": 1})


def test_more_than_mooring_reads_is_a_mistake() -> None:
    at_most(3, 3, "spec.keys", "keys")
    with pytest.raises(ManifestError) as caught:
        at_most(4, 3, "spec.keys", "keys")
    assert str(caught.value) == "spec.keys: has 4 keys; Mooring reads at most 3"
