import math
from functools import partial
from typing import Any

import pytest

from driving import driven
from mooring.claims.model.resource_claims import ExtendedResourceClaim
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import (
    OwnerRef,
    claim_keys,
    is_of_workload,
    parse_pod,
    workload_of,
)
from mooring.pausing import Work
from mooring.testing.builders import pod
from mooring.volumes.model.pod_volumes import ClaimVolume

NEW_YEAR = 1_767_225_600.0


def metadata(**fields: Any) -> dict[str, Any]:
    raw = pod("web", namespace="team-a")
    raw["metadata"] |= fields
    return raw


def test_a_pod_has_its_identity_and_its_node() -> None:
    parsed = parse_pod(
        pod(
            "web",
            namespace="team-a",
            labels={"app": "web"},
            annotations={"a": "b"},
            node="n1",
            nominated="n2",
            claims=["data"],
        )
    )
    assert (parsed.key, parsed.namespace, parsed.name) == ("team-a/web", "team-a", "web")
    assert parsed.uid == "pod-team-a-web"
    assert (parsed.node_name, parsed.nominated_node) == ("n1", "n2")
    assert (parsed.labels, parsed.annotations) == ({"app": "web"}, {"a": "b"})
    assert parsed.volumes == (ClaimVolume("data", ephemeral=False),)


def test_without_a_namespace_a_pod_is_in_default() -> None:
    assert parse_pod({"metadata": {"name": "web"}, "spec": {}}).key == "default/web"


def test_a_new_pod_has_no_node() -> None:
    parsed = parse_pod({"metadata": {"name": "web"}, "spec": {"nodeName": ""}})
    assert parsed.node_name is None
    assert parsed.nominated_node is None
    assert parsed.owner is None
    assert parsed.unscheduled_message is None
    assert (parsed.phase, parsed.terminating, parsed.disrupted) == ("Pending", False, False)


def test_times_are_seconds_since_the_epoch() -> None:
    parsed = parse_pod(pod(created="2026-01-01T00:00:00Z", started="2026-01-01T02:00:00.5+01:00"))
    assert parsed.created == NEW_YEAR
    assert parsed.started == NEW_YEAR + 3600.5
    assert parse_pod({"metadata": {"name": "web"}, "spec": {}}).started is None


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_that_has_ended_is_finished(phase: str, *, finished: bool) -> None:
    assert parse_pod(pod(phase=phase)).finished is finished


def test_a_pod_being_deleted_is_terminating() -> None:
    assert parse_pod(pod(terminating=True)).terminating
    assert not parse_pod(metadata(deletionTimestamp=None)).terminating


def test_the_owner_is_the_controller() -> None:
    owners = [
        {"kind": "Node", "name": "n1", "uid": "1"},
        {"kind": "Job", "name": "a", "uid": "2", "controller": True, "apiVersion": "batch/v1"},
    ]
    owner = parse_pod(metadata(ownerReferences=owners)).owner
    assert owner == OwnerRef("Job", "a", "2", "batch/v1")
    assert parse_pod(metadata(ownerReferences=owners[:1])).owner is None


