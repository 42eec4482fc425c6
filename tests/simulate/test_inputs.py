from typing import Any

import pytest

from device_builders import device_claim, device_class, request, resource_slice
from mooring.framework.registry import Registry
from mooring.model.events import Kind
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.load_profiles import load_profiles
from mooring.simulate.manifests import InputError, Manifest
from mooring.testing.builders import (
    api_object,
    node,
    pdb,
    pod,
    pod_group,
    priority_class,
    service,
    uid_of,
)
from storage_builders import storage_class

REGISTRY = Registry(SHIPPED, {})


def profile(name: str) -> dict[str, Any]:
    return api_object("SchedulingProfile", name)


def numbered(*objects: dict[str, Any]) -> list[Manifest]:
    return [Manifest(f"file, document {i}", raw) for i, raw in enumerate(objects, start=1)]


def inputs(*objects: dict[str, Any]) -> Inputs:
    return inputs_of(numbered(*objects), REGISTRY)


def test_pods_with_a_node_are_in_the_state_and_pods_without_one_are_pending() -> None:
    found = inputs(pod("waits"), node("n1"), pod("runs", cpu="1", node="n1"))
    assert [p.key for p in found.pending] == ["default/waits"]
    assert [placed.pod.key for placed in found.state.pods] == ["default/runs"]


def test_a_pod_that_is_written_with_a_node_runs_so_that_its_budgets_hold() -> None:
    written = []
    for name, status in (("runs", None), ("starts", {"phase": "Pending"})):
        raw = pod(name, node="n1", labels={"app": "web"})
        raw["status"] = status
        del raw["metadata"]["uid"]
        written.append(raw)
    found = inputs(node("n1"), pdb("guard", {"app": "web"}, allowed=0), *written)
    kept = {
        placed.pod.name: found.state.evictions.exhausted_budget([placed.pod])
        for placed in found.state.pods
    }
    assert kept == {"runs": "default/guard", "starts": None}


@pytest.mark.parametrize("raw", [pod(), profile("mine"), priority_class("high", 7)])
def test_an_object_without_an_api_version_is_a_mistake(raw: dict[str, Any]) -> None:
    without = {field: value for field, value in raw.items() if field != "apiVersion"}
    with pytest.raises(InputError, match=r"file, document 1: apiVersion: is required beside kind"):
        inputs(without)


@pytest.mark.parametrize("ended", [pod(phase="Succeeded"), pod(terminating=True)])
def test_a_finished_or_terminating_pod_is_not_pending(ended: dict[str, Any]) -> None:
    found = inputs(ended)
    assert found.pending == ()


def test_objects_may_come_in_any_order() -> None:
    raw = pod()
    del raw["spec"]["priority"]
    raw["spec"]["priorityClassName"] = "high"
    (waiting,) = inputs(raw, priority_class("high", 7)).pending
    assert waiting.spec.priority == 7


def test_other_objects_are_in_the_state_for_plugins_to_read() -> None:
    found = inputs(service("front", {"app": "web"}))
    assert [*found.state.objects.of(Kind.SERVICE)] == ["default/front"]


def test_kinds_that_no_decision_reads_are_counted_by_kind_and_group() -> None:
    ingress = api_object("Ingress", "web") | {"apiVersion": "networking.k8s.io/v1"}
    found = inputs(ingress, ingress, api_object("ConfigMap", "c"))
    assert found.ignored == {"Ingress.networking.k8s.io": 2, "ConfigMap": 1}


def test_a_stored_object_of_a_version_that_is_not_read_is_named_with_a_command_for_another() -> (
    None
):
    """If the object were ignored, a device could be given twice, or a node would be missing."""
    claim = device_claim("gpu", request(), namespace="ml") | {"apiVersion": "resource.k8s.io/v2"}
    with pytest.raises(InputError) as refused:
        inputs(node("n1"), claim, node("n2") | {"apiVersion": "v2"})
    assert str(refused.value) == (
        "file, document 2: ResourceClaim ml/gpu: apiVersion: resource.k8s.io/v2 is not read; "
        "have the cluster write it as resource.k8s.io/v1: "
        "kubectl get resourceclaims.v1.resource.k8s.io -o yaml\n"
        "file, document 3: Node n2: apiVersion: v2 is not read; "
        "have the cluster write it as v1: kubectl get nodes.v1. -o yaml"
    )


