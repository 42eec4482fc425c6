from collections.abc import Mapping
from typing import Any

import pytest

from mooring.model.node import HOSTNAME, ZONE
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node
from mooring.volumes.model.storage_objects import parse_persistent_volume_claim
from mooring.volumes.volume_binding.find_volumes import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    PV_NOT_EXIST,
    PodVolumeClaims,
    PodVolumes,
    find_volumes,
)
from node_selectors import expression, node_selector, term
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

Raw = Mapping[str, Any]

NODES = (node("n1", zone="a"), node("n2", zone="b"))
STATIC = storage_class("static")
MADE = storage_class("made", provisioner="csi.example")


def find(*objects: Raw) -> tuple[PodVolumes, ClusterView]:
    """Return the result of `find_volumes` for all claims among the objects, in their order."""
    cluster_view = ClusterView(cluster(*NODES, *objects))
    raw_claims = [raw for raw in objects if raw["kind"] == "PersistentVolumeClaim"]
    claims = [parse_persistent_volume_claim(raw) for raw in raw_claims]
    sorted_out = PodVolumeClaims(
        tuple(claim for claim in claims if claim.bound),
        tuple(claim for claim in claims if not claim.bound),
        exact=False,
    )
    return find_volumes(sorted_out, cluster_view.nodes, cluster_view), cluster_view


def conflicts(*objects: Raw) -> dict[str, int]:
    found, cluster_view = find(*objects)
    return {cluster_view.nodes.name(i): bits for i, bits in enumerate(found.conflicts.tolist())}


def made_at(*objects: Raw) -> dict[str, set[str]]:
    """Return for each claim that needs a new volume the nodes where it can be created."""
    found, cluster_view = find(*objects)
    return {
        claim.name: {cluster_view.nodes.name(i) for i, here in enumerate(where) if here}
        for claim, where in found.to_provision
    }


def test_without_claims_nothing_is_in_the_way() -> None:
    assert conflicts() == {"n1": 0, "n2": 0}


def test_a_bound_volume_is_had_where_its_node_affinity_says() -> None:
    volume = pv("v", nodes=("n1",), claim="default/data")
    assert conflicts(volume, pvc("data", volume="v")) == {"n1": 0, "n2": NODE_CONFLICT}


def test_a_claim_bound_to_a_volume_that_is_gone_is_in_the_way_everywhere() -> None:
    assert conflicts(pvc("data", volume="v")) == {"n1": PV_NOT_EXIST, "n2": PV_NOT_EXIST}


def test_of_bound_claims_the_first_that_fails_on_a_node_is_its_obstacle() -> None:
    local, gone = pv("v", nodes=("n1",), claim="default/a"), pvc("b", volume="gone")
    found = conflicts(local, pvc("a", volume="v"), gone)
    assert found == {"n1": PV_NOT_EXIST, "n2": NODE_CONFLICT}


def test_an_unbound_claim_takes_a_volume_where_there_is_one() -> None:
    volume = pv("v", nodes=("n1",), storage_class="static")
    found = conflicts(STATIC, volume, pvc("data", storage_class="static"))
    assert found == {"n1": 0, "n2": BIND_CONFLICT}


def test_bound_and_unbound_claims_are_both_in_the_way() -> None:
    volume = pv("v", nodes=("n1",), claim="default/a")
    found = conflicts(STATIC, volume, pvc("a", volume="v"), pvc("b", storage_class="static"))
    assert found == {"n1": BIND_CONFLICT, "n2": NODE_CONFLICT | BIND_CONFLICT}


def test_the_smallest_claim_chooses_first() -> None:
    volumes = [pv(f"v{size}", size=size, storage_class="static") for size in (1, 2)]
    claims = [pvc(f"c{size}", size=size, storage_class="static") for size in (2, 1)]
    found, _ = find(STATIC, *volumes, *claims)
    chosen = {choice.claim.name: choice.at(0) for choice in found.choices}
    assert {claim: volume and volume.name for claim, volume in chosen.items()} == {
        "c1": "v1",
        "c2": "v2",
    }


