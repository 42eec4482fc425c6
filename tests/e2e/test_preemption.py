"""Preemption on a real control plane: Deployments, grace periods, budgets, many pods at once.

kwok ends deleted pods at once; a finalizer simulates a pod that terminates slowly.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, free_ports
from e2e import replicas

NODES = 57
LINGER = "mooring.test/linger"
SECONDS = 60.0
LOOK_AGAIN = 0.1

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane with nodes and controllers, and Mooring as shipped."""
    log = tmp_path_factory.mktemp("mooring") / "mooring.log"
    with (
        ControlPlane({"kube-controller-manager", "kwok"}) as plane,
        ProcessGroup() as group,
        plane.access.client() as connected,
    ):
        create_nodes(plane.access, NODES)
        replica.apply_manifests(plane.access)
        for name, value in (("low", 10), ("high", 1000)):
            connected.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority(name, value))
        kubeconfig = plane.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        (port,) = free_ports(1)
        program = group.spawn(
            "mooring", replica.command(kubeconfig, port), log=log, env=replica.environment()
        )
        replica.wait_until_ready(program, port)
        yield plane
        assert "Traceback" not in log.read_text()


@pytest.fixture
def namespace(plane: ControlPlane, client: Client) -> Iterator[str]:
    """Yield a namespace for the test; delete its pods afterwards."""
    name = create_namespace(plane.access)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    replicas.eventually(lambda: client.get(accounts)["items"], bool, "the account that pods need")
    yield name
    for pod in pods(client, name):
        release(client, pod)
    delete_namespace(plane.access, name)


def priority(name: str, value: int) -> Raw:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def pod_spec(priority_class: str, cpu: str, nodes: str | None = None, **more: Any) -> Raw:
    requests = {"requests": {"cpu": cpu}}
    spec = {
        "schedulerName": "mooring",
        "priorityClassName": priority_class,
        "containers": [{"name": "c", "image": "registry.example/c:1", "resources": requests}],
        **more,
    }
    return spec | ({"nodeSelector": {"pool": nodes}} if nodes else {})


def pod(name: str, spec: Raw, **metadata: Any) -> Raw:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def deployment(name: str, replicas: int, spec: Raw) -> Raw:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pods(client: Client, namespace: str) -> list[Raw]:
    items: list[Raw] = client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return items


def create(client: Client, namespace: str, *created: Raw) -> None:
    for raw in created:
        client.post(f"/api/v1/namespaces/{namespace}/pods", raw)


def release(client: Client, pod: Raw) -> None:
    """Remove the pod's finalizer, so that the pod can leave."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if metadata.get("finalizers"):
        client.patch(path, {"metadata": {"finalizers": None}})


def running(found: list[Raw], app: str) -> int:
    return sum(
        p["metadata"].get("labels", {}).get("app") == app and p["status"]["phase"] == "Running"
        for p in found
    )


def all_run(app: str, number: int, found: list[Raw]) -> bool:
    return running(found, app) == number


def leaving(found: list[Raw]) -> set[str]:
    return {p["metadata"]["name"] for p in found if "deletionTimestamp" in p["metadata"]}


def node_of(found: list[Raw], name: str) -> str | None:
    for p in found:
        if p["metadata"]["name"] == name:
            node: str | None = p["spec"].get("nodeName")
            return node
    return None


def eventually(
    client: Client, namespace: str, holds: Callable[[list[Raw]], object], what: str
) -> list[Raw]:
    """Return the namespace's pods when `holds` accepts them."""
    deadline = time.monotonic() + SECONDS
    while not holds(found := pods(client, namespace)):
        if time.monotonic() > deadline:
            states = sorted(
                (p["metadata"]["name"], p["status"]["phase"], p["spec"].get("nodeName"))
                for p in found
            )
            pytest.fail(f"{what} did not come about: {states[:20]}")
        time.sleep(LOOK_AGAIN)
    return found


def pool(client: Client, name: str, *numbers: int) -> str:
    """Label these nodes (4 cpus each) for one test; return the label's value."""
    for number in numbers:
        client.patch(f"/api/v1/nodes/node-{number:02}", {"metadata": {"labels": {"pool": name}}})
    return name


def events(client: Client, namespace: str, reason: str) -> list[Raw]:
    items = client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [event for event in items if event["reason"] == reason]


def test_a_high_priority_deployment_displaces_a_low_one(client: Client, namespace: str) -> None:
    nodes = pool(client, "displace", 1, 2)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    client.post(path, deployment("low", 8, pod_spec("low", "1", nodes)))
    eventually(client, namespace, lambda p: running(p, "low") == 8, "8 low pods running")
    client.post(path, deployment("high", 4, pod_spec("high", "1", nodes)))
    eventually(
        client,
        namespace,
        lambda p: running(p, "high") == 4 and running(p, "low") == 4,
        "4 high pods running beside 4 low ones",
    )
    eventually(
        client,
        namespace,
        lambda _: len(events(client, namespace, "Preempted")) == 4,
        "4 victims told why",
    )
    told = events(client, namespace, "Preempted")
    assert all("for priority 1000 (high); its own is" in event["note"] for event in told)
    assert events(client, namespace, "Preempting")


