from dra.objects import Object, attributes, device, on_node, resource_slice
from mooring.model.resource_claims import DeviceId, DeviceResult
from mooring.model.resource_slices import ResourceSlice, parse_resource_slice
from mooring.plugins.dynamic_resources.looks import UNLIKE, Looks
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

GPU = "gpu.example.com"


def slice_of(name: str, *, pool: str | None = None, models: str = "aa", **spec: object) -> Object:
    listed = [
        device(f"d{i}", attributes(uuid=f"{name}-{i}", model=model))
        for i, model in enumerate(models)
    ]
    where = {} if "allNodes" in spec else on_node(name)
    raw = resource_slice(f"slice-of-{name}", where, listed, pool=pool or name)
    raw["spec"] |= spec
    return raw


def parsed(raw: Object) -> ResourceSlice:
    uid = {"uid": raw["metadata"]["name"]}
    return parse_resource_slice({**raw, "metadata": {**raw["metadata"], **uid}})


def in_use(*devices: tuple[str, str]) -> AllocatedDevices:
    found = AllocatedDevices()
    for pool, name in devices:
        found.put(f"{pool}/{name}", [DeviceResult("r", DeviceId(GPU, pool, name))])
    return found


def test_nodes_look_alike_if_their_devices_differ_by_uuids_and_are_in_use_alike() -> None:
    looks, a, b = Looks(), parsed(slice_of("a")), parsed(slice_of("b"))
    free = in_use()
    assert looks.of([a], {}, free) == looks.of([b], {}, free)
    assert looks.is_individual(looks.of([a], {}, free))
    used = in_use(("a", "d0"), ("b", "d0"))
    assert looks.of([a], {}, used) == looks.of([b], {}, used) != looks.of([a], {}, free)
    assert looks.of([a], {}, used) != looks.of([b], {}, in_use(("b", "d1")))
    assert looks.of([parsed(slice_of("c", models="ab"))], {}, free) != looks.of([a], {}, free)
    assert looks.count == 4


def test_nodes_look_alike_if_they_share_the_same_slices_whatever_is_in_use_of_them() -> None:
    looks, a, b = Looks(), parsed(slice_of("a")), parsed(slice_of("b"))
    fabric, other = (parsed(slice_of(name, allNodes=True)) for name in ("fabric", "other"))
    shared = {(GPU, "fabric"): [fabric]}
    look = looks.of([a], shared, in_use())
    assert look == looks.of([b], shared, in_use(("fabric", "d0")))
    assert look != looks.of([a], {}, in_use())
    assert look != looks.of([a], {(GPU, "other"): [other]}, in_use())
    assert [*looks.with_pool((GPU, "fabric"))] == [look]
    assert {*looks.pools} == {(GPU, "fabric"), (GPU, "other")}


def test_a_shared_pool_comes_before_or_behind_a_nodes_own_as_in_the_search() -> None:
    looks, shared = Looks(), {(GPU, "m"): [parsed(slice_of("m", allNodes=True))]}
    before, behind = (looks.of([parsed(slice_of(n))], shared, in_use()) for n in ("a", "z"))
    assert before != behind
    assert before == looks.of([parsed(slice_of("b"))], shared, in_use())


def test_slices_that_leave_nodes_to_devices_do_not_tell_and_nor_does_half_a_pool() -> None:
    looks = Looks()
    each = parsed(slice_of("a", perDeviceNodeSelection=True))
    assert looks.of([each], {}, in_use()) == UNLIKE
    assert looks.of([parsed(slice_of("a"))], {(GPU, "a"): [each]}, in_use()) == UNLIKE
    assert looks.of(None, {}, in_use()) == UNLIKE
    assert looks.count == 0
