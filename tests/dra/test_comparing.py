from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from dra.asking import ask
from dra.comparing import differences
from dra.families import FAMILIES
from dra.objects import case, node
from dra.oracle import VERSIONS
from dra.recorded import Recorded, read

CASE = case([node("a"), node("b")], [], [], [])
DEVICE: Mapping[str, Any] = {"driver": "d", "pool": "p", "device": "x"}


def answer(*devices: Mapping[str, Any]) -> dict[str, Any]:
    return {"allocations": [{"devices": {"results": [*devices]}}]}


@cache
def recorded() -> Mapping[str, Sequence[Recorded]]:
    listed = list(read())
    return {
        family: [each for each in listed if each.case["family"] == family] for family in FAMILIES
    }


@pytest.mark.parametrize("minor", VERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_recorded_answer_is_given_device_for_device(family: str, minor: str) -> None:
    for each, by_version in recorded()[family]:
        expected = [[answer] for answer in by_version[minor]]
        assert differences(each, expected, ask(each, minor)) == [], each["id"]


def test_another_device_on_one_node_is_a_difference_of_that_node() -> None:
    other = {**DEVICE, "device": "y"}
    found = differences(CASE, [[answer(DEVICE)], [answer(DEVICE)]], [answer(DEVICE), answer(other)])
    assert len(found) == 2
    assert found[0].startswith("b: kube-scheduler ")
    assert '"device": "y"' in found[1]


@pytest.mark.parametrize(
    "wrong", [{}, {"error": "e"}, {"error": "no", "nodeOnly": True}, answer(DEVICE, DEVICE)]
)
def test_no_devices_more_devices_and_other_errors_are_differences(wrong: dict[str, Any]) -> None:
    assert differences(CASE, [[answer(DEVICE)], [{}]], [wrong, {}]) != []
    assert differences(CASE, [[{"error": "no"}], [{}]], [wrong, {}]) != []


def test_empty_fields_are_as_good_as_absent() -> None:
    expected: list[list[dict[str, Any]]] = [[{"allocations": [{}]}], [{}]]
    assert differences(CASE, expected, [answer(), {}]) == []


def test_any_of_several_answers_is_right() -> None:
    several = [answer(DEVICE), {"error": "either"}]
    assert differences(CASE, [several, [{}]], [{"error": "either"}, {}]) == []
    assert differences(CASE, [several, [{}]], [{"error": "or"}, {}]) != []


@pytest.mark.parametrize("reason", [{"timedOut": True}, {"panic": "makeslice"}])
def test_where_kube_scheduler_has_no_answer_devices_are_a_difference(reason: Any) -> None:
    for right in ({}, {"error": "too many devices"}):
        assert differences(CASE, [[reason], [{}]], [right, {}]) == []
    assert differences(CASE, [[reason], [{}]], [answer(DEVICE), {}]) != []
