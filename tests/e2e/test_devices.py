"""Mooring allocates devices to claims that the real claim controller creates and frees.

There is no driver: the test creates the slices, and kwok runs the pods.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

import pytest

import replica
from controlplane import Access, ControlPlane
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from device_builders import (
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from e2e.replicas import QUICK_LEASE, Replicas, eventually
from mooring.claims.model.resource_claims import FINALIZER
from mooring.testing import builders

NODES = ("node-1", "node-2")
NO_BINDING_CONDITIONS: Final = ("1.34", "1.35")
"""API servers that drop the binding conditions of devices, unless a feature gate is on."""
PATIENCE: Final = "60s"
RESOURCES: Final = "/apis/resource.k8s.io/v1"
NUMBERS: Final = count()

Raw = Mapping[str, Any]


class Cluster:
    """A namespace with a driver and a class of its own; kwok runs its nodes' pods."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.namespace = create_namespace(access)
        self.driver = f"gpu-{next(NUMBERS)}.example.com"
        self.access.kubectl(
            "--namespace",
            self.namespace,
            "wait",
            "--for=create",
            "serviceaccount/default",
            f"--timeout={PATIENCE}",
        )
        self.post("deviceclasses", device_class(self.driver, f"device.driver == '{self.driver}'"))

    def post(self, resource: str, raw: Raw) -> None:
        place = "" if resource in ("deviceclasses", "resourceslices") else self._place
        metadata = {"name": raw["metadata"]["name"]}
        with self.access.client() as client:
            client.post(f"{RESOURCES}{place}/{resource}", {**raw, "metadata": metadata})

    @property
    def _place(self) -> str:
        return f"/namespaces/{self.namespace}"

    def add_devices(self, node: str, *devices: str | Raw) -> None:
        """Publish devices of a node, as a driver would."""
        name = f"{self.driver}-{node}"
        self.post("resourceslices", resource_slice(name, devices, node=node, driver=self.driver))

    def add_template(self, name: str, *requests: Raw, **devices: Any) -> None:
        claim = device_claim(name, *requests, **devices)
        template = {
            "apiVersion": claim["apiVersion"],
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": claim["spec"]},
        }
        self.post("resourceclaimtemplates", template)

    def request(self, name: str = "r", number: int = 1, **fields: Any) -> Raw:
        return request(name, number, device_class=self.driver, **fields)

    def add_pod(self, name: str, **claim: str) -> None:
        """Create a pod with the claim or the template of this name."""
        fields = {"template": "resourceClaimTemplateName", "claim": "resourceClaimName"}
        entry = {"name": "gpu"} | {fields[kind]: named for kind, named in claim.items()}
        spec = {"schedulerName": "mooring", "resourceClaims": [entry]}
        self._post_pod(name, spec)

    def add_requesting(self, name: str, resources: Mapping[str, int]) -> None:
        """Create a pod whose only container requests these extended resources."""
        amounts = {resource: str(amount) for resource, amount in resources.items()}
        container = {"name": "app", "image": "app", "resources": {"limits": amounts}}
        self._post_pod(name, {"schedulerName": "mooring", "containers": [container]})

    def _post_pod(self, name: str, spec: Raw) -> None:
        raw = builders.pod(name, namespace=self.namespace, spec=spec)
        with self.access.client() as client:
            client.post(f"/api/v1{self._place}/pods", raw)

    def get(self, resource: str, name: str) -> Any:
        core = "/api/v1" if resource == "pods" else RESOURCES
        with self.access.client() as client:
            return client.get(f"{core}{self._place}/{resource}/{name}")

    def claims(self) -> dict[str, Any]:
        """Return all claims, each by the name of the pod that owns it or else by its own name."""
        with self.access.client() as client:
            items = client.get(f"{RESOURCES}{self._place}/resourceclaims")["items"]
        return {
            next(iter(c["metadata"].get("ownerReferences", ())), c["metadata"])["name"]: c
            for c in items
        }

    def delete_pod(self, name: str) -> None:
        self.access.kubectl("--namespace", self.namespace, "delete", "pod", name, "--now")

    def runs_on(self, name: str) -> str:
        """Wait until the pod runs; return its node."""
        raw = eventually(
            lambda: self.get("pods", name),
            lambda pod: pod["status"].get("phase") == "Running",
            f"{name} runs",
        )
        return str(raw["spec"]["nodeName"])

    def rejection(self, name: str) -> str:
        """Wait until the pod's condition gives a reason; return why the pod has no node."""

        def message(raw: Raw) -> str:
            conditions = raw["status"].get("conditions", ())
            texts = (c.get("message", "") for c in conditions if c["type"] == "PodScheduled")
            return next(texts, "")

        return message(eventually(lambda: self.get("pods", name), message, f"{name} rejected"))


