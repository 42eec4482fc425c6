import re
from typing import Any

import pytest

from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.simulate.controllers import Controllers, device_claims, ephemeral_claims, is_new
from mooring.simulate.manifests import InputError, Manifest
from mooring.testing.builders import api_object, node, pod

LABELS = {"app": "web"}
_API = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}


def template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "app:1"}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **spec}}


def controller(kind: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    api_version = _API.get(kind, "apps/v1")
    fields = {"template": template(), **spec}
    if api_version == "apps/v1":
        fields = {"selector": {"matchLabels": LABELS}, **fields}
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": fields}


def expanded(
    raw: dict[str, Any],
    *objects: dict[str, Any],
    deployments: dict[tuple[str, str], str] | None = None,
    claims: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    pods = [parse_pod(o) for o in objects if o["kind"] == "Pod"]
    nodes = [parse_node(o) for o in objects if o["kind"] == "Node"]
    made = Controllers(pods, deployments or {}, claims, nodes)
    return [m.raw for m in made.expand(Manifest("file", raw))]


def pods(raw: dict[str, Any], *objects: dict[str, Any]) -> list[dict[str, Any]]:
    return [o for o in expanded(raw, *objects) if o["kind"] == "Pod"]


def names(objects: list[dict[str, Any]]) -> list[str]:
    return [o["metadata"]["name"] for o in objects]


def owned(kind: str, name: str, pod_name: str = "old", **fields: Any) -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "uid": "u"}
    return pod(pod_name, namespace="shop", owner=owner, **fields)


def test_an_object_with_a_uid_has_been_stored() -> None:
    assert is_new(controller("Deployment"))
    assert not is_new(pod())


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        ("Deployment", {"replicas": 2**63}, "replicas"),
        ("StatefulSet", {"replicas": 1_000_001}, "replicas"),
        ("Job", {"parallelism": 2**63, "template": template(restartPolicy="Never")}, "parallelism"),
    ],
)
def test_a_number_of_pods_that_no_simulation_ends_with_is_a_mistake(
    kind: str, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(
        InputError, match=rf"{kind} web spec\.{field}: must be at most 1,000,000 in"
    ):
        expanded(controller(kind, **fields))


def test_the_pods_of_a_large_deployment_have_different_names_that_stay() -> None:
    large = controller("Deployment", replicas=8_000)
    made = names(pods(large))
    assert len(set(made)) == 8_000
    assert made == names(pods(large))


def test_a_deployment_has_a_replica_set_of_its_template_that_owns_the_pods() -> None:
    replica_set, *made = expanded(controller("Deployment", replicas=3))
    name = replica_set["metadata"]["name"]
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{10}", name)
    assert len({*names(made)}) == 3
    for each in made:
        assert re.fullmatch(rf"{name}-[bcdfghjklmnpqrstvwxz2456789]{{5}}", each["metadata"]["name"])
        assert each["metadata"]["namespace"] == "shop"
        digest = each["metadata"]["labels"]["pod-template-hash"]
        assert each["metadata"]["labels"] == {**LABELS, "pod-template-hash": digest}
        assert replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"] == digest
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", name, True)


def test_names_are_the_same_in_every_run_and_other_for_another_template() -> None:
    raw = controller("Deployment")
    assert names(expanded(raw)) == names(expanded(raw))
    other = controller("Deployment", template=template(hostNetwork=True))
    assert names(expanded(raw))[0] != names(expanded(other))[0]


def test_without_replicas_there_is_one() -> None:
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
        assert len(pods(controller(kind))) == 1
        assert pods(controller(kind, replicas=0)) == []


def test_a_long_name_is_cut_before_the_generated_suffix() -> None:
    (made,) = pods(controller("ReplicaSet", "a" * 80))
    assert len(made["metadata"]["name"]) == 63


def test_pods_that_exist_count_towards_the_replicas() -> None:
    running = owned("ReplicaSet", "web-1", node="n1")
    ended = owned("ReplicaSet", "web-1", "gone", phase="Failed")
    raw = controller("Deployment", replicas=3)
    made = expanded(raw, running, ended, deployments={("shop", "web-1"): "web"})
    assert len([o for o in made if o["kind"] == "Pod"]) == 2


def test_pods_of_a_controller_of_another_api_do_not_count() -> None:
    """OpenKruise also has a kind StatefulSet."""
    other = owned("ReplicaSet", "web")
    (owner,) = other["metadata"]["ownerReferences"]
    for version, missing in (("apps.kruise.io/v1beta1", 1), ("apps/v1", 0)):
        owner["apiVersion"] = version
        assert len(pods(controller("ReplicaSet"), other)) == missing


def test_the_pods_of_a_stateful_set_have_ordinals_and_claims() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    raw = controller(
        "StatefulSet",
        replicas=2,
        ordinals={"start": 3},
        volumeClaimTemplates=[claim],
        template=template(volumes=[{"name": "data", "emptyDir": {}}, {"name": "tmp"}]),
    )
    made = expanded(raw, claims=("shop/data-web-4",))
    assert [(o["kind"], o["metadata"]["name"]) for o in made] == [
        ("PersistentVolumeClaim", "data-web-3"),
        ("Pod", "web-3"),
        ("Pod", "web-4"),
    ]
    assert made[0]["spec"] == {"storageClassName": "fast"}
    assert made[1]["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}},
        {"name": "tmp"},
    ]
    assert made[1]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "3"


def test_a_stateful_set_lacks_the_ordinals_that_do_not_exist() -> None:
    running = owned("StatefulSet", "web", "web-0", node="n1")
    assert names(pods(controller("StatefulSet", replicas=2), running)) == ["web-1"]


def test_a_daemon_set_has_a_pod_for_each_node_that_it_may_run_on() -> None:
    raw = controller("DaemonSet", template=template(nodeSelector={"disk": "ssd"}))
    ssd = {"disk": "ssd"}
    made = pods(
        raw,
        node("a", labels=ssd),
        node("b"),
        node("c", labels=ssd, taints=["dedicated=x:NoSchedule"]),
        node("d", labels=ssd, taints=["node.kubernetes.io/unschedulable:NoSchedule"]),
        node("e", labels=ssd),
        owned("DaemonSet", "web", node="e"),
    )
    affinities = [each["spec"]["affinity"]["nodeAffinity"] for each in made]
    terms = [a["requiredDuringSchedulingIgnoredDuringExecution"] for a in affinities]
    assert [t["nodeSelectorTerms"][0]["matchFields"][0]["values"] for t in terms] == [["a"], ["d"]]
    assert len({*names(made)}) == 2


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"completions": 5}, 1),
        ({"suspend": True}, 0),
    ],
)
def test_a_job_has_the_pods_that_run_at_the_same_time(spec: dict[str, Any], count: int) -> None:
    made = pods(controller("Job", template=template(restartPolicy="Never"), **spec))
    assert len(made) == count
    assert all(each["metadata"]["labels"]["job-name"] == "web" for each in made)