def test_a_volume_is_made_where_none_can_be_taken() -> None:
    volume = pv("v", nodes=("n1",), storage_class="made")
    claim = pvc("data", storage_class="made")
    assert conflicts(MADE, volume, claim) == {"n1": 0, "n2": 0}
    assert made_at(MADE, volume, claim) == {"data": {"n2"}}


def test_volumes_are_made_only_in_the_topologies_of_their_class() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]
    narrow = storage_class("made", provisioner="csi.example", allowedTopologies=allowed)
    assert conflicts(narrow, pvc("data", storage_class="made")) == {"n1": BIND_CONFLICT, "n2": 0}


def test_a_claim_sent_to_a_node_can_be_had_only_there_and_takes_no_volume() -> None:
    claim = pvc("data", storage_class="made", selected_node="n2")
    objects = (MADE, pv("v", storage_class="made"), claim)
    assert conflicts(*objects) == {"n1": BIND_CONFLICT, "n2": 0}
    assert made_at(*objects) == {"data": {"n2"}}


def test_two_claims_sent_to_different_nodes_can_be_had_nowhere() -> None:
    claims = [pvc(f"c{n}", storage_class="made", selected_node=f"n{n}") for n in (1, 2)]
    assert conflicts(MADE, *claims) == {"n1": BIND_CONFLICT, "n2": BIND_CONFLICT}


def test_a_driver_that_publishes_its_capacity_needs_enough_for_the_volume() -> None:
    objects = (MADE, storage_capacity("c", "made", "1Gi", {HOSTNAME: "n1"}))
    claim = pvc("data", size="1Gi", storage_class="made")
    driver = csi_driver("csi.example", storage_capacity=True)
    assert conflicts(*objects, claim, driver) == {"n1": 0, "n2": NOT_ENOUGH_SPACE}
    assert conflicts(*objects, claim, csi_driver("csi.example")) == {"n1": 0, "n2": 0}
    assert conflicts(*objects, claim) == {"n1": 0, "n2": 0}


def test_a_claim_that_requests_no_size_needs_no_capacity() -> None:
    claim = pvc("data", storage_class="made", spec={"resources": {}})
    driver = csi_driver("csi.example", storage_capacity=True)
    assert conflicts(MADE, claim, driver) == {"n1": 0, "n2": 0}


def test_the_first_claim_that_cannot_be_made_says_why() -> None:
    driver = csi_driver("csi.example", storage_capacity=True)
    claims = (pvc("a", size=1, storage_class="static"), pvc("b", size=2, storage_class="made"))
    assert conflicts(STATIC, MADE, driver, *claims) == {"n1": BIND_CONFLICT, "n2": BIND_CONFLICT}
    claims = (pvc("a", size=2, storage_class="static"), pvc("b", size=1, storage_class="made"))
    assert conflicts(STATIC, MADE, driver, *claims) == {
        "n1": NOT_ENOUGH_SPACE,
        "n2": NOT_ENOUGH_SPACE,
    }


@pytest.mark.parametrize(("migrated", "expected"), [((), NODE_CONFLICT), (("gce",), 0)])
def test_an_in_tree_volume_goes_by_its_drivers_zone_where_its_plugin_is_migrated(
    migrated: tuple[str, ...], expected: int
) -> None:
    required = node_selector(term(expression(ZONE, "In", "z")))
    spec = {"gcePersistentDisk": {"pdName": "d"}, "nodeAffinity": {"required": required}}
    found = conflicts(
        node("n3", labels={"topology.gke.io/zone": "z"}),
        csi_node("n3", {}, migrated=[f"kubernetes.io/{plugin}-pd" for plugin in migrated]),
        pv("v", claim="default/data", spec=spec),
        pvc("data", volume="v"),
    )
    assert found == {"n1": NODE_CONFLICT, "n2": NODE_CONFLICT, "n3": expected}