def test_the_status_of_a_budget_is_respected(client: Client, namespace: str) -> None:
    nodes = pool(client, "budget", 3, 4)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    for app in ("guarded", "free"):
        client.post(path, deployment(app, 4, pod_spec("low", "1", nodes)))
        eventually(client, namespace, partial(all_run, app, 4), f"4 {app} pods running")
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    client.post(
        budgets,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard"},
            "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "guarded"}}},
        },
    )
    eventually(
        client,
        namespace,
        lambda _: client.get(f"{budgets}/guard").get("status", {}).get("expectedPods") == 4,
        "the disruption controller's status",
    )
    create(client, namespace, *(pod(f"high-{i}", pod_spec("high", "1", nodes)) for i in range(4)))
    found = eventually(
        client,
        namespace,
        lambda p: all(node_of(p, f"high-{i}") for i in range(4)),
        "4 high pods bound",
    )
    assert running(found, "guarded") == 4


def test_a_preemptor_waits_for_victims_that_take_their_time(client: Client, namespace: str) -> None:
    nodes = pool(client, "linger", 5, 6)
    lingering = [
        pod(f"low-{i}", pod_spec("low", "1", nodes), finalizers=[LINGER]) for i in range(8)
    ]
    create(client, namespace, *lingering)
    eventually(client, namespace, lambda p: all(q["spec"].get("nodeName") for q in p), "8 bound")
    create(client, namespace, pod("high", pod_spec("high", "2", nodes)))
    found = eventually(client, namespace, lambda p: len(leaving(p)) == 2, "2 victims leaving")
    victims = leaving(found)
    # Whatever happens meanwhile makes the preemptor try again, and must not cost anybody else.
    client.patch("/api/v1/nodes/node-05", {"metadata": {"labels": {"touched": "yes"}}})
    create(client, namespace, pod("marker", pod_spec("high", "0")))
    found = eventually(client, namespace, lambda p: node_of(p, "marker"), "a later pod bound")
    assert leaving(found) == victims
    assert node_of(found, "high") is None
    for victim in found:
        if victim["metadata"]["name"] in victims:
            release(client, victim)
    found = eventually(client, namespace, lambda p: node_of(p, "high"), "the preemptor bound")
    assert leaving(found) == set()
    assert sum(p["metadata"]["name"].startswith("low-") for p in found) == 6


def test_a_nominated_pod_that_is_deleted_frees_its_claim(client: Client, namespace: str) -> None:
    nodes = pool(client, "claim", 7)
    lingering = [
        pod(f"low-{i}", pod_spec("low", "1", nodes), finalizers=[LINGER]) for i in range(4)
    ]
    create(client, namespace, *lingering)
    eventually(client, namespace, lambda p: all(q["spec"].get("nodeName") for q in p), "4 bound")
    create(client, namespace, pod("high", pod_spec("high", "4", nodes)))
    eventually(client, namespace, lambda p: len(leaving(p)) == 4, "4 victims leaving")
    create(client, namespace, pod("late", pod_spec("low", "4", nodes)))
    client.delete(f"/api/v1/namespaces/{namespace}/pods/high")
    for victim in pods(client, namespace):
        release(client, victim)
    eventually(client, namespace, lambda p: node_of(p, "late"), "the room given to another")


def test_many_preemptors_at_once_displace_exactly_as_many_as_needed(
    client: Client, namespace: str
) -> None:
    nodes, count = pool(client, "many", *range(8, NODES + 1)), 50
    create(
        client,
        namespace,
        *(pod(f"low-{i}", pod_spec("low", "1", nodes)) for i in range(4 * count)),
    )
    eventually(
        client,
        namespace,
        lambda p: sum(bool(q["spec"].get("nodeName")) for q in p) == 4 * count,
        "full nodes",
    )
    preemptors = 200
    create(
        client,
        namespace,
        *(pod(f"high-{i}", pod_spec("high", "500m", nodes)) for i in range(preemptors)),
    )

    def all_bound(found: list[Raw]) -> bool:
        high = [p for p in found if p["metadata"]["name"].startswith("high-")]
        return len(high) == preemptors and all(p["spec"].get("nodeName") for p in high)

    found = eventually(client, namespace, all_bound, "200 high pods bound")
    assert leaving(found) == set()
    low = [p for p in found if p["metadata"]["name"].startswith("low-")]
    assert len(low) == 4 * count - preemptors // 2
    eventually(
        client,
        namespace,
        lambda _: len(events(client, namespace, "Preempted")) == preemptors // 2,
        "every victim told why",
    )
