import numpy as np
import pytest

from dra.in_cluster import InCluster
from dra.objects import (
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
)
from mooring.model.events import Kind

GPU = "gpu.example.com"
FABRIC = "fabric.example.com"
NODES = 200


def reading(attribute: str) -> Object:
    selector = f'device.attributes["{GPU}"].?{attribute}.orValue("") != "x"'
    return claim("c", [request("r", exactly("gpu", 1, selector))])


def of_both(*selectors: str) -> Object:
    own, shared = exactly("gpu", 1, *selectors), exactly("fabric")
    return claim("c", [request("own", own), request("shared", shared)])


def fabric(*names: str, pool: str = "fabric") -> Object:
    listed = [device(name) for name in names]
    return resource_slice("shared", {"allNodes": True}, listed, driver=FABRIC, pool=pool)


def many_nodes() -> InCluster:
    names = [f"n{index:03}" for index in range(NODES)]
    classes = [
        device_class("gpu", f'device.driver == "{GPU}"'),
        device_class("fabric", f'device.driver == "{FABRIC}"'),
    ]
    slices = [
        resource_slice(
            f"s-{name}",
            on_node(name),
            [device(f"d{i}", attributes(uuid=f"{name}-{i}", model="a")) for i in range(4)],
            driver=GPU,
            pool=name,
        )
        for name in names
    ]
    given = case([node(name) for name in names], slices, classes, [])
    return InCluster(given, most_per_decision=1_000)


def test_what_claims_read_that_nobody_read_before_is_looked_up_once_and_not_on_each_node() -> None:
    asked = many_nodes()
    _, decisions = asked.in_slices([reading("model")])
    assert decisions > NODES * 20 / 1_000
    for attribute in ("family", "sriov", "health"):
        found, decisions = asked.in_slices([reading(attribute)])
        assert decisions <= 3
        assert found.fits.all()


def test_the_use_of_a_shared_device_is_looked_up_once_and_not_on_each_node() -> None:
    asked = many_nodes()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", "f1", "f2"))
    assert asked.in_slices([of_both()])[0].fits.all()
    for number in range(3):
        held = result(FABRIC, "fabric", f"f{number}")
        asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{number}", [held]))
        found, decisions = asked.in_slices([of_both()])
        assert decisions <= 4
        assert found.fits.all() == found.fits.any() == (number < 2)


def test_nodes_that_uuids_tell_apart_follow_the_use_of_a_shared_device() -> None:
    asked = many_nodes()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0"))
    wanted = of_both(f'device.attributes["{GPU}"].uuid == "n007-3"')
    assert np.flatnonzero(asked.in_slices([wanted])[0].fits).tolist() == [7]
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(FABRIC, "fabric", "f0")]))
    assert not asked.in_slices([wanted])[0].fits.any()
    asked.delete(Kind.RESOURCE_CLAIM, allocated_claim("t", []))
    assert np.flatnonzero(asked.in_slices([wanted])[0].fits).tolist() == [7]


@pytest.mark.parametrize("kept", [1, 16_384])
def test_a_shared_slice_may_change_its_devices_and_its_pool(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.state.dynamic_resources.slices._KEPT", kept)
    asked = many_nodes()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0"))
    assert asked.in_slices([of_both()])[0].fits.all()
    asked.put(Kind.RESOURCE_SLICE, fabric())
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", "f1"))
    asked.put(Kind.RESOURCE_SLICE, fabric())
    assert not asked.in_slices([of_both()])[0].fits.any()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", pool="other"))
    assert asked.in_slices([of_both()])[0].fits.all()
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(FABRIC, "other", "f0")]))
    assert not asked.in_slices([of_both()])[0].fits.any()


def test_a_shared_pool_that_comes_back_under_its_name_is_looked_at_again() -> None:
    asked = many_nodes()
    for number in (1, 0, 2):
        raw = fabric(*(f"f{number}-{i}" for i in range(number)))
        asked.put(Kind.RESOURCE_SLICE, raw)
        assert asked.in_slices([of_both()])[0].fits.all() == (number > 0)
        asked.delete(Kind.RESOURCE_SLICE, raw)
        assert not asked.in_slices([of_both()])[0].fits.any()


def test_nodes_that_went_and_came_are_not_taken_for_those_that_were_there() -> None:
    asked = many_nodes()
    asked.in_slices([reading("model")])
    for index in range(0, NODES, 2):
        asked.delete(Kind.NODE, node(f"n{index:03}"))
    found, _ = asked.in_slices([reading("model")])
    assert found.fits.sum() == NODES // 2
    for index in range(0, NODES, 4):
        asked.put(Kind.NODE, node(f"n{index:03}"))
    asked.put(Kind.NODE, node("without"))
    found, _ = asked.in_slices([reading("model")])
    assert found.fits.sum() == NODES * 3 // 4