class Scheduler:
    """Runs one replica of Mooring at a time."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._start()

    def _start(self) -> None:
        self._replica = self._replicas.start(*QUICK_LEASE)
        self._replica.wait_until_leads()

    def replace(self, how: str) -> None:
        """Kill or terminate the replica (`how`), and let a new replica take over."""
        if how == "killed":
            self._replica.kill()
        else:
            assert self._replica.terminate() == 0
        self._start()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Access, Scheduler]]:
    with ControlPlane(components={"kube-controller-manager", "kwok"}) as plane:
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, len(NODES))
        with Replicas.of(plane.access, tmp_path_factory.mktemp("logs")) as replicas:
            yield plane.access, Scheduler(replicas)


@pytest.fixture
def cluster(plane: tuple[Access, Scheduler]) -> Cluster:
    return Cluster(plane[0])


@pytest.fixture
def scheduler(plane: tuple[Access, Scheduler]) -> Scheduler:
    return plane[1]


def devices_of(claim: Raw) -> list[str]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [f"{result['pool']}/{result['device']}" for result in results]


def consumers_of(claim: Raw) -> set[str]:
    return {consumer["name"] for consumer in claim.get("status", {}).get("reservedFor", ())}


def test_pods_of_a_template_get_a_device_each_and_give_it_back(cluster: Cluster) -> None:
    cluster.add_devices("node-1", "a0", "a1")
    cluster.add_devices("node-2", "b0")
    cluster.add_template("one", cluster.request())
    names = ("p0", "p1", "p2")
    for name in names:
        cluster.add_pod(name, template="one")
    nodes = {name: cluster.runs_on(name) for name in names}
    claims = cluster.claims()
    used = {name: devices_of(claims[name])[0] for name in names}
    assert set(used.values()) == {"node-1/a0", "node-1/a1", "node-2/b0"}
    assert all(used[name].startswith(nodes[name]) for name in names)
    assert all(consumers_of(claims[name]) == {name} for name in names)
    assert all(FINALIZER in claims[name]["metadata"]["finalizers"] for name in names)
    cluster.add_pod("late", template="one")
    assert "2 cannot allocate all claims." in cluster.rejection("late")
    cluster.delete_pod("p2")
    assert cluster.runs_on("late") == nodes["p2"]


def test_pods_share_a_claim_on_the_node_of_its_device(cluster: Cluster) -> None:
    cluster.add_devices("node-2", device("b0", attributes={"model": "x"}))
    cel = {"cel": {"expression": f"device.attributes['{cluster.driver}'].model == 'x'"}}
    wanted = cluster.request(selectors=[cel])
    cluster.post("resourceclaims", device_claim("shared", wanted))
    for name in ("p0", "p1"):
        cluster.add_pod(name, claim="shared")
    assert {cluster.runs_on(name) for name in ("p0", "p1")} == {"node-2"}
    claim = cluster.claims()["shared"]
    assert devices_of(claim) == ["node-2/b0"]
    assert consumers_of(claim) == {"p0", "p1"}
    for name in ("p0", "p1"):
        cluster.delete_pod(name)
    eventually(lambda: devices_of(cluster.claims()["shared"]), lambda used: not used, "freed")
    cluster.add_pod("p2", claim="shared")
    assert cluster.runs_on("p2") == "node-2"


def test_a_pod_waits_for_its_claim_and_then_for_devices(cluster: Cluster) -> None:
    cluster.add_pod("web", claim="later")
    cluster.post("resourceclaims", device_claim("later", cluster.request(number=2)))
    assert "2 cannot allocate all claims." in cluster.rejection("web")
    cluster.add_devices("node-1", "a0", "a1")
    assert cluster.runs_on("web") == "node-1"


def test_a_selector_that_fails_for_a_device_says_so(cluster: Cluster) -> None:
    cluster.add_devices("node-1", "a0")
    cel = {"cel": {"expression": f"device.attributes['{cluster.driver}'].model == 'x'"}}
    cluster.post("resourceclaims", device_claim("odd", cluster.request(selectors=[cel])))
    cluster.add_pod("web", claim="odd")
    assert "CEL runtime error: no such key: model" in cluster.rejection("web")


def test_devices_of_a_class_back_an_extended_resource(cluster: Cluster) -> None:
    """The feature exists since 1.36; the claim controller frees the devices of a deleted pod."""
    resource = f"example.com/{cluster.driver.partition('.')[0]}"
    selector = f"device.driver == '{cluster.driver}'"
    backing = device_class(f"{cluster.driver}-x", selector, extendedResourceName=resource)
    cluster.post("deviceclasses", backing)
    cluster.add_devices("node-1", "a0", "a1")
    cluster.add_requesting("web", {resource: 2})
    if not chosen_release().backs_resources_by_devices:
        assert f"Insufficient {resource}" in cluster.rejection("web")
        return
    assert cluster.runs_on("web") == "node-1"
    claim = cluster.claims()["web"]
    assert (devices_of(claim), consumers_of(claim)) == (["node-1/a0", "node-1/a1"], {"web"})
    assert claim["metadata"]["name"].startswith("web-extended-resources-")
    mapping = {"resourceName": resource, "requestName": "container-0-request-0"}
    assert cluster.get("pods", "web")["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": claim["metadata"]["name"],
        "requestMappings": [{"containerName": "app", **mapping}],
    }
    cluster.add_requesting("late", {resource: 1})
    assert "2 cannot allocate all claims." in cluster.rejection("late")
    cluster.delete_pod("web")
    assert cluster.runs_on("late") == "node-1"


@pytest.mark.parametrize("scheduler_is", ["left alone", "killed", "terminated"])
def test_a_pod_is_bound_when_its_device_is_attached(
    cluster: Cluster,
    scheduler: Scheduler,
    scheduler_is: str,
) -> None:
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    cluster.add_devices("node-1", device("a0", **conditions, bindsToNode=True))
    cluster.post("resourceclaims", device_claim("cabled", cluster.request()))
    cluster.add_pod("web", claim="cabled")
    if chosen_release().minor in NO_BINDING_CONDITIONS:
        assert cluster.runs_on("web") == "node-1"
        return
    claim = eventually(lambda: cluster.claims()["cabled"], devices_of, "allocated")
    assert "nodeName" not in cluster.get("pods", "web")["spec"]
    version = claim["metadata"]["resourceVersion"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["bindingConditions"] == ["Attached"]
    attached = {
        "type": "Attached",
        "status": "True",
        "reason": "Cabled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    if scheduler_is != "left alone":
        scheduler.replace(scheduler_is)
    assert cluster.claims()["cabled"]["metadata"]["resourceVersion"] == version
    told = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [attached]}
    with cluster.access.client() as client:
        path = f"{RESOURCES}/namespaces/{cluster.namespace}/resourceclaims/cabled/status"
        client.patch(path, {"status": {"devices": [told]}})
        assert cluster.runs_on("web") == "node-1"
        claim = cluster.claims()["cabled"]
        assert (devices_of(claim), consumers_of(claim)) == (["node-1/a0"], {"web"})
        events = client.get(f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events")
    assert "BindingConditionsPending" in {event["reason"] for event in events["items"]}