@pytest.mark.parametrize(
    ("condition", "message", "disruption"),
    [
        ({"type": "PodScheduled", "status": "False", "message": "0/3"}, "0/3", ""),
        ({"type": "PodScheduled", "status": "False"}, "", ""),
        ({"type": "PodScheduled", "status": "True", "message": "x"}, None, ""),
        (
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
            None,
            "disrupted",
        ),
        (
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
            None,
            "evicted",
        ),
        (
            {"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"},
            None,
            "",
        ),
    ],
)
def test_conditions_show_earlier_attempts_and_preemption(
    condition: dict[str, str], message: str | None, disruption: str
) -> None:
    parsed = parse_pod(pod(status={"conditions": [{"type": "Ready"}, condition]}))
    assert parsed.unscheduled_message == message
    assert parsed.disrupted == (disruption == "disrupted")
    assert parsed.evicted == (disruption == "evicted")


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_pod_is_ready_if_its_condition_says_so(status: str) -> None:
    conditions = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": status},
    ]
    assert parse_pod(pod(status={"conditions": conditions})).ready == (status == "True")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "Pod (no name) metadata: is missing; it must be an object"),
        ({"metadata": "x"}, "Pod (no name) metadata: must be an object, not 'x'"),
        (
            {"metadata": {"namespace": "team-a"}, "spec": {}},
            "Pod team-a metadata.name: is missing; every object needs a name",
        ),
        ({"metadata": {"name": "web"}}, "Pod web spec: is missing; it must be an object"),
        (metadata(labels=["a"]), "Pod team-a/web metadata.labels: must be an object, not ['a']"),
        (metadata(labels={"a": 1}), "Pod team-a/web metadata.labels.a: must be a string, not 1"),
        (
            metadata(ownerReferences={}),
            "Pod team-a/web metadata.ownerReferences: must be a list, not {}",
        ),
        (
            pod(status={"conditions": ["x"]}),
            "Pod default/web status.conditions[0]: must be an object, not 'x'",
        ),
        (
            pod(spec={"volumes": {"name": "v"}}),
            "Pod default/web spec.volumes: must be a list, not {'name': 'v'}",
        ),
    ],
)
def test_a_malformed_pod_raises_an_error_with_its_field(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod(raw)
    assert str(caught.value) == message


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
def test_a_time_must_be_valid_and_have_a_time_zone(time: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod(metadata(creationTimestamp=time))
    assert caught.value.where == "Pod team-a/web metadata.creationTimestamp"
    assert caught.value.problem == (
        f"{time!r} is not a time; write one such as 2026-01-31T12:00:00Z"
    )


def test_a_pod_with_a_deadline_has_ended_after_it_its_grace_period_and_a_minute() -> None:
    limited = parse_pod(pod(spec={"activeDeadlineSeconds": 100}))
    assert limited.longest_run == 130
    assert limited.ends_by(1000.0) == 1190.0
    at_once = parse_pod(
        pod(spec={"activeDeadlineSeconds": 100, "terminationGracePeriodSeconds": 0})
    )
    assert at_once.ends_by(0.0) == 160.0


def test_a_pod_without_a_deadline_never_ends() -> None:
    assert parse_pod(pod()).ends_by(0.0) == math.inf


@pytest.mark.parametrize(
    ("owner", "labels", "workloads"),
    [
        (("ReplicaSet", "web-5d8f"), {"pod-template-hash": "5d8f"}, "Deployment/web"),
        (("ReplicaSet", "web-5d8f"), {}, "ReplicaSet/web-5d8f"),
        (("ReplicaSet", "web-5d8f"), {"pod-template-hash": "other"}, "ReplicaSet/web-5d8f"),
        (("StatefulSet", "db"), {}, "StatefulSet/db"),
    ],
)
def test_the_workload_is_what_users_created(
    owner: tuple[str, str], labels: dict[str, str], workloads: str
) -> None:
    kind, name = owner
    reference = {"kind": kind, "name": name, "uid": "u", "controller": True}
    parsed = parse_pod(pod("p", owner=reference, labels=labels))
    assert "/".join(workload_of(parsed)) == workloads
    assert is_of_workload(parsed, *workloads.split("/"))
    assert is_of_workload(parsed, kind, name)
    assert not is_of_workload(parsed, "Deployment", "another")


def test_a_pod_of_a_cron_jobs_job_is_the_cron_jobs() -> None:
    job = {"kind": "Job", "name": "report-29384756", "uid": "u", "controller": True}
    parsed = parse_pod(pod("p", owner=job))
    assert is_of_workload(parsed, "CronJob", "report")
    assert not is_of_workload(parsed, "CronJob", "report-29384756")


def test_a_pod_without_an_owner_is_its_own_workload() -> None:
    parsed = parse_pod(pod("p"))
    assert workload_of(parsed) == ("Pod", "p")
    assert not is_of_workload(parsed, "Job", "p")


def test_the_generation_is_that_of_the_metadata() -> None:
    raw = pod()
    assert parse_pod(raw).generation == 0
    raw["metadata"]["generation"] = 4
    assert parse_pod(raw).generation == 4


def test_the_version_is_known_of_a_pod_without_a_node() -> None:
    for node, version in ((None, "7"), ("n1", "")):
        raw = pod("web", node=node)
        raw["metadata"]["resourceVersion"] = "7"
        assert parse_pod(raw).version == version


def test_a_pod_names_the_claims_that_were_created_for_it() -> None:
    statuses = [{"name": "gpu", "resourceClaimName": "web-gpu-x"}, {"name": "none"}]
    extended = {
        "resourceClaimName": "web-extended-resources-y",
        "requestMappings": [
            {"containerName": "c", "resourceName": "a.io/gpu", "requestName": "container-0"}
        ],
    }
    named = [
        {"name": "nic", "resourceClaimName": "shared"},
        *({"name": name, "resourceClaimTemplateName": "t"} for name in ("gpu", "none", "late")),
    ]
    raw = pod("web", namespace="team-a", spec={"resourceClaims": named})
    raw["status"] = {
        "resourceClaimStatuses": statuses,
        "extendedResourceClaimStatus": extended,
    }
    parsed = parse_pod(raw)
    assert claim_keys(parsed) == ["team-a/shared", "team-a/web-gpu-x"]
    assert parsed.claim_names == {"gpu": "web-gpu-x", "none": None}
    assert parsed.extended_resource_claim == ExtendedResourceClaim(
        "web-extended-resources-y", (("c", "a.io/gpu", "container-0"),)
    )
    assert parse_pod(pod("web")).extended_resource_claim is None


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
NUMBERS = range(3000)
NODE_TERMS = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in NUMBERS]
POD_TERMS = [{"topologyKey": f"key-{n}"} for n in NUMBERS]
REQUESTS = {f"example.com/r{n}": "1" for n in NUMBERS}
LARGE: dict[str, dict[str, Any]] = {
    "containers": {"containers": [{"name": f"c{n}", "image": f"i{n}"} for n in NUMBERS]},
    "init containers": {"initContainers": [{"name": f"container-{n}"} for n in NUMBERS]},
    "requests": {"containers": [{"name": "c", "resources": {"requests": REQUESTS}}]},
    "ports": {"containers": [{"name": "c", "ports": [{"hostPort": n + 1} for n in NUMBERS]}]},
    "tolerations": {"tolerations": [{"key": f"key-{n}"} for n in NUMBERS]},
    "gates": {"schedulingGates": [{"name": f"gate-{n}"} for n in NUMBERS]},
    "claims": {"resourceClaims": [{"name": f"claim-{n}"} for n in NUMBERS]},
    "a node selector": {"nodeSelector": {f"key-{n}": "x" for n in NUMBERS}},
    "spread": {"topologySpreadConstraints": POD_TERMS},
    "node terms": {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": NODE_TERMS}}}},
    "preferred node terms": {
        "affinity": {"nodeAffinity": {SOFT: [{"preference": term} for term in NODE_TERMS]}}
    },
    "pod terms": {"affinity": {"podAffinity": {HARD: POD_TERMS}}},
    "pod terms apart": {"affinity": {"podAntiAffinity": {HARD: POD_TERMS}}},
    "preferred pod terms": {
        "affinity": {"podAffinity": {SOFT: [{"podAffinityTerm": term} for term in POD_TERMS]}}
    },
}


@pytest.mark.parametrize("what", LARGE)
def test_a_large_pod_is_parsed_with_many_pauses(what: str) -> None:
    """A step parses a few hundred parts of a pod, so no step takes long."""
    raw = pod("large", node="n1", spec=LARGE[what])
    found, pauses = driven(partial(parse_pod, raw))
    assert found.spec is parse_pod(raw).spec
    least_pauses = 10  # beside those within a list
    assert pauses >= least_pauses + len(NUMBERS) // 500


def test_many_labels_and_annotations_are_shared_with_nobody_and_followed_by_pauses() -> None:
    many = {f"key-{n}": "x" for n in NUMBERS}
    raw = pod("large", labels=many, annotations=many)
    found, pauses = driven(partial(parse_pod, raw))
    assert pauses >= 2
    assert (found.labels, found.annotations) == (many, many)


def test_equal_large_pods_that_are_parsed_side_by_side_share_one_spec() -> None:
    raws = [pod(name, spec=LARGE["pod terms"], priority=77) for name in ("first", "second")]
    with Work(partial(parse_pod, raws[0])) as first, Work(partial(parse_pod, raws[1])) as second:
        turns = 0
        while not (first.advance() & second.advance()):
            turns += 1
        assert turns > 15
        assert first.result().spec is second.result().spec


def test_the_error_of_a_large_pod_names_it_too() -> None:
    tolerations = [*LARGE["tolerations"]["tolerations"], {"key": 7}]
    raw = pod("large", spec={"tolerations": tolerations})
    with pytest.raises(ManifestError, match=r"Pod default/large spec.tolerations\[3000\].key"):
        driven(partial(parse_pod, raw))
