from collections.abc import Mapping
from typing import Any

import pytest

from mooring.framework.hints import queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import BETA_REGION, BETA_ZONE, REGION, ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle
from mooring.volumes.volume_zone import VolumeZone
from plugin_answers import PluginAnswers, Rejected
from storage_builders import pv, pvc, storage_class

Raw = Mapping[str, Any]

ELSEWHERE = Rejected(("node(s) had no available volume zone",), resolvable=False)


def rejected(labels: dict[str, str], *nodes: Raw) -> set[str] | None:
    """Return the nodes that the filter rejects for a pod with a volume with these labels."""
    claim = (pv("v", labels=labels), pvc("data", volume="v"))
    rejections = PluginAnswers(VolumeZone, *nodes, *claim).rejections(pod(claims=["data"]))
    assert rejections is None or set(rejections.values()) <= {ELSEWHERE}
    return None if rejections is None else set(rejections)


A, B = node("a", zone="a"), node("b", zone="b")
NO_AFFINITY = node("nowhere")


def test_a_node_must_be_in_the_volumes_zone() -> None:
    assert rejected({ZONE: "a"}, A, B) == {"b"}


def test_a_volume_may_be_in_several_zones() -> None:
    assert rejected({ZONE: "b__c"}, A, B) == {"a"}


def test_a_node_that_says_nothing_of_where_it_is_may_have_every_volume() -> None:
    assert rejected({ZONE: "c"}, A, NO_AFFINITY) == {"a"}


def test_a_node_that_says_something_else_of_where_it_is_may_not() -> None:
    assert rejected({ZONE: "a"}, node("n", labels={REGION: "r"})) == {"n"}


def test_zone_and_region_must_both_be_right() -> None:
    nodes = [node(f"n{r}", zone="a", labels={REGION: r}) for r in ("r1", "r2")]
    assert rejected({ZONE: "a", REGION: "r1"}, *nodes) == {"nr2"}


def test_a_volumes_beta_label_is_looked_for_under_the_current_one_too() -> None:
    beta = node("beta", labels={BETA_ZONE: "a", BETA_REGION: "r"})
    both = node("both", zone="b", labels={BETA_ZONE: "a"})
    assert rejected({BETA_ZONE: "a"}, A, B, beta, both) == {"b"}


def test_a_volumes_current_label_is_not_looked_for_under_the_beta_one() -> None:
    assert rejected({ZONE: "a"}, node("beta", labels={BETA_ZONE: "a"})) == {"beta"}


def test_a_label_with_an_empty_part_says_nothing() -> None:
    assert rejected({ZONE: "a__"}, A, B) is None


def test_a_volume_without_such_labels_is_skipped() -> None:
    assert rejected({"disk": "ssd"}, A, B) is None


def test_a_pod_without_claims_is_skipped() -> None:
    asking = PluginAnswers(VolumeZone, A)
    assert asking.rejections(pod()) is None
    ephemeral = {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}
    assert asking.rejections(pod(spec=ephemeral)) is None


def test_a_claim_that_waits_for_its_consumer_is_skipped() -> None:
    late = (storage_class("late"), pvc("data", storage_class="late"))
    assert PluginAnswers(VolumeZone, A, *late).rejections(pod(claims=["data"])) is None


@pytest.mark.parametrize(
    ("objects", "claim", "reason"),
    [
        ((), "", "PersistentVolumeClaim had no name"),
        ((), "data", 'persistentvolumeclaim "data" not found'),
        ((pvc("data", volume="v"),), "data", 'persistentvolume "v" not found'),
        ((pvc("data"),), "data", "PersistentVolumeClaim had no pv name and storageClass name"),
        (
            (pvc("data", storage_class="x"),),
            "data",
            'storageclass.storage.k8s.io "x" not found',
        ),
        (
            (pvc("data", storage_class="now"), storage_class("now", waits=False)),
            "data",
            "PersistentVolume had no name",
        ),
    ],
)
def test_a_volume_that_cannot_be_known_keeps_the_pod_from_every_node(
    objects: tuple[Raw, ...], claim: str, reason: str
) -> None:
    state = cluster(A, *objects)
    plugin = VolumeZone(NoArgs(), handle(state))
    said = plugin.pre_filter(parse_pod(pod(claims=[claim])), ClusterView(state))
    assert said == Unschedulable(reason, resolvable=False)


def test_a_profile_may_disable_pre_filter() -> None:
    asking = PluginAnswers(VolumeZone, A, B, pv("v", labels={ZONE: "a"}), pvc("data", volume="v"))
    assert asking.rejections(pod(claims=["data"]), pre_filter=False) == {"b": ELSEWHERE}
    assert asking.rejections(pod(), pre_filter=False) == {}
    missing = Rejected(('persistentvolumeclaim "none" not found',), resolvable=False)
    assert asking.rejections(pod(claims=["none"]), pre_filter=False) == {"a": missing, "b": missing}


def event(kind: Kind, before: Raw | None, after: Raw) -> ClusterEvent:
    parsed = [raw and parse_object(kind, raw) for raw in (before, after)]
    return ClusterEvent(kind, Action.ADD if before is None else Action.UPDATE, *parsed)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event(Kind.STORAGE_CLASS, None, storage_class("late")), True),
        (event(Kind.STORAGE_CLASS, None, storage_class("now", waits=False)), False),
        (event(Kind.STORAGE_CLASS, storage_class("c", waits=False), storage_class("c")), True),
        (event(Kind.STORAGE_CLASS, storage_class("c"), storage_class("c", waits=False)), False),
        (event(Kind.STORAGE_CLASS, storage_class("c"), storage_class("c")), False),
        (event(Kind.NODE, None, A), True),
        (event(Kind.NODE, A, node("a", zone="b")), True),
        (event(Kind.NODE, A, node("a", zone="a", cpu="9")), False),
        (event(Kind.NODE, A, node("a", zone="a", labels={"disk": "ssd"})), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data")), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, pvc("data"), pvc("data", volume="v")), True),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("other")), False),
        (event(Kind.PERSISTENT_VOLUME_CLAIM, None, pvc("data", namespace="team-a")), False),
        (event(Kind.PERSISTENT_VOLUME, None, pv("v")), True),
        (event(Kind.PERSISTENT_VOLUME, pv("v"), pv("v", labels={ZONE: "a"})), True),
        (event(Kind.PERSISTENT_VOLUME, pv("v"), pv("v", labels={"disk": "ssd"})), False),
    ],
)
def test_events_about_zones_of_volumes_and_nodes_queue(
    happened: ClusterEvent, *, expected: bool
) -> None:
    state = cluster()
    plugin = VolumeZone(NoArgs(), handle(state))
    assert (happened.kind, happened.action) in plugin.events_to_register
    assert plugin.queueing_hint(
        parse_pod(pod(claims=["data"])), happened, ClusterView(state)
    ) is queue_if(expected)