def test_a_stored_controller_is_left_out_in_any_version_because_only_its_pods_are_read() -> None:
    stored = api_object("CronJob", "nightly") | {"apiVersion": "batch/v2"}
    assert "CronJob default/nightly" in inputs(node("n1"), stored, pod()).without_pods


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_what_kubectl_writes_of_a_newer_server_is_read(version: str) -> None:
    """The stored objects have fields of 1.37."""
    group = pod_group("gang", 2) | {"apiVersion": f"scheduling.k8s.io/{version}"}
    group["metadata"]["finalizers"] = ["scheduling.k8s.io/podgroup-protection"]
    if version != "v1alpha2":
        group["spec"]["disruptionMode"] = {"all": {}}
        group["spec"]["workloadRef"] = {"workloadName": "train", "templateName": "workers"}
    machine = node("n1")
    machine["spec"]["podPreemptionPolicy"] = {"disableResizePreemption": ["Deferred"]}
    machine["status"]["nodeInfo"] = {"runningInUserNamespace": False}
    member = pod("member", group="gang", spec={"evictionResponders": [{"name": "a.example/b"}]})
    member["status"]["volumeHealth"] = [{"name": "data", "healthConditions": []}]
    found = inputs(machine, group, member)
    assert [waiting.key for waiting in found.pending] == ["default/member"]
    (known,) = found.state.pod_groups
    assert known.minimum == 2
    assert found.ignored == {}


def test_a_kind_of_another_group_with_a_known_name_is_not_mistaken_for_it() -> None:
    knative = service("front", {"app": "web"}) | {"apiVersion": "serving.knative.dev/v1"}
    found = inputs(knative)
    assert found.ignored == {"Service.serving.knative.dev": 1}
    assert not found.state.objects.of(Kind.SERVICE)


def test_a_given_profile_in_mode_shadow_counts_as_active_and_one_of_the_cluster_does_not() -> None:
    raw = {**profile("a"), "spec": {"mode": "Shadow"}}
    given = inputs_of([], REGISTRY, load_profiles(numbered(raw), REGISTRY))
    modes = [
        loaded.profile.spec.mode for found in (given, inputs(raw)) for loaded in found.profiles
    ]
    assert modes == ["Active", "Shadow"]


def invalid_profile(name: str, **status: Any) -> dict[str, Any]:
    spec = {"percentageOfNodesToScore": 1000}
    return api_object("SchedulingProfile", name, spec=spec, status=status)


def test_an_invalid_profile_that_no_api_server_can_have_stored_is_a_mistake_at_its_place() -> None:
    nameless = invalid_profile("packed")
    del nameless["metadata"]["name"]
    with pytest.raises(InputError, match=r"^file, document 1: metadata\.name: "):
        inputs(nameless)
    with pytest.raises(InputError, match=r"^file, document 1: status: must be an object, not 5$"):
        inputs(invalid_profile("packed") | {"status": 5})


def test_of_a_stored_profile_that_is_invalid_the_spec_in_force_counts() -> None:
    former = {"percentageOfNodesToScore": 50}
    raw = invalid_profile("packed", inForceGeneration=2, inForceSpec=former)
    found = inputs(raw, profile("other"))
    assert [loaded.profile.name for loaded in found.profiles] == ["packed", "other"]
    assert found.profiles[0].profile.generation == 2
    assert found.profiles[0].effective.percentage_of_nodes_to_score == 50
    (note,) = found.notes
    assert note.startswith("profile packed is invalid (spec.percentageOfNodesToScore: ")
    assert note.endswith("): generation 2, which is in force, is used")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, "and was never in force: it is left out"),
        ({"inForceGeneration": 0}, "and was never in force: it is left out"),
        (
            {"inForceGeneration": 2},
            "and its status does not keep generation 2: it is left out",
        ),
        (
            {"inForceGeneration": 2, "inForceSpec": {"match": 7}},
            "as is generation 2, the last in force: it is left out",
        ),
    ],
)
def test_a_stored_profile_that_is_invalid_and_not_in_force_is_left_out_by_name(
    status: dict[str, Any], why: str
) -> None:
    found = inputs(invalid_profile("packed", **status), profile("other"))
    assert [loaded.profile.name for loaded in found.profiles] == ["other"]
    (note,) = found.notes
    assert note.startswith("profile packed is invalid (")
    assert note.endswith(why)