def test_the_pods_of_an_indexed_job_have_their_index_in_name_label_and_annotation() -> None:
    spec: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    made = pods(controller("Job", template=template(restartPolicy="Never"), **spec))
    key = "batch.kubernetes.io/job-completion-index"
    assert [each["metadata"]["name"][:6] for each in made] == ["web-0-", "web-1-"]
    assert [each["metadata"]["labels"][key] for each in made] == ["0", "1"]
    assert [each["metadata"]["annotations"][key] for each in made] == ["0", "1"]


def test_a_cron_job_has_the_pods_of_one_of_its_jobs() -> None:
    job = {"spec": {"parallelism": 2, "template": template(restartPolicy="OnFailure")}}
    raw = controller("CronJob", schedule="0 * * * *", jobTemplate=job)
    made = pods(raw)
    assert len(made) == 2
    (owner,) = made[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "web-00000000")
    raw["spec"]["suspend"] = True
    assert pods(raw) == []


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (controller("Deployment", selector={}), "Deployment web spec.selector: is empty"),
        (
            controller("StatefulSet", selector={"matchLabels": {"app": "other"}}),
            "StatefulSet web spec.template.metadata: has labels that spec.selector does not match",
        ),
        (
            controller("Job"),
            "Job web spec.template.spec.restartPolicy: must be Never or OnFailure",
        ),
        (
            {**controller("Deployment"), "metadata": {"generateName": "web-"}},
            "Deployment (no name) metadata.name: is missing; every object needs a name",
        ),
        ({**controller("DaemonSet"), "metadata": None}, "DaemonSet (no name) metadata: is missing"),
    ],
)
def test_what_the_api_server_would_reject_is_an_error(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        expanded(raw)
    assert str(caught.value).startswith(f"file: {problem}")


def test_an_ephemeral_volume_has_a_claim_that_the_pod_owns() -> None:
    volumes = [
        {
            "name": "scratch",
            "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s"}}},
        },
        {"name": "tmp", "emptyDir": {}},
    ]
    owner = pod("web", spec={"volumes": volumes})
    (claim,) = ephemeral_claims(owner)
    assert claim["metadata"]["name"] == "web-scratch"
    assert claim["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert claim["spec"] == {"storageClassName": "s"}


def test_the_claim_of_a_template_has_its_labels_its_owner_and_a_name_that_is_not_taken() -> None:
    spec = {"metadata": {"labels": {"team": "a"}}, "spec": {"devices": {}}}
    templates = {"default/t": api_object("ResourceClaimTemplate", "t", spec=spec)}
    entries = [
        {"name": "gpu", "resourceClaimTemplateName": "t"},
        {"name": "named", "resourceClaimName": "mine"},
    ]
    owner = pod("web", spec={"resourceClaims": entries})
    ((entry, claim),) = device_claims(owner, templates, ())
    metadata = claim["metadata"]
    assert entry == "gpu"
    assert metadata["labels"] == {"team": "a"}
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert metadata["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert claim["spec"] == {"devices": {}}
    ((_, other),) = device_claims(owner, templates, {f"default/{metadata['name']}"})
    assert other["metadata"]["name"] != metadata["name"]
    assert other["metadata"]["name"].startswith("web-gpu-")
