"""Several replicas with one leader, and the knowledge of a replica that has just started."""

import json
import time
from collections.abc import Iterator
from typing import Final

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import (
    PROFILES,
    QUICK_LEASE,
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
    priority_class,
    ready,
)
from faults.books import read_metrics
from policies import profile

FULL: Final = 9
"""Pods of 1.3 cores of which three fill each node; pods of other tests take thousandths."""
UNSCHEDULABLE: Final = '{profile="strict",result="unschedulable"}'
SLOWLY: Final = ("--qps=20", "--burst=20")
MANY: Final = 160
"""Pods whose bindings wait for longer in this limit than a quick lease lives."""
PAUSE_SECONDS: Final = 8.0
"""Longer than a quick lease lives."""
WAITS_FOR_VICTIMS: Final = "not eligible due to a terminating pod on the nominated node."
LEASE = "/apis/coordination.k8s.io/v1/namespaces/mooring-system/leases/mooring"


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    create_nodes(plane.access, 3)
    return plane


def place(client: Client, name: str, scheduler: str = "mooring") -> None:
    """Create a pod and wait until it is bound."""
    create_pods(client, "default", pod(name, cpu="1m", scheduler=scheduler))
    eventually(lambda: bound(client, "default"), lambda nodes: name in nodes, f"{name} bound")


@pytest.fixture
def priorities(client: Client) -> Iterator[tuple[str, str]]:
    """Yield the names of a low and a high PriorityClass."""
    low, high = "failover-low", "failover-high"
    with priority_class(client, low, 0), priority_class(client, high, 1):
        yield low, high


def all_bound(client: Client, namespace: str, count: int) -> None:
    eventually(lambda: len(bound(client, namespace)), lambda n: n == count, f"{count} bound")


def test_a_standby_that_is_told_to_stop_stops_at_once(replicas: Replicas) -> None:
    leader = replicas.start(*QUICK_LEASE)
    leader.wait_until_leads()
    standby = replicas.start(*QUICK_LEASE)
    eventually(lambda: standby.get("/readyz"), lambda page: page[0] == 200, "a warm stand-by")
    assert standby.terminate() == 0
    assert leader.terminate() == 0


def test_a_leader_whose_lease_is_taken_away_ends_with_an_error(
    client: Client, replicas: Replicas
) -> None:
    leader = replicas.start(*QUICK_LEASE)
    leader.wait_until_leads()
    client.patch(LEASE, {"spec": {"holderIdentity": "somebody else"}})
    assert leader.wait() == 1
    assert leader.says("another replica binds now")
    client.delete(LEASE)


def test_a_leader_keeps_its_lease_while_bindings_wait_for_the_client_limit(
    client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start(*QUICK_LEASE, *SLOWLY)
    leader.wait_until_leads()
    create_pods(client, namespace, *(pod(f"p{n}", cpu="1m") for n in range(MANY)))
    all_bound(client, namespace, MANY)
    assert not leader.says("is lost")
    assert leader.terminate() == 0


def test_a_paused_leader_goes_on_if_no_other_replica_has_taken_over(
    client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start(*QUICK_LEASE)
    leader.wait_until_leads()
    leader.pause()
    time.sleep(PAUSE_SECONDS)  # the fault itself: its lease expires meanwhile
    leader.resume()
    create_pods(client, namespace, pod("p", cpu="1m"))
    all_bound(client, namespace, 1)
    assert not leader.says("is lost")
    assert leader.terminate() == 0


def test_a_new_replica_goes_on_with_the_last_good_version_of_a_broken_profile(
    client: Client, replicas: Replicas
) -> None:
    path = f"{PROFILES}/team"
    first = replicas.start()
    good = client.post(PROFILES, profile("team", percentageOfNodesToScore=50))
    eventually(lambda: ready(client.get(path))[0], lambda status: status == "True", "in force")
    broken = {"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}
    client.put(path, {**client.get(path), "spec": broken})
    eventually(lambda: ready(client.get(path))[0], lambda status: status == "False", "rejected")
    assert first.terminate() == 0

    second = replicas.start()
    place(client, "after-restart", scheduler="team")
    restored = client.get(path)
    assert ready(restored)[:2] == ("False", "Invalid")
    assert restored["status"]["inForceGeneration"] == good["metadata"]["generation"]
    assert restored["status"]["inForceSpec"] == {"percentageOfNodesToScore": 50}
    assert restored["status"]["effective"]["percentageOfNodesToScore"] == 50
    assert second.terminate() == 0


def leaving(client: Client, namespace: str) -> dict[str, str]:
    """Return the reason of the disruption of every terminating pod, by name."""
    return {
        name: condition["reason"]
        for name, raw in pods(client, namespace).items()
        if "deletionTimestamp" in raw["metadata"]
        for condition in raw["status"]["conditions"]
        if condition["type"] == "DisruptionTarget"
    }


def test_a_new_leader_waits_for_victims_that_were_evicted_through_the_eviction_api(
    client: Client, namespace: str, replicas: Replicas, priorities: tuple[str, str]
) -> None:
    """The first leader is killed after its evictions and before the preemptor is bound."""
    low, high = priorities
    client.post(PROFILES, profile("strict", preemption={"disruptionBudgets": "Strict"}))
    leader = replicas.start(*QUICK_LEASE)
    leader.wait_until_leads()
    standby = replicas.start(*QUICK_LEASE)
    eventually(lambda: standby.get("/readyz"), lambda page: page[0] == 200, "a warm stand-by")
    fill = (pod(f"low-{n}", cpu="1300m", priorityClassName=low) for n in range(FULL))
    create_pods(client, namespace, *fill)
    all_bound(client, namespace, FULL)
    preemptor = pod("high", cpu="2500m", scheduler="strict", priorityClassName=high)
    create_pods(client, namespace, preemptor)
    victims = eventually(lambda: leaving(client, namespace), lambda v: len(v) == 2, "two victims")
    assert set(victims.values()) == {"EvictionByEvictionAPI"}
    eventually(
        lambda: pods(client, namespace)["high"]["status"].get("nominatedNodeName"),
        bool,
        "the nomination",
    )
    leader.kill()
    standby.wait_until_says("leading:")

    def attempts() -> float:
        samples = read_metrics(standby.get("/metrics")[1])
        return samples.get(f"scheduler_schedule_attempts_total{UNSCHEDULABLE}", 0.0)

    first, last = victims
    before = eventually(attempts, bool, "an attempt by the new leader")
    delete_now(client, namespace, first)
    eventually(attempts, lambda n: n > before, "one after a victim has gone")
    _, page = standby.get(f"/debug/decisions?pod={namespace}/high")
    decisions = json.loads(page)["decisions"]
    assert [d for d in decisions if WAITS_FOR_VICTIMS not in (d["message"] or "")] == []
    assert leaving(client, namespace).keys() == {last}
    delete_now(client, namespace, last)
    eventually(lambda: bound(client, namespace), lambda nodes: "high" in nodes, "high bound")
    assert leaving(client, namespace) == {}
    assert len(bound(client, namespace)) == FULL - 1
    assert standby.terminate() == 0
    client.delete(f"{PROFILES}/strict")
