"""The running pods that may be moved, and the reasons why others may not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from device_builders import allocated, device_claim
from mooring.model.node import HOSTNAME, ZONE, parse_node
from mooring.model.pod import parse_pod
from mooring.rebalancing.movable import (
    Movable,
    created_anew,
    labels_anew,
    left_to_others,
)
from mooring.testing.builders import (
    namespace,
    node,
    pdb,
    pod,
    pod_group,
    toleration,
    uid_of,
)
from replanning import NOW, Replanning, owned
from storage_builders import pvc

LABELS = {"app": "web"}


def refusal(
    *objects: Mapping[str, Any],
    pods: Mapping[str, Any] | None = None,
    resting: Sequence[str] = (),
    now: float = NOW,
    **spec: Any,
) -> str | None:
    """Return why the pod `web` may not be moved in a cluster with these objects."""
    replanning = Replanning(node("a"), *objects, rebalancing={"pods": pods or {}}, **spec)
    placed = replanning.cluster.pod(uid_of("web"))
    assert placed is not None
    section, cluster = replanning.section, replanning.cluster
    return Movable(section, cluster, replanning.pipeline, resting, lambda: now).refusal(placed.pod)


def test_an_ordinary_pod_of_a_replica_set_may_be_moved() -> None:
    assert refusal(owned("web", node="a")) is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"owner": None}, "has no controller that would replace it"),
        ({"kind": "DaemonSet"}, "belongs to its node"),
        ({"kind": "Node"}, "belongs to its node"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "belongs to its node"),
        ({"kind": "Job"}, "has a controller of a kind that pods.owners does not name"),
        ({"terminating": True}, "is leaving its node already"),
        (
            {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
            "has an annotation against being disrupted",
        ),
        (
            {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "has an annotation against being disrupted",
        ),
        ({"group": "train"}, "is a member of a pod group"),
        (
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}},
            "would lose the data that it keeps on its node",
        ),
    ],
)
def test_what_a_pod_is_keeps_it_on_its_node(fields: dict[str, Any], why: str) -> None:
    kind = fields.pop("kind", "ReplicaSet")
    made = (
        pod("web", node="a") if "owner" in fields else owned("web", node="a", kind=kind, **fields)
    )
    assert refusal(pod_group("train"), made) == why


def test_the_section_selects_pods_namespaces_owners_and_allows_local_storage() -> None:
    local = {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}
    web, job = owned("web", node="a", labels=LABELS, spec=local), owned("web", node="a", kind="Job")
    assert refusal(web, pods={"localStorage": True}) is None
    assert refusal(job, pods={"owners": ["Job"]}) is None
    web = owned("web", node="a", labels=LABELS)
    other = {"podSelector": {"matchLabels": {"app": "db"}}}
    assert refusal(web, pods=other) == "is not selected by pods.podSelector"
    production = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
    assert refusal(web, pods=production) == (
        "is in a namespace that pods.namespaceSelector does not select"
    )
    assert refusal(web, namespace("default", {"env": "prod"}), pods=production) is None


@pytest.mark.parametrize(
    ("kind", "grace", "stays"),
    [("StatefulSet", 300, False), ("StatefulSet", 301, True), ("ReplicaSet", 10**9, False)],
)
def test_a_pod_that_may_terminate_for_longer_than_its_replacement_is_awaited_stays(
    kind: str, grace: int, *, stays: bool
) -> None:
    """Its move would block all other moves until the pod has gone."""
    web = owned("web", node="a", kind=kind, spec={"terminationGracePeriodSeconds": grace})
    why = "may take longer than limits.replacementSeconds to terminate"
    assert refusal(web) == (why if stays else None)


def test_young_pods_and_those_that_were_moved_lately_are_left_alone() -> None:
    web = owned("web", node="a")
    created = parse_pod(web).created
    young = "is younger than pods.minimumAgeSeconds"
    assert refusal(web, pods={"minimumAgeSeconds": 100}, now=created + 99) == young
    assert refusal(web, pods={"minimumAgeSeconds": 100}, now=created + 100) is None
    for resting in (uid_of("web"), "ReplicaSet-web"):
        assert refusal(web, resting=[resting]) == "was moved, or could not be, a short time ago"


def test_a_disruption_budget_must_allow_an_eviction_and_be_the_only_one() -> None:
    web = owned("web", node="a", labels=LABELS)
    assert refusal(web, pdb("one", LABELS, allowed=1)) is None
    why = "has a disruption budget that allows no eviction now"
    assert refusal(web, pdb("one", LABELS, allowed=0)) == why
    why = "has several disruption budgets, and is never evicted therefore"
    assert refusal(web, pdb("one", LABELS, allowed=1), pdb("two", LABELS, allowed=1)) == why


NAMED = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
IN_USE = "has a claim that its replacement would find in use"


@pytest.mark.parametrize(("kind", "why"), [("ReplicaSet", IN_USE), ("StatefulSet", None)])
def test_a_pod_that_alone_uses_devices_of_a_claim_by_name_stays_if_its_replacement_comes_first(
    kind: str, why: str | None
) -> None:
    of_a, everywhere = allocated("g1", node="a"), allocated("g1")
    web = owned("web", kind=kind, node="a", spec=NAMED)

    def said(allocation: Mapping[str, Any], *users: str) -> str | None:
        return refusal(web, device_claim("gpu", allocation=allocation, reserved_for=users))

    assert said(of_a, "web") == why
    assert said(everywhere, "web") is None
    assert said(of_a, "web", "other") is None, "the devices are not free when it has gone"


def test_a_pod_with_a_claim_of_its_template_may_be_moved() -> None:
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu"}]}
    allocation = allocated("g1", node="a")
    claim = device_claim("web-gpu", owner="web", allocation=allocation, reserved_for=["web"])
    assert refusal(owned("web", node="a", spec=spec, status=status), claim) is None


@pytest.mark.parametrize(("kind", "why"), [("ReplicaSet", IN_USE), ("StatefulSet", None)])
def test_a_pod_with_a_volume_for_one_pod_stays_if_its_replacement_comes_first(
    kind: str, why: str | None
) -> None:
    web = owned("web", kind=kind, node="a", spec=VOLUME)
    assert refusal(web, pvc("data", modes=["ReadWriteOncePod"])) == why
    assert refusal(web, pvc("data")) is None


@pytest.mark.parametrize("labels", [{}, LABELS])
def test_a_budget_with_an_empty_selector_is_for_all_pods(labels: dict[str, str]) -> None:
    """The Eviction API, which moves pods, reads empty selectors in this way."""
    why = "has a disruption budget that allows no eviction now"
    web = owned("web", node="a", labels=labels)
    assert refusal(web, pdb("all", {}, selector={}, allowed=0)) == why
    assert refusal(web, pdb("all", {}, selector={}, allowed=1)) is None


def test_pods_that_an_extender_is_asked_about_are_not_moved() -> None:
    why = "is decided about with an extender, and plans ask no extender"
    asked = [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}]
    assert refusal(owned("web", node="a"), extenders=asked) == why
    of_cards = [{**asked[0], "managedResources": [{"name": "example.com/card"}]}]
    assert refusal(owned("web", node="a"), extenders=of_cards) is None
    with_card = owned("web", node="a", requests={"example.com/card": 1})
    assert refusal(with_card, extenders=of_cards) == why


def test_a_pod_created_anew_is_as_its_template_and_on_no_node() -> None:
    web = parse_pod(
        owned(
            "web",
            node="a",
            labels=LABELS | {ZONE: "z", HOSTNAME: "b"},
            annotations={"scheduling.mooring.dev/gpu-cards": "1"},
            started="2026-01-01T00:00:00Z",
        )
    )
    here = parse_node(node("a", zone="z"))
    anew = created_anew(web, here)
    assert (anew.node_name, anew.started, anew.annotations) == (None, None, {})
    assert anew.labels == LABELS | {HOSTNAME: "b"}
    assert (anew.uid, anew.spec, anew.owner) == (web.uid, web.spec, web.owner)
    elsewhere = replace(here, labels={ZONE: "y"})
    assert labels_anew(web, elsewhere) == web.labels


def test_taints_of_the_node_controller_are_left_to_it_unless_tolerated() -> None:
    web = parse_pod(pod("web"))
    tolerant = parse_pod(pod("web", tolerations=[toleration("node.kubernetes.io/role")]))
    tainted = parse_node(node("a", taints=["node.kubernetes.io/role=x:NoSchedule"]))
    assert left_to_others(tainted, web)
    assert not left_to_others(tainted, tolerant)
    assert left_to_others(parse_node(node("a", unschedulable=True)), tolerant)
    assert left_to_others(parse_node(node("a", conditions={"Ready": "False"})), tolerant)
    assert not left_to_others(parse_node(node("a", taints=["dedicated=x:NoSchedule"])), web)
