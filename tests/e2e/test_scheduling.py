"""A pod's way, as its owner sees it."""

import json

import pytest

from e2e.conftest import Cluster
from e2e.replicas import create_pods, delete_now, eventually, pod, pods
from e2e.rooms import GPU, PotentialVictims


def test_a_gated_pod_waits_until_its_gates_are_removed(room: PotentialVictims) -> None:
    room.add_nodes()
    room.add_pod("gated", schedulingGates=[{"name": "example.com/quota"}])
    room.add_pod("free")
    room.wait_until_bound("free")
    assert "gated" not in room.bound()
    assert room.events("FailedScheduling") == []
    room.patch_pod("gated", {"spec": {"schedulingGates": None}})
    room.wait_until_bound("gated")


def test_a_pod_without_room_is_told_why_in_upstreams_words(room: PotentialVictims) -> None:
    room.add_nodes(cpu="1")
    room.add_nodes(prefix="elsewhere-n", cpu="8")
    room.client.patch(
        f"/api/v1/nodes/{room.name}-elsewhere-n-1",
        {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}},
    )
    room.add_pod("big", cpu="2")
    condition = room.wait_until_refused("big")
    total = room.node_count()
    others = f"{total - 2} node(s) didn't match Pod's node affinity/selector, " * (total > 2)
    reasons = f"1 Insufficient cpu, 1 node(s) had untolerated taint(s), {others}"
    words = f"0/{total} nodes are available: {reasons.removesuffix(', ')}. "
    assert condition["message"].startswith(words)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    [event] = eventually(lambda: room.events("FailedScheduling"), bool, "an event")
    assert event["note"] == condition["message"]
    assert (event["type"], event["regarding"]["name"]) == ("Warning", "big")


def test_a_new_node_cures_a_refusal(room: PotentialVictims) -> None:
    room.add_nodes(cpu="1")
    room.add_pod("big", cpu="2")
    room.wait_until_refused("big")
    [has_capacity] = room.add_nodes(prefix="roomy", cpu="2")
    room.wait_until_bound("big")
    assert room.bound()["big"] == has_capacity
    [event] = eventually(lambda: room.events("Scheduled"), bool, "an event")
    assert event["note"] == f"Successfully assigned {room.name}/big to {has_capacity}"


def test_a_toleration_added_later_cures_a_refusal(room: PotentialVictims) -> None:
    [node] = room.add_nodes()
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    room.client.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    room.add_pod("web")
    room.wait_until_refused("web")
    room.patch_pod("web", {"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}})
    room.wait_until_bound("web")


def test_what_runs_on_a_node_still_counts_after_the_node_was_deleted_and_added(
    room: PotentialVictims,
) -> None:
    [node] = room.add_nodes(cpu="1")
    room.add_pod("first", cpu="600m")
    room.wait_until_bound("first")
    room.delete_node(node)
    room.add_pod("second", cpu="600m")
    room.wait_until_refused("second")
    room.add_nodes(cpu="1")
    room.add_pod("small", cpu="400m")
    room.wait_until_bound("small")
    assert "second" not in room.bound()
    delete_now(room.client, room.name, "first")
    room.wait_until_bound("second")
    assert set(room.bound().values()) == {node}


def test_extended_resources_are_counted(room: PotentialVictims) -> None:
    room.add_nodes(gpus=2)
    gpu = {GPU: "1"}
    for name in ("a", "b", "c"):
        room.add_pod(name, requests=gpu, limits=gpu)
    eventually(room.bound, lambda nodes: len(nodes) == 2, "two pods bound")
    [left] = {"a", "b", "c"} - room.bound().keys()
    assert f"1 Insufficient {GPU}" in room.wait_until_refused(left)["message"]
    delete_now(room.client, room.name, next(iter(room.bound())))
    room.wait_until_bound(left)


def test_a_running_pods_condition_is_not_overwritten_by_its_last_refusal(
    room: PotentialVictims,
) -> None:
    names = [f"p{number}" for number in range(30)]
    for name in names:
        room.add_pod(name, cpu="100m")
    room.wait_until_refused(names[0])
    room.add_nodes()
    room.wait_until_bound(*names)
    for raw in pods(room.client, room.name).values():
        [condition] = [c for c in raw["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert condition["status"] == "True"


def test_other_schedulers_pods_are_left_alone(room: PotentialVictims) -> None:
    room.add_nodes()
    create_pods(room.client, room.name, pod("other", scheduler="default-scheduler"))
    room.add_pod("ours")
    room.wait_until_bound("ours")
    assert "other" not in room.bound()


def test_the_endpoints_tell_of_health_metrics_policy_and_decisions(
    cluster: Cluster, room: PotentialVictims
) -> None:
    scheduler = cluster.scheduler
    [node] = room.add_nodes()
    room.add_pod("web")
    room.wait_until_bound("web")
    assert scheduler.get("/livez") == (200, "ok")
    assert scheduler.get("/readyz") == (200, "ok")
    attempts = 'scheduler_schedule_attempts_total{profile="mooring",result="scheduled"}'
    assert attempts in scheduler.get("/metrics")[1]
    assert json.loads(scheduler.get("/configz")[1])["mooring"]["schedulerNames"] == ["mooring"]
    status, answer = scheduler.get(f"/debug/decisions?pod={room.name}/web")
    assert status == 200
    assert json.loads(answer)["decisions"][-1]["node"] == node


@pytest.mark.parametrize("path", ["/debug/decisions?pod=no", "/debug/decisions?pod=no/such"])
def test_a_question_about_no_pod_is_answered_with_a_line(cluster: Cluster, path: str) -> None:
    status, answer = cluster.scheduler.get(path)
    assert status in (400, 404)
    assert answer.count("\n") == 1
