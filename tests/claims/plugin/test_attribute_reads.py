from dataclasses import replace

import pytest

from dra.expressions import FAILING, GOOD
from dra.families import drawn
from dra.objects import claim, exactly, request
from mooring.cel.cel_errors import CompileError
from mooring.claims.device_selector import DeviceView, SelectorError, compile_selector
from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.claims.plugin.attribute_reads import (
    EVERYTHING,
    ComparedAttribute,
    Reads,
    attributes_among,
    attributes_read,
    attributes_seen,
    reads_of,
    value_seen,
)

GPU = 'device.attributes["gpu.example.com"]'


def only(name: str, *texts: str) -> ComparedAttribute:
    return ComparedAttribute(name, frozenset(texts))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('device.driver == "gpu.example.com"', set()),
        (f'{GPU}.model != "h100" && {GPU}["numa"] < 2', {"model", "numa"}),
        (f'{GPU}.model == "h100" && {GPU}["numa"] < 2', {only("model", "h100"), "numa"}),
        (f'({GPU}.id == "a") || {GPU}["id"] == "b"', {only("id", "a", "b")}),
        (f'{GPU}.id == "a" || {GPU}.id.startsWith("b")', {"id"}),
        (f'{GPU}.id == "a" || {GPU}.id > "b"', {"id"}),
        (f'{GPU}.id == "a" + "b"', {"id"}),
        (f'"a" + {GPU}.id == "ab"', {"id"}),
        (f'{GPU}.id == "a" == true', {"id"}),
        (f'({GPU}.id == "a" ? 1 : 2) == 1', {"id"}),
        (f'{GPU}.id == """a"""', {"id"}),
        (f"{GPU}.id == {GPU}.other", {"id", "other"}),
        (f'[1].exists(device, {GPU}.id == "a")', EVERYTHING),
        (f'"model" in {GPU} && has({GPU}.index)', {"model", "index"}),
        (f'{GPU}.?model.orValue("none") != "l4"', {"model"}),
        ('device.capacity["gpu.example.com"].memory.sign() == 1', set()),
        (f"{GPU}.model.startsWith('h')", EVERYTHING),
        (f"{GPU}.size() == 2", EVERYTHING),
        (f'{GPU}.exists(name, name == "index")', EVERYTHING),
        (f'{GPU} == {{"model": "h100"}}', EVERYTHING),
        (f'"model" in {GPU}.size()', EVERYTHING),
        (f'"mo" + "del" in {GPU}', EVERYTHING),
        (f'{GPU}.all // of them\n(name, name != "index")', EVERYTHING),
        ('"gpu.example.com" in device.attributes', EVERYTHING),
        (f"cel.bind(gpu, {GPU}, has(gpu.model))", EVERYTHING),
        ("[device].size() == 1", EVERYTHING),
        ("device .attributes.size() == 1", EVERYTHING),
        ("'\\u0064' == \"d\"", EVERYTHING),
    ],
)
def test_an_expression_reads_the_attributes_it_names_or_else_all(
    expression: str, names: set[str | ComparedAttribute] | None
) -> None:
    assert attributes_read(expression) == (None if names is None else frozenset(names))


def answer(expression: str, view: DeviceView) -> object:
    selector = compile_selector(expression)
    if isinstance(selector, CompileError):
        return str(selector)
    try:
        return selector.matches(view)
    except SelectorError as error:
        return str(error)


COMPARING = [
    f'{GPU}.{name} == "{text}" {operator} {GPU}.model == "h100"'
    for name, text in (("uuid", "GPU-1"), ("model", "a100"), ("numa", "0"), ("none", ""))
    for operator in ("&&", "||")
]


@pytest.mark.parametrize("expression", [*GOOD, *FAILING, *COMPARING])
def test_attributes_that_are_not_read_make_no_difference(expression: str) -> None:
    reads = attributes_read(expression)
    for case in drawn(15, "projection", ["counts"]):
        for each in map(parse_resource_slice, case["slices"]):
            for one in each.devices:
                fewer = {name: value for name, _, value in attributes_seen(one.attributes, reads)}
                view = DeviceView(each.driver, one.attributes, {})
                assert answer(expression, view) == answer(
                    expression, DeviceView(each.driver, fewer, {})
                )


def test_claims_read_what_their_selectors_constraints_and_classes_name() -> None:
    wanted = request("r", exactly("gpu", 1, f"{GPU}.index == 1"))
    raw = claim("c", [wanted], [{"matchAttribute": "gpu.example.com/numa"}])
    gpu = parse_device_class(
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'{GPU}.model == "h100"'}}]},
        }
    )
    claims = [parse_resource_claim(raw)]
    assert reads_of(claims, {"gpu": gpu}.get) == frozenset(("index", "numa", only("model", "h100")))
    everything = replace(gpu, selectors=(f"{GPU}.size() == 2",))
    assert reads_of(claims, {"gpu": everything}.get) is EVERYTHING


def no_class(_name: str) -> None:
    return None


def test_what_one_reads_as_a_whole_is_not_only_value_seen() -> None:
    texts = [f'{GPU}.id == "a"', f'{GPU}.id == "b"', f'{GPU}.id > "c"']
    wanted = [claim("c", [request("r", exactly("gpu", 1, text))]) for text in texts]
    claims = [parse_resource_claim(raw) for raw in wanted]
    assert reads_of(claims[:2], no_class) == frozenset([only("id", "a", "b")])
    assert reads_of(claims, no_class) == frozenset(["id"])


def test_texts_that_equal_none_of_those_compared_are_one_for_each_length() -> None:
    texts = frozenset(["abc"])
    assert value_seen("abc", texts) == "abc"
    assert value_seen("xyz", texts) == value_seen("uvw", texts) != "xyz"
    assert value_seen("xy", texts) != value_seen("xyz", texts)
    assert value_seen("äöü", texts) == "äöü"
    assert value_seen("xyz", frozenset(["\0\0\0"])) == "xyz"


def test_attributes_that_are_only_compared_are_known_with_and_without_a_domain() -> None:
    reads: Reads = frozenset([only("id", "a"), "model"])
    names = ("driver.example/id", "uuid")
    assert attributes_among(names, reads) == [("driver.example/id", frozenset({"a"}))]
    assert attributes_among(("x/model", "id"), reads) == [
        ("x/model", None),
        ("id", frozenset({"a"})),
    ]
    assert attributes_among(names, EVERYTHING) == [(name, None) for name in names]


def test_numbers_and_booleans_are_never_taken_for_texts() -> None:
    seen = attributes_seen({"id": 1, "x/id": True, "y/id": "b"}, frozenset({only("id", "a")}))
    assert seen == (("id", int, 1), ("x/id", bool, True), ("y/id", str, "\0"))
