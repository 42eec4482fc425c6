from collections.abc import Iterator

import pytest

from conformance.scenes.draw import Draw
from dra.families import FAMILIES
from dra.in_cluster import KINDS, InCluster
from dra.objects import Case, Object, claim, device_class, exactly, request
from dra.oracle import VERSIONS
from mooring.model.events import Kind
from mooring.plugins.dynamic_resources import fleet
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.answers import Answer

STEPS = 40
CHANGING = (
    "counts",
    "generations",
    "counters",
    "consumable_capacity",
    "shared_partitions",
    "places",
    "invalid_pools",
    "taints",
)


def changes(draw: Draw, given: Case) -> Iterator[tuple[Kind, Object, bool]]:
    """Yield objects to be put, or (False) deleted, in any order, some of them changed."""
    listed = [(kind, raw) for field, kind in KINDS.items() for raw in given[field]]
    for _ in range(STEPS):
        kind, raw = draw.choice(listed)
        if kind is Kind.NODE and draw.chance(0.5):
            labels = {**raw["metadata"]["labels"], "zone": draw.choice("ab")}
            raw = {**raw, "metadata": {**raw["metadata"], "labels": labels}}
        if kind is Kind.RESOURCE_SLICE and draw.chance(0.3):
            pool = {**raw["spec"]["pool"], "generation": draw.randint(1, 3)}
            raw = {**raw, "spec": {**raw["spec"], "pool": pool}}
        yield kind, raw, draw.chance(0.7)


def shapes(answers: list[Answer]) -> list[object]:
    return [
        [[each.request for each in one.results] for one in answer]
        if isinstance(answer, list)
        else answer and answer.text
        for answer in answers
    ]


@pytest.mark.parametrize("minor", VERSIONS)
@pytest.mark.parametrize("family", CHANGING)
def test_patterns_follow_every_change(family: str, minor: str) -> None:
    follow_changes(family, minor)


def follow_changes(family: str, minor: str, most: int | None = None, **bounds: int) -> None:
    for number in range(4):
        draw = Draw(f"changes/{family}/{number}")
        given = FAMILIES[family](draw)
        asked = InCluster(None, minor, most, **bounds)
        for raw in given["classes"]:
            asked.put(Kind.DEVICE_CLASS, raw)
        for kind, raw, stays in changes(draw, given):
            if stays:
                asked.put(kind, raw)
            elif kind is not Kind.DEVICE_CLASS:
                asked.delete(kind, raw)
            try:
                expected = shapes(asked.by_node(given["claims"]))
            except AllocationError:
                with pytest.raises(AllocationError):
                    asked.in_slices(given["claims"])
                continue
            found, _ = asked.in_slices(given["claims"])
            assert shapes([found.of(row) for row in range(len(expected))]) == expected


@pytest.mark.parametrize("family", CHANGING)
def test_patterns_that_are_made_in_slices_follow_every_change(family: str) -> None:
    follow_changes(family, "1.37", most=1)


def test_numbers_begin_anew_when_too_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_MOST_PATTERNS", 1)
    follow_changes("counts", "1.37", most_bytes=1)


def test_what_the_nodes_need_is_kept_however_much_it_is() -> None:
    asked = InCluster(FAMILIES["counts"](Draw("needed")), most_per_decision=1, most_bytes=1)
    claims = [claim("c", [request("r", exactly("gpu"))])]
    asked.put(Kind.DEVICE_CLASS, device_class("gpu"))
    asked.in_slices(claims)
    assert asked.in_slices(claims)[1] == 1
