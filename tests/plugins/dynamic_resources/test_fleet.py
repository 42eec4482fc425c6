from collections.abc import Iterator

import numpy as np
import pytest

from conformance.scenes.draw import Draw
from dra.families import FAMILIES
from dra.in_cluster import KINDS, InCluster
from dra.objects import (
    Case,
    Object,
    allocated_claim,
    attributes,
    case,
    claim,
    device,
    device_class,
    exactly,
    node,
    on_node,
    request,
    resource_slice,
    result,
    selected_by,
)
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


GPU = "gpu.example.com"
NIC = "nic.example.com"
OF_GPU = f'device.driver == "{GPU}" && device.attributes["{GPU}"]'
IN_ZONE = selected_by("zone", "a")
WANTED = (
    claim("c", [request("r", exactly("any", 2))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.model == "b"'))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid < "n3"'))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid == "n3-{GPU}-01"'))]),
)
"""Claims that read nothing, what is common to devices, what is individual, and compare that."""


def like_nodes(draw: Draw, names: list[str]) -> Iterator[Object]:
    """Yield slices of a few kinds for these nodes, whose devices have individual UUIDs."""
    for name in names:
        for driver in draw.some([GPU, NIC], 1, 2):
            parts = 1 + draw.chance(0.3)
            model, pool = draw.choice("ab"), draw.choice([name, "pool-of-" + name])
            for part in range(parts):
                listed = [
                    device(
                        f"d{part}{i}", attributes(uuid=f"{name}-{driver}-{part}{i}", model=model)
                    )
                    for i in range(2)
                ]
                yield resource_slice(
                    f"{draw.choice('xy')}-{name}-{driver}-{part}",
                    on_node(name),
                    listed,
                    driver=driver,
                    pool=pool,
                    generation=draw.choice([1, 1, 1, 2]),
                    count=1 if pool == name else 2,
                )
        if draw.chance(0.2):
            listed = [device(f"d0{i}", attributes(uuid=f"x{i}", model="a")) for i in range(3)]
            pool, where = draw.choice(["m", "n3"]), draw.choice([{"allNodes": True}, IN_ZONE])
            yield resource_slice("shared", where, listed, driver=NIC, pool=pool)


@pytest.mark.parametrize("number", range(24))
def test_nodes_that_are_alike_have_the_answers_of_each(number: int) -> None:
    draw, names = Draw(f"alike/{number}"), [f"n{index}" for index in range(6)]
    nodes = [node(each, zone=draw.choice("ab")) for each in names]
    asked = InCluster(case(nodes, [], [device_class("any")], []))
    for raw in like_nodes(draw, names * 3):  # the later ones take the place of earlier ones
        asked.put(Kind.RESOURCE_SLICE, raw)
        pool = raw["spec"]["pool"]["name"]
        held = result(raw["spec"]["driver"], pool, draw.choice(["d00", "d01"]))
        if draw.chance(0.4):
            asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{draw.randint(0, 3)}", [held]))
        for wanted in WANTED:
            expected = shapes(asked.by_node([wanted]))
            found = asked.by_pattern([wanted])
            assert shapes([found.of(row) for row in range(len(expected))]) == expected


def many_like_nodes(count: int) -> InCluster:
    names = [f"n{index:03}" for index in range(count)]
    asked = InCluster(
        case([node(each) for each in names], [], [device_class("any")], []), most_per_decision=1_000
    )
    for name in names:
        asked.put(Kind.RESOURCE_SLICE, like_slice(name))
    return asked


def like_slice(name: str, model: str = "a") -> Object:
    listed = [device(f"d{i}", attributes(uuid=f"{name}-{i}", model=model)) for i in range(8)]
    return resource_slice(f"s-{name}", on_node(name), listed, pool=name)


def test_a_changed_slice_costs_only_the_nodes_of_its_pool() -> None:
    asked = many_like_nodes(200)
    _, decisions = asked.in_slices([WANTED[1]])
    assert 10 < decisions < 60  # two to five rows in each, and a hundredth of that to look at each
    for model in "ba":
        asked.put(Kind.RESOURCE_SLICE, like_slice("n007", model))
        found, decisions = asked.in_slices([WANTED[1]])
        assert decisions < 10
        assert found.fits.tolist() == [row == 7 and model == "b" for row in range(200)]


def test_a_selector_that_compares_uuids_makes_only_the_node_different_that_has_one() -> None:
    asked = many_like_nodes(50)
    wanted = claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid == "n007-3"'))])
    found, _ = asked.in_slices([wanted])
    assert np.flatnonzero(found.fits).tolist() == [7]
    assert len(found.by_pattern()[0]) == 2
