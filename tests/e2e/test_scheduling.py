"""The scheduling of a pod as its owner sees it."""

import json
from contextlib import suppress

import pytest

from controlplane.namespaces import create_namespace, delete_namespace
from e2e.conftest import Cluster
from e2e.node_pool import NodePool
from e2e.replicas import delete_now, eventually, pod, pods


def test_an_unschedulable_pod_has_kube_schedulers_message(pool: NodePool) -> None:
    pool.add_nodes(cpu="1")
    pool.add_nodes(prefix="elsewhere-n", cpu="8")
    pool.client.patch(
        f"/api/v1/nodes/{pool.name}-elsewhere-n-1",
        {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}},
    )
    pool.add_pod("big", cpu="2")
    condition = pool.wait_until_unschedulable("big")
    total = pool.node_count()
    others = f"{total - 2} node(s) didn't match Pod's node affinity/selector, " * (total > 2)
    reasons = f"1 Insufficient cpu, 1 node(s) had untolerated taint(s), {others}"
    words = f"0/{total} nodes are available: {reasons.removesuffix(', ')}. "
    assert condition["message"].startswith(words)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    [event] = eventually(lambda: pool.events("FailedScheduling"), bool, "an event")
    assert event["note"] == condition["message"]
    assert (event["type"], event["regarding"]["name"]) == ("Warning", "big")


def test_a_new_node_makes_a_pod_schedulable(pool: NodePool) -> None:
    pool.add_nodes(cpu="1")
    pool.add_pod("big", cpu="2")
    pool.wait_until_unschedulable("big")
    [has_capacity] = pool.add_nodes(prefix="roomy", cpu="2")
    pool.wait_until_bound("big")
    assert pool.bound()["big"] == has_capacity
    [event] = eventually(lambda: pool.events("Scheduled"), bool, "an event")
    assert event["note"] == f"Successfully assigned {pool.name}/big to {has_capacity}"


def test_a_toleration_added_later_makes_a_pod_schedulable(pool: NodePool) -> None:
    [node] = pool.add_nodes()
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    pool.client.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    pool.add_pod("web")
    pool.wait_until_unschedulable("web")
    pool.patch_pod("web", {"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}})
    pool.wait_until_bound("web")


def test_pods_of_a_deleted_node_count_when_the_node_is_added_again(
    pool: NodePool,
) -> None:
    [node] = pool.add_nodes(cpu="1")
    pool.add_pod("first", cpu="600m")
    pool.wait_until_bound("first")
    pool.delete_node(node)
    pool.add_pod("second", cpu="600m")
    pool.wait_until_unschedulable("second")
    pool.add_nodes(cpu="1")
    pool.add_pod("small", cpu="400m")
    pool.wait_until_bound("small")
    assert "second" not in pool.bound()
    delete_now(pool.client, pool.name, "first")
    pool.wait_until_bound("second")
    assert set(pool.bound().values()) == {node}


def test_the_condition_of_a_running_pod_is_not_overwritten_by_an_earlier_attempt(
    pool: NodePool,
) -> None:
    names = [f"p{number}" for number in range(30)]
    for name in names:
        pool.add_pod(name, cpu="100m")
    pool.wait_until_unschedulable(names[0])
    pool.add_nodes()
    pool.wait_until_bound(*names)
    for raw in pods(pool.client, pool.name).values():
        [condition] = [c for c in raw["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert condition["status"] == "True"


def test_the_endpoints_show_health_metrics_profiles_and_decisions(
    cluster: Cluster, pool: NodePool
) -> None:
    scheduler = cluster.scheduler
    [node] = pool.add_nodes()
    pool.add_pod("web")
    pool.wait_until_bound("web")
    assert scheduler.get("/livez") == (200, "ok")
    assert scheduler.get("/readyz") == (200, "ok")
    attempts = 'scheduler_schedule_attempts_total{profile="mooring",result="scheduled"}'
    assert attempts in scheduler.get("/metrics")[1]
    assert json.loads(scheduler.get("/configz")[1])["mooring"]["schedulerNames"] == ["mooring"]
    status, answer = scheduler.get(f"/debug/decisions?pod={pool.name}/web")
    assert status == 200
    assert json.loads(answer)["decisions"][-1]["node"] == node


@pytest.mark.parametrize("path", ["/debug/decisions?pod=no", "/debug/decisions?pod=no/such"])
def test_a_request_without_a_pod_is_answered_with_one_line(cluster: Cluster, path: str) -> None:
    status, answer = cluster.scheduler.get(path)
    assert status in (400, 404)
    assert answer.count("\n") == 1


def test_a_pod_nested_too_deeply_to_be_parsed_holds_up_no_other(
    cluster: Cluster, pool: NodePool
) -> None:
    """Users who create pods can write managed fields; the API server accepts 10,000 levels."""
    pool.add_nodes(cpu="2")
    fields = '{"f:a":' * 9_000 + "{}" + "}" * 9_000
    managed = {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    deep = pod("deep", cpu="1", nodeSelector={"pool": pool.name})
    deep["metadata"]["managedFields"] = [{**managed, "fieldsV1": "HERE"}]
    elsewhere = create_namespace(cluster.access, "deep")
    path = f"/api/v1/namespaces/{elsewhere}/pods"
    with suppress(RecursionError):  # of this test, which cannot parse the answer either
        pool.client.post(path, json.dumps(deep).replace('"HERE"', fields).encode())
    events = f"/apis/events.k8s.io/v1/namespaces/{elsewhere}/events"
    eventually(
        lambda: [event["reason"] for event in pool.client.get(events)["items"]],
        lambda reasons: reasons == ["Scheduled"],
        "the deep pod bound",
    )
    pool.add_pod("big", cpu="1500m")
    pool.wait_until_unschedulable("big")
    with suppress(RecursionError):
        pool.client.delete(f"{path}/deep?gracePeriodSeconds=0")
    pool.wait_until_bound("big")
    assert not cluster.scheduler.says("kopf gave up")
    assert not cluster.scheduler.says("unreadable event")
    delete_namespace(cluster.access, elsewhere)
