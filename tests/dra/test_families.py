import json

import pytest

from dra.families import FAMILIES, drawn
from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice


def test_the_same_seed_draws_the_same_cases_and_another_one_others() -> None:
    first, again, other = (
        [json.dumps(case) for case in drawn(len(FAMILIES), seed)] for seed in ("1", "1", "2")
    )
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))


def test_the_families_take_turns_unless_some_are_named() -> None:
    assert [case["family"] for case in drawn(len(FAMILIES), "1")] == list(FAMILIES)
    assert [case["id"] for case in drawn(3, "1", ["taints", "counts"])] == [
        "taints-0",
        "counts-0",
        "taints-1",
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_object_can_be_parsed_and_has_a_name_of_its_own(family: str) -> None:
    for case in drawn(20, "parsed", [family]):
        slices = [parse_resource_slice(raw) for raw in case["slices"]]
        claims = [parse_resource_claim(raw) for raw in (*case["claims"], *case["allocated"])]
        classes = [parse_device_class(raw) for raw in case["classes"]]
        for parsed in (slices, claims, classes):
            assert len({each.name for each in parsed}) == len(parsed)
