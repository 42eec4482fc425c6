import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.chosen_pods import EVERY_POD, ChosenPods
from mooring.simulate.compare import Comparison, arrival_order, compare, recorded_order
from mooring.simulate.inputs import inputs_of
from mooring.simulate.load_profiles import LoadedProfile, load_profiles
from mooring.simulate.manifests import InputError, Manifest
from mooring.testing.builders import api_object, node, pod
from node_selectors import expression, required_nodes, term

REGISTRY = Registry(SHIPPED, {})


def policy(name: str = "mine", **spec: Any) -> list[LoadedProfile]:
    raw = api_object("SchedulingProfile", name, spec=spec)
    raw["apiVersion"] = "scheduling.mooring.dev/v1alpha1"
    return load_profiles([Manifest(name, raw)], REGISTRY)


SPREAD = policy("spread")
PACKED = policy(
    "packed",
    plugins={"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 100}]}},
    pluginConfig=[
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    ],
)


def compared(
    objects: Sequence[dict[str, Any]],
    old: list[LoadedProfile] = SPREAD,
    new: list[LoadedProfile] = PACKED,
    selection: ChosenPods = EVERY_POD,
    **options: Any,
) -> Comparison:
    inputs = inputs_of([Manifest("file", raw) for raw in objects], REGISTRY)
    return compare(inputs, REGISTRY, old, new, selection=selection, **options)


def nodes(count: int = 4, **fields: Any) -> list[dict[str, Any]]:
    return [node(f"n{i}", cpu="4", memory="4Gi", **fields) for i in range(count)]


def pods(count: int = 4, **fields: Any) -> list[dict[str, Any]]:
    return [pod(f"p{i}", cpu="1", memory="1Gi", **fields) for i in range(count)]


def test_packing_leaves_nodes_empty_that_spreading_uses() -> None:
    comparison = compared([*nodes(), *pods(node="n0")])
    ((old, new),) = comparison.pools.values()
    assert (old.nodes, old.empty, new.empty) == (4, 0, 3)
    assert old.cpu == new.cpu == 0.25
    assert comparison.pods == 4
    assert len(comparison.moved) == 3
    assert comparison.utilisation == (
        (0, 0, 4, 0, 0, 0, 0, 0, 0, 0),
        (3, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    )


def test_fragmentation_is_the_share_of_large_pods_that_fit_on_no_node() -> None:
    large = pod("large", cpu="4", memory="1Gi", priority=5)
    small = [pod(f"s{i}", cpu="1", memory="1Mi") for i in range(3)]
    comparison = compared([*nodes(), large, *small])
    ((old, new),) = comparison.pools.values()
    assert old.fragmentation == 1.0
    assert new.fragmentation == 0.0


def with_claims(count: int, *free: int) -> list[dict[str, Any]]:
    """Return a node for each of `free` with this number of free devices, and pods with a device."""
    entries = [[{"name": "gpu", "resourceClaimName": f"c{i}"}] for i in range(count)]
    names = [[f"d{number}" for number in range(most + 1)] for most in free]
    return [
        device_class("gpu"),
        *nodes(count),
        *(resource_slice(f"s{i}", some, node=f"n{i}") for i, some in enumerate(names)),
        *(
            device_claim(f"c{i}", allocation=allocated("d0", node=f"n{i}"), reserved_for=[f"p{i}"])
            for i in range(count)
        ),
        *(
            pod(f"p{i}", cpu="1", memory="1Gi", node=f"n{i}", spec={"resourceClaims": entries[i]})
            for i in range(count)
        ),
    ]


def test_pods_with_claims_move_to_where_devices_are_free() -> None:
    ((old, new),) = compared(with_claims(4, 3, 3, 3, 3)).pools.values()
    assert (old.empty, new.empty) == (0, 3)
    scarce = compared(with_claims(4, 0, 0, 0, 0))
    ((old, new),) = scarce.pools.values()
    assert (old.empty, new.empty, scarce.lost) == (0, 0, ())


def test_equal_pods_that_change_places_with_each_other_do_not_move() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "u"}
    objects = [*nodes(2), *pods(2, owner=owner)]
    assert compared(objects, SPREAD, SPREAD).moves == ()
    assert len(compared(objects).moves) == 1


def test_a_pod_that_loses_its_place_has_the_reason() -> None:
    added = required_nodes(term(expression("a", "Exists")))["nodeAffinity"]
    strict = policy(
        "strict", pluginConfig=[{"name": "NodeAffinity", "args": {"addedAffinity": added}}]
    )
    objects = [*nodes(1), *pods(1)]
    (lost,) = compared(objects, SPREAD, strict).lost
    assert (lost.pod, lost.old, lost.new) == ("default/p0", "n0", None)
    assert lost.reason == "node(s) didn't match scheduler-enforced node affinity"
    (gained,) = compared(objects, strict, SPREAD).gained
    assert (gained.old, gained.new) == (None, "n0")


def test_pools_are_told_by_known_labels_or_by_the_one_given() -> None:
    objects = [
        node("a", labels={"karpenter.sh/nodepool": "x", "rack": "1"}),
        node("b", labels={"eks.amazonaws.com/nodegroup": "y", "rack": "1"}),
        node("c"),
        pod(),
    ]
    assert [*compared(objects).pools] == ["(none)", "x", "y"]
    assert [*compared(objects, pool_label="rack").pools] == ["(none)", "1"]


def test_only_the_pods_of_the_records_are_replayed_in_their_order() -> None:
    objects = [*nodes(1), *pods(4, node="n0"), pod("p9", cpu="4", node="n0")]
    small = [node("n0", cpu="2"), *objects[1:]]
    comparison = compared(small, order=["default/p2", "default/gone", "default/p1"])
    assert comparison.pods == 2
    assert {move.pod for move in comparison.moves} <= {"default/p1", "default/p2"}


def test_without_a_pod_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="there is no pod to compare"):
        compared([*nodes(), pod()], selection=ChosenPods("shop"))