def test_a_new_profile_that_is_invalid_is_a_mistake() -> None:
    raw = invalid_profile("packed")
    del raw["metadata"]["uid"]
    with pytest.raises(InputError, match=r"spec\.percentageOfNodesToScore"):
        inputs(raw)


def test_profiles_come_from_the_objects_unless_others_are_given() -> None:
    objects = numbered(profile("a"))
    others = load_profiles(numbered(profile("b")), REGISTRY)
    assert [p.profile.name for p in inputs_of(objects, REGISTRY).profiles] == ["a"]
    assert [p.profile.name for p in inputs_of(objects, REGISTRY, others).profiles] == ["b"]


@pytest.mark.parametrize(
    ("objects", "line"),
    [
        (
            [node("n1"), pod("web", cpu="1x")],
            "file, document 2: Pod default/web spec.containers[0].resources.requests.cpu: '1x' is",
        ),
        ([node("")], "file, document 1: metadata.name: is missing"),
        (
            [pod("web"), node("web"), pod("web")],
            "file, document 3: Pod default/web: is given already in file, document 1",
        ),
        (
            [pod("web"), {**pod("db"), "metadata": {"name": "db", "uid": uid_of("web")}}],
            "file, document 2: Pod default/db: has the metadata.uid of pod default/web; remove it",
        ),
        ([{"kind": "Pod", "apiVersion": "v1", "metadata": 3}], "file, document 1: "),
        (
            [{"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "metadata": {}}],
            "file, document 1: metadata.name: is missing; every object needs a name",
        ),
        (
            [api_object("LimitRange", "l", namespace="default", spec={"limits": ["x"]})],
            "file, document 1: spec.limits[0]: must be an object, not 'x'",
        ),
    ],
)
def test_bad_input_is_one_line_with_file_object_and_field(
    objects: list[dict[str, Any]], line: str
) -> None:
    with pytest.raises(InputError) as caught:
        inputs(*objects)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def new(raw: dict[str, Any], api_version: str | None = None) -> dict[str, Any]:
    """Return the object as a user writes it, without the fields of an API server."""
    metadata = {k: v for k, v in raw["metadata"].items() if k not in ("uid", "creationTimestamp")}
    return {**raw, "metadata": metadata, "apiVersion": api_version or raw["apiVersion"]}


def deployment(replicas: int = 2, **pod_spec: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    spec = {"containers": [{"name": "c", "image": "app:1"}], **pod_spec}
    template = {"metadata": {"labels": labels}, "spec": spec}
    fields = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return new(api_object("Deployment", "web", spec=fields), "apps/v1")


def test_a_new_controller_is_expanded_to_its_pods() -> None:
    found = inputs(deployment(), node("n1"))
    assert len(found.pending) == 2
    assert found.without_pods == {}
    (replica_set,) = found.state.objects.of(Kind.REPLICA_SET).values()
    assert all(replica_set.selector.matches(p.labels) for p in found.pending)


def test_a_controller_that_a_cluster_has_stored_is_not_expanded() -> None:
    stored = deployment()
    stored["metadata"]["uid"] = "u"
    found = inputs(stored)
    assert found.pending == ()
    assert found.without_pods["Deployment default/web"].startswith("a cluster has stored it")


@pytest.mark.parametrize(
    ("api_version", "kind", "missing"),
    [("apps/v1", "Deployment", 1), ("argoproj.io/v1alpha1", "Rollout", 2)],
)
def test_pods_of_a_deployment_are_those_of_its_own_replica_sets(
    api_version: str, kind: str, missing: int
) -> None:
    """Argo Rollouts also create ReplicaSets."""
    replica_set = api_object("ReplicaSet", "web-1", namespace="default", spec={"selector": {}})
    owner = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u"}
    replica_set["metadata"]["ownerReferences"] = [owner]
    of_it = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r"}
    running = pod("old", node="n1", owner=of_it)
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "a"}]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    assert len(inputs(replica_set, running, deployment).pending) == missing


def test_a_controller_that_makes_no_pod_is_named() -> None:
    found = inputs(deployment(replicas=0))
    assert found.without_pods["Deployment default/web"].startswith("it makes no pods")


def test_a_pod_that_the_api_server_would_not_store_is_rejected_with_its_answer() -> None:
    found = inputs(deployment(replicas=1, priorityClassName="high"))
    (rejected,) = found.rejected
    assert rejected.pod.startswith("default/web-")
    assert rejected.message.endswith("is forbidden: no PriorityClass with name high was found")
    assert found.pending == ()


def test_limit_ranges_and_runtime_classes_may_come_after_the_pods() -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
    limit_range = api_object("LimitRange", "l", namespace="default", spec={"limits": limits})
    runtime_class = api_object("RuntimeClass", "kata", overhead={"podFixed": {"cpu": "250m"}})
    runtime_class["apiVersion"] = "node.k8s.io/v1"
    found = inputs(deployment(1, runtimeClassName="kata"), limit_range, runtime_class)
    assert found.pending[0].spec.demand.resources == {"cpu": 1250}
    assert found.ignored == {}


def test_a_misspelt_field_of_a_new_pod_is_an_error_and_one_of_a_stored_pod_is_not() -> None:
    misspelt = pod(spec={"nodeSelecter": {"a": "b"}})
    assert len(inputs(misspelt).pending) == 1
    with pytest.raises(InputError) as caught:
        inputs(new(misspelt))
    assert str(caught.value) == (
        "file, document 1: Pod default/web spec.nodeSelecter: "
        'unknown field "nodeSelecter", did you mean nodeSelector?'
    )


def test_a_new_object_replaces_the_stored_one_of_its_name() -> None:
    stored, written = service("front", {"app": "a"}), new(service("front", {"app": "b"}))
    for objects in ((stored, written), (written, stored)):
        (found,) = inputs(*objects).state.objects.of(Kind.SERVICE).values()
        assert found.selector.matches({"app": "b"})


def test_new_claims_without_a_class_get_the_default_one() -> None:
    def default(name: str, created: str | None = None) -> dict[str, Any]:
        raw = storage_class(name)
        raw["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        raw["metadata"]["creationTimestamp"] = created
        return raw

    def claim(name: str, **spec: Any) -> dict[str, Any]:
        raw = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        return raw | {"spec": spec}

    stored = claim("stored")
    stored["metadata"]["uid"] = "u"
    claims = (claim("new"), claim("none", storageClassName=""), stored)
    old, newer = default("old", "2026-01-01T00:00:00Z"), default("newer", "2026-02-01T00:00:00Z")

    def classes(*objects: dict[str, Any]) -> list[str]:
        known = inputs(*claims, *objects).state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM)
        return [known[f"default/{name}"].storage_class for name in ("new", "none", "stored")]

    assert classes(storage_class("other")) == ["", "", ""]
    assert classes(old, newer, storage_class("other")) == ["newer", "", ""]
    assert classes(old, newer, default("b"), default("a")) == ["a", "", ""]


def test_the_claim_of_an_ephemeral_volume_is_made_with_the_pod() -> None:
    template = {"spec": {"storageClassName": "fast"}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    found = inputs(new(pod("web", spec={"volumes": volumes})))
    assert [*found.state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM)] == ["default/web-scratch"]


def claim_template(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    spec = {"metadata": {"labels": {"team": "a"}}, "spec": {"devices": {"requests": [*requests]}}}
    return api_object("ResourceClaimTemplate", name, namespace="default", spec=spec)


def with_template(name: str, template: str) -> dict[str, Any]:
    """Return a new pod whose entry `gpu` has a claim from this template."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return new(pod(name, spec={"resourceClaims": claims}))


def test_devices_their_classes_and_claims_are_in_the_state() -> None:
    slices = resource_slice("s", ["d0"], node="n1")
    found = inputs(slices, device_class("gpu"), device_claim("mine")).state.dynamic_resources
    assert [each.name for each in found.slices.all()] == ["s"]
    assert found.classes.get("gpu") is not None
    assert found.claims.get("default/mine") is not None


def test_claims_that_no_cluster_has_stored_are_told_apart() -> None:
    claims = inputs(new(device_claim("a")), new(device_claim("b"))).state.dynamic_resources.claims
    uids = {claim.uid for key in ("a", "b") if (claim := claims.get(f"default/{key}"))}
    assert len(uids) == 2
    assert all(claims.of_uid(uid) is not None for uid in uids)


def test_the_claims_of_templates_are_made_with_the_pod() -> None:
    template = claim_template("two", request("r", 2))
    found = inputs(with_template("web", "two"), with_template("other", "two"), template)
    web, other = found.pending
    name = web.claim_names["gpu"]
    assert name is not None
    assert name.startswith("web-gpu-")
    claim = found.state.dynamic_resources.claims.get(f"default/{name}")
    assert claim is not None
    assert claim.controller_uid == web.uid
    assert claim.spec.requests[0].exactly is not None
    assert claim.spec.requests[0].exactly.count == 2
    assert other.claim_names["gpu"] != name
    assert found.ignored == {}


def test_the_claim_of_a_groups_template_is_made_once_for_all_members() -> None:
    own = {"name": "gpu", "resourceClaimTemplateName": "one"}
    group = pod_group("g", 2, claims=[own])
    members = [
        new(pod(name, group="g", spec={"resourceClaims": [own, {**own, "name": "mine"}]}))
        for name in ("a", "b")
    ]
    found = inputs(*members, group, claim_template("one", request()))
    a, b = found.pending
    assert a.claim_names["gpu"] == b.claim_names["gpu"]
    assert a.claim_names["mine"] != b.claim_names["mine"]
    claim = found.state.dynamic_resources.claims.get(f"default/{a.claim_names['gpu']}")
    assert claim is not None
    assert claim.controller_uid == group["metadata"]["uid"]
    assert len(found.state.objects.of(Kind.RESOURCE_CLAIM)) == 3


def test_groups_that_no_cluster_has_stored_own_the_claims_of_their_templates() -> None:
    own = {"name": "gpu", "resourceClaimTemplateName": "one"}
    groups = [new(pod_group(name, 1, claims=[own])) for name in ("g", "h")]
    members = [
        new(pod(f"of-{name}", group=name, spec={"resourceClaims": [own]})) for name in ("g", "h")
    ]
    state = inputs(*groups, *members, claim_template("one", request())).state
    claims = state.objects.of(Kind.RESOURCE_CLAIM).values()
    owners = {group.definition.uid for group in state.pod_groups if group.definition is not None}
    assert {claim.controller_uid for claim in claims} == owners
    assert len(owners) == 2


def test_a_new_member_uses_the_claim_that_its_group_has() -> None:
    own = {"name": "gpu", "resourceClaimTemplateName": "one"}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "claim"}]}
    group = pod_group("g", 2, claims=[own], status=status)
    member = new(pod("a", group="g", spec={"resourceClaims": [own]}))
    found = inputs(member, group, device_claim(group="g"), claim_template("one", request()))
    assert found.pending[0].claim_names == {"gpu": "claim"}
    assert len(found.state.objects.of(Kind.RESOURCE_CLAIM)) == 1


def test_the_names_of_made_claims_are_as_long_as_a_generated_name_may_be() -> None:
    template = claim_template("two", request())
    (web,) = inputs(with_template("w" * 63, "two"), template).pending
    assert web.claim_names["gpu"] is not None
    assert len(web.claim_names["gpu"]) == 63


def test_without_its_template_a_pod_has_no_claim() -> None:
    (web,) = inputs(with_template("web", "missing")).pending
    assert web.claim_names == {}


def test_a_new_template_replaces_the_stored_one_of_its_name() -> None:
    stored, written = (
        claim_template("t", request("r", 1)),
        new(claim_template("t", request("r", 3))),
    )
    for templates in ((stored, written), (written, stored)):
        found = inputs(with_template("web", "t"), *templates)
        claims = found.state.objects.of(Kind.RESOURCE_CLAIM).values()
        assert [claim.spec.requests[0].exactly.count for claim in claims] == [3]
    with pytest.raises(InputError, match="ResourceClaimTemplate default/t: is given already in"):
        inputs(stored, stored)


def test_a_mistake_in_a_template_is_an_error() -> None:
    with pytest.raises(InputError, match=r"spec.spec.devices.requests\[0\].exactly.count"):
        inputs(claim_template("t", {"name": "r", "exactly": {"count": "many"}}))


def test_a_generated_name_that_is_taken_is_an_error() -> None:
    (made,) = inputs(deployment(1)).pending
    with pytest.raises(InputError, match="is given already in"):
        inputs(deployment(1), new(pod(made.name)))
