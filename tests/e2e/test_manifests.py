"""The effects of manifests/ and crds/ on a real API server, applied as by their users."""

import itertools
import runpy
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import replica
from controlplane.access import Access
from controlplane.client import ApiError, Client
from controlplane.cluster import ControlPlane
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.replicas import WAIT_SECONDS
from mooring.kube import api_resources as resources
from mooring.kube.api_resources import Resource

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
DEFAULT_SCHEDULER_LABEL = "scheduling.mooring.dev/default-scheduler"
SERVICE_ACCOUNT = "system:serviceaccount:mooring-system:mooring"

names = itertools.count()


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{next(names)}"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds` returns True; no event shows when the server's caches are filled."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS:.0f} s: {what}"


@pytest.fixture(scope="module")
def access() -> Iterator[Access]:
    """Yield a server for this module alone, because policies and CRDs affect the whole server."""
    with ControlPlane(flags=chosen_release().admission_flags) as control_plane:
        control_plane.access.kubectl("apply", "-f", str(ROOT / "crds"))
        replica.wait_until_established(control_plane.access)
        control_plane.access.kubectl("apply", "-k", str(ROOT / "manifests"))
        yield control_plane.access


def test_a_server_accepts_everything_again_so_that_gitops_settles(access: Access) -> None:
    output = access.kubectl("apply", "-k", str(ROOT / "manifests"), "--dry-run=server")
    assert "created" not in output
    assert "deployment.apps/mooring unchanged (server dry run)" in output.splitlines()