def test_several_profiles_decide_about_the_pods_that_they_match() -> None:
    both = [*policy("a"), *policy("b")]
    with pytest.raises(InputError, match="there is no pod to compare"):
        compared([*nodes(), *pods()], both, both)
    assert compared([*nodes(), *pods()], both, both, as_profile="a").pods == 4


def test_profiles_in_mode_shadow_take_the_pods_that_they_match() -> None:
    old = [*policy("default-scheduler"), *policy("other")]
    new = [*policy("default-scheduler", mode="Shadow"), *policy("other")]
    assert not compared([*nodes(), *pods()], old, new).lost


def test_a_policy_that_cannot_be_tried_is_named() -> None:
    def broken(*_: object) -> Any:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        compared([*nodes(), *pods()], progress=broken)


def test_the_document_has_every_move_and_both_uses_of_each_pool() -> None:
    document = json.loads(json.dumps(compared([*nodes(2), *pods(2)]).document()))
    assert document["summary"] == {"moved": 1, "lost": 0, "gained": 0}
    assert document["moves"][0].keys() == {"pod", "old", "new", "reason"}
    assert document["pools"]["(none)"]["old"]["emptyNodes"] == 0
    assert sum(document["nodesByCpu"]["new"]) == 2


def test_records_give_the_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    records = [
        {"pod": "a/late", "time": "2026-01-01T00:00:02.000+00:00"},
        {"pod": "a/early", "time": "2026-01-01T00:00:01.000+00:00"},
        {"pod": "a/late", "time": "2026-01-01T00:00:03.000+00:00"},
    ]
    path.write_text(json.dumps({"decisions": records}))
    assert recorded_order(str(path)) == ["a/early", "a/late"]
    seen = [
        {"pod": "a/third", "seen": "2026-01-02", "time": "2026-01-03"},
        {"pod": "a/second", "seen": "2026-01-01", "time": "2026-01-05"},
        {"pod": "a/first", "seen": "2026-01-01", "time": "2026-01-04"},
    ]
    assert arrival_order(seen) == ["a/first", "a/second", "a/third"]
    for text in ("{}", "[", '{"decisions": [1]}'):
        path.write_text(text)
        with pytest.raises(InputError, match="holds no decision records"):
            recorded_order(str(path))