def test_components_change_the_deployment_of_an_overlay(access: Access, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (tmp_path / "deploy").mkdir()
    names = ("highly-available", "instead-of-default-scheduler", replica.admission())
    components = [f"../manifests/{name}" for name in names]
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../manifests"],
        "components": components,
    }
    (tmp_path / "deploy" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    output = access.kubectl(
        "apply", "-k", str(tmp_path / "deploy"), "--dry-run=server", "-o", "yaml"
    )
    objects = yaml.safe_load(output)["items"]
    profiles = {found["metadata"]["name"] for found in objects if "Profile" in found["kind"]}
    assert profiles == {"mooring", "default-scheduler"}
    (deployment,) = (found for found in objects if found["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], spec["schedulerName"]) == (3, "bootstrap-scheduler")
    constraints = {
        c["topologyKey"]: c["whenUnsatisfiable"] for c in spec["topologySpreadConstraints"]
    }
    assert constraints == {
        "kubernetes.io/hostname": "DoNotSchedule",
        "topology.kubernetes.io/zone": "ScheduleAnyway",
    }
    assert len(spec["topologySpreadConstraints"]) == len(constraints)


def test_everything_that_is_applied_has_the_recommended_labels(access: Access) -> None:
    rendered = yaml.safe_load_all(access.kubectl("kustomize", str(ROOT / "manifests")))
    recommended = {"name", "instance", "version", "component", "part-of", "managed-by"}
    for found in rendered:
        labels = found["metadata"]["labels"]
        assert {f"app.kubernetes.io/{label}" for label in recommended} <= labels.keys()


def test_the_pods_meet_the_restricted_pod_security_standard(access: Access) -> None:
    with access.client() as client:
        deployment = client.get("/apis/apps/v1/namespaces/mooring-system/deployments/mooring")
        replica = {"metadata": {"name": "replica"}, "spec": deployment["spec"]["template"]["spec"]}
        client.post("/api/v1/namespaces/mooring-system/pods?dryRun=All", replica)
        with pytest.raises(ApiError, match="violates PodSecurity"):
            client.post("/api/v1/namespaces/mooring-system/pods?dryRun=All", pod())


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_is_accepted(access: Access, example: Path) -> None:
    output = access.kubectl("apply", "-f", str(example), "--dry-run=server")
    assert "schedulingprofile.scheduling.mooring.dev/" in output


def may(access: Access, verb: str, resource: Resource, **where: str) -> bool:
    """Return whether the shipped roles allow this to Mooring's service account."""
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, **where}
    review = {"spec": {"user": SERVICE_ACCOUNT, "resourceAttributes": attributes}}
    with access.client() as client:
        answer = client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


MIRRORED = (
    resources.CSI_DRIVER,
    resources.CSI_NODE,
    resources.CSI_STORAGE_CAPACITY,
    resources.DEVICE_CLASS,
    resources.DEVICE_TAINT_RULE,
    resources.NAMESPACE,
    resources.NODE,
    resources.PERSISTENT_VOLUME,
    resources.PERSISTENT_VOLUME_CLAIM,
    resources.POD,
    resources.POD_DISRUPTION_BUDGET,
    resources.PRIORITY_CLASS,
    resources.QUEUE,
    resources.REPLICATION_CONTROLLER,
    resources.REPLICA_SET,
    resources.RESOURCE_CLAIM,
    resources.RESOURCE_SLICE,
    resources.SCHEDULING_PROFILE,
    resources.SERVICE,
    resources.STATEFUL_SET,
    resources.STORAGE_CLASS,
    resources.VOLUME_ATTACHMENT,
)


@pytest.mark.parametrize("resource", MIRRORED, ids=str)
def test_the_service_account_may_mirror_all_that_a_decision_reads(
    access: Access, resource: Resource
) -> None:
    assert all(may(access, verb, resource) for verb in ("list", "watch"))


LEASE_OF_MOORING = {"namespace": "mooring-system", "name": "mooring"}


@pytest.mark.parametrize(
    ("verb", "resource", "where"),
    [
        ("create", resources.POD, {"subresource": "binding"}),
        ("patch", resources.POD, {"subresource": "status"}),
        ("delete", resources.POD, {}),
        ("create", resources.POD, {"subresource": "eviction"}),
        ("create", resources.EVENT, {}),
        ("patch", resources.EVENT, {}),
        ("patch", resources.QUEUE, {"subresource": "status"}),
        ("patch", resources.SCHEDULING_PROFILE, {"subresource": "status"}),
        ("patch", resources.PERSISTENT_VOLUME_CLAIM, {}),
        ("patch", resources.PERSISTENT_VOLUME, {}),
        ("create", resources.LEASE, {"namespace": "mooring-system"}),
        ("get", resources.LEASE, LEASE_OF_MOORING),
        ("update", resources.LEASE, LEASE_OF_MOORING),
    ],
    ids=str,
)
def test_the_service_account_may_do_a_schedulers_work(
    access: Access, verb: str, resource: Resource, where: dict[str, str]
) -> None:
    assert may(access, verb, resource, **where)


@pytest.mark.parametrize(
    ("verb", "resource", "where"),
    [
        ("get", Resource("", "v1", "secrets", "Secret"), {}),
        ("get", Resource("", "v1", "configmaps", "ConfigMap"), {}),
        ("get", Resource("", "v1", "configmaps", "ConfigMap"), {"namespace": "kube-system"}),
        ("get", resources.NODE, {}),
        ("update", resources.PERSISTENT_VOLUME, {}),
        ("create", resources.POD, {}),
        ("patch", resources.POD, {}),
        ("create", resources.POD, {"subresource": "exec"}),
        ("patch", resources.NODE, {}),
        ("delete", resources.NODE, {}),
        ("patch", resources.SCHEDULING_PROFILE, {}),
        ("create", resources.LEASE, {"namespace": "kube-system"}),
        ("update", resources.LEASE, {"namespace": "mooring-system", "name": "another"}),
    ],
    ids=str,
)
def test_the_service_account_may_do_no_more_than_that(
    access: Access, verb: str, resource: Resource, where: dict[str, str]
) -> None:
    assert not may(access, verb, resource, **where)


class Admission:
    """Creates pods in namespaces with and without the label for a scheduler."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def namespace(self, scheduler: str | None) -> str:
        """Return a new namespace; `scheduler` is the label's value, None leaves the label out."""
        name = f"team-{next(names)}"
        labels = {} if scheduler is None else {DEFAULT_SCHEDULER_LABEL: scheduler}
        with self._access.client() as client:
            client.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        return name

    def scheduler_of(self, namespace: str, body: dict[str, Any]) -> str:
        """Return the schedulerName with which the API server stores the pod."""
        with self._access.client() as client:
            stored = client.post(f"/api/v1/namespaces/{namespace}/pods", body)
        return str(stored["spec"]["schedulerName"])


@pytest.fixture(scope="module")
def admission(access: Access) -> Admission:
    """Yield an Admission after the shipped admission policy is in force."""
    access.kubectl("apply", "-k", str(ROOT / "manifests" / replica.admission()))
    applied = Admission(access)
    probe = applied.namespace("probe")
    eventually(
        lambda: applied.scheduler_of(probe, pod()) == "probe", "the admission policy in force"
    )
    return applied


def test_pods_of_a_labelled_namespace_get_its_scheduler(admission: Admission) -> None:
    assert admission.scheduler_of(admission.namespace("mooring"), pod()) == "mooring"


@pytest.mark.parametrize("label", [None, ""], ids=["no label", "empty label"])
def test_pods_of_other_namespaces_keep_the_default_scheduler(
    admission: Admission, label: str | None
) -> None:
    assert admission.scheduler_of(admission.namespace(label), pod()) == "default-scheduler"


def test_a_pod_that_names_another_scheduler_keeps_it(admission: Admission) -> None:
    asking = pod(schedulerName="bin-packing")
    assert admission.scheduler_of(admission.namespace("mooring"), asking) == "bin-packing"


def test_a_pod_that_already_has_a_node_is_left_alone(admission: Admission) -> None:
    placed = pod(nodeName="node-1")
    assert admission.scheduler_of(admission.namespace("mooring"), placed) == "default-scheduler"


def test_a_pod_that_sets_a_variable_twice_is_not_refused(admission: Admission) -> None:
    twice = pod()
    twice["spec"]["containers"][0]["env"] = [{"name": "A", "value": v} for v in ("1", "2")]
    assert admission.scheduler_of(admission.namespace("mooring"), twice) == "mooring"


GPU_TOPOLOGY = ROOT / "manifests" / "gpu-topology" / "daemonset.yaml"
TOPOLOGY = "scheduling.mooring.dev/gpu-topology"
ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/gpu-topology/token"


class Publisher:
    """The service account of the example DaemonSet, with tokens as its pods have them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        create_nodes(access, 2)

    def token(self, node: str | None) -> str:
        """Return the token of a pod on the node; None: a token that is bound to no pod."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        with self._access.client() as client:
            if node is not None:
                body = pod(nodeName=node, serviceAccountName="gpu-topology")
                made = client.post("/api/v1/namespaces/kube-system/pods", body)["metadata"]
                about = {"name": made["name"], "uid": made["uid"]}
                spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", **about}
            return str(client.post(ACCOUNT, {"spec": spec})["status"]["token"])

    def patch(self, token: str, node: str, **changed: Any) -> dict[str, Any]:
        """Patch the node with this token; return the changed node."""
        with Client.to(self._access.url, token, self._access.ca_file) as client:
            stored: dict[str, Any] = client.patch(f"/api/v1/nodes/{node}", changed)
            return stored

    def refusal(self, token: str, node: str, **changed: Any) -> str:
        """Return why the API server rejects the patch; "" if it accepts the patch."""
        try:
            self.patch(token, node, **changed)
        except ApiError as error:
            return str(error)
        return ""


def annotated(**annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


LINKS = annotated(**{TOPOLOGY: '{"links": [["X"]]}'})


@pytest.fixture(scope="module")
def publisher(access: Access) -> Publisher:
    """Return a Publisher after its role and the policy are in force."""
    access.kubectl("apply", "-f", str(GPU_TOPOLOGY))
    applied = Publisher(access)
    token = applied.token("node-1")
    eventually(lambda: bool(applied.refusal(token, "node-2", **LINKS)), "the policy in force")
    return applied


def test_a_pod_of_the_gpu_daemonset_annotates_its_own_node(publisher: Publisher) -> None:
    stored = publisher.patch(publisher.token("node-1"), "node-1", **LINKS)
    assert stored["metadata"]["annotations"][TOPOLOGY] == '{"links": [["X"]]}'
    removed = publisher.patch(publisher.token("node-1"), "node-1", **annotated(**{TOPOLOGY: None}))
    assert TOPOLOGY not in removed["metadata"].get("annotations", {})


def test_the_script_of_the_gpu_daemonset_publishes_with_that_token(
    access: Access, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(GPU_TOPOLOGY.with_name("publish.py")), run_name="publish")
    (tmp_path / "token").write_text(publisher.token("node-1"))
    (tmp_path / "ca.crt").write_bytes(access.ca_file.read_bytes())
    monkeypatch.setitem(script["publish"].__globals__, "ACCOUNT", str(tmp_path))
    server = urlsplit(access.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("NODE_NAME", "node-1")
    script["publish"]("published")
    with access.client() as client:
        stored = client.get("/api/v1/nodes/node-1")
    assert stored["metadata"]["annotations"][TOPOLOGY] == "published"


def test_a_pod_of_the_gpu_daemonset_may_change_no_other_node(publisher: Publisher) -> None:
    refusal = publisher.refusal(publisher.token("node-1"), "node-2", **LINKS)
    assert "a pod of node node-1 may not change node node-2" in refusal


def test_a_token_of_the_gpu_daemonset_without_a_node_may_change_none(publisher: Publisher) -> None:
    refusal = publisher.refusal(publisher.token(None), "node-1", **LINKS)
    assert "the token names no node; only that of a pod on a node is accepted" in refusal


@pytest.mark.parametrize(
    "changed",
    [
        annotated(**{"scheduling.mooring.dev/gpu-unhealthy": "0"}),
        {"metadata": {"labels": {"kubernetes.io/hostname": "another"}}},
        {"metadata": {"labels": {"more": "yes"}}},
        {"metadata": {"finalizers": ["example.com/held"]}},
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "node-2", "uid": "u"}
                ]
            }
        },
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "taken", "effect": "NoExecute"}]}},
        {**LINKS, "spec": {"unschedulable": True}},
    ],
    ids=str,
)
def test_a_pod_of_the_gpu_daemonset_may_change_nothing_else_of_its_node(
    publisher: Publisher, changed: dict[str, Any]
) -> None:
    refusal = publisher.refusal(publisher.token("node-1"), "node-1", **changed)
    assert f"only the annotation {TOPOLOGY} may be changed" in refusal


@pytest.mark.usefixtures("publisher")
def test_the_policy_of_the_gpu_daemonset_holds_for_nobody_else(access: Access) -> None:
    with access.client() as client:
        stored = client.patch("/api/v1/nodes/node-2", {"metadata": {"labels": {"mine": "yes"}}})
        assert stored["metadata"]["labels"]["mine"] == "yes"
        policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        checked = client.get(f"{policies}/gpu-topology").get("status", {}).get("typeChecking", {})
        assert checked.get("expressionWarnings", []) == []


def test_the_pods_of_the_gpu_daemonset_meet_the_restricted_standard(access: Access) -> None:
    (daemonset,) = (
        found
        for found in yaml.safe_load_all(GPU_TOPOLOGY.read_text())
        if found["kind"] == "DaemonSet"
    )
    template = {"metadata": {"name": "publish"}, "spec": daemonset["spec"]["template"]["spec"]}
    with access.client() as client:
        stored = client.post("/api/v1/namespaces/mooring-system/pods?dryRun=All", template)
    (container,) = stored["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "@sha256:" in container["image"]
