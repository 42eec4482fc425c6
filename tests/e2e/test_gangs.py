"""Groups of pods on a real API server: all members are placed or none, whatever happens."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace, delete_namespace
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
    ready,
)

Raw = dict[str, Any]

GROUP, MINIMUM = "example.com/group", "example.com/minimum"
SETTLED_SECONDS = 1.0


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    with plane.access.client() as client:
        labels = [{"name": GROUP, "minimum": MINIMUM}]
        args = {"podGroupLabels": labels}
        spec = {"pluginConfig": [{"name": "GangScheduling", "args": args}]}
        client.patch(f"{PROFILES}/mooring", {"spec": spec})
    return plane


@pytest.fixture
def namespace(plane: ControlPlane, client: Client) -> Iterator[str]:
    """Yield a namespace; before and after the test the cluster has no nodes."""
    name = create_namespace(plane.access)
    yield name
    delete_namespace(plane.access, name)
    for node in client.get("/api/v1/nodes")["items"]:
        client.delete(f"/api/v1/nodes/{node['metadata']['name']}")


def add_nodes(plane: ControlPlane, *cpus: int, prefix: str = "n", **labels: str) -> list[str]:
    """Create a node for each number of cpus, with these labels; return the nodes' names."""
    return [
        create_nodes(
            plane.access,
            1,
            prefix=f"{prefix}{number}",
            capacity={"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            labels=labels,
        )[0]
        for number, cpu in enumerate(cpus)
    ]


def member(group: str, number: int, minimum: int, **fields: Any) -> Raw:
    annotations = {MINIMUM: str(minimum), **fields.pop("annotations", {})}
    raw = pod(f"{group}-{number}", labels={GROUP: group}, **fields)
    raw["metadata"]["annotations"] = annotations
    return raw


def gang(group: str, size: int, **fields: Any) -> list[Raw]:
    return [member(group, number, size, **fields) for number in range(size)]


def bound_per_group(client: Client, namespace: str) -> Counter[str]:
    return Counter(name.rpartition("-")[0] for name in bound(client, namespace))


def message(client: Client, namespace: str, name: str) -> str:
    """Return the message of the pod's condition PodScheduled=False."""
    conditions = pods(client, namespace)[name]["status"].get("conditions", ())
    return next((c["message"] for c in conditions if c["status"] == "False"), "")


def profile_in_force(client: Client) -> None:
    eventually(
        lambda: ready(client.get(f"{PROFILES}/mooring")), lambda r: r[0] == "True", "the profile"
    )


def test_of_fifty_groups_with_space_for_twenty_none_is_partly_bound(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start()
    leader.wait_until_leads()
    profile_in_force(client)
    add_nodes(plane, *[16] * 10)
    groups = [gang(f"g{number}", 8, cpu="1") for number in range(50)]
    create_pods(
        client, namespace, *[raw for members in zip(*groups, strict=True) for raw in members]
    )
    eventually(lambda: len(bound(client, namespace)), lambda n: n == 160, "20 groups bound")
    time.sleep(SETTLED_SECONDS)
    assert set(bound_per_group(client, namespace).values()) == {8}
    assert len(bound_per_group(client, namespace)) == 20
    assert leader.terminate() == 0


def test_of_two_groups_that_each_need_most_of_the_cluster_the_second_follows_the_first(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start()
    leader.wait_until_leads()
    profile_in_force(client)
    add_nodes(plane, 5, 5)
    for one, other in zip(gang("a", 6, cpu="1"), gang("b", 6, cpu="1"), strict=True):
        create_pods(client, namespace, one, other)
    first = eventually(
        lambda: bound_per_group(client, namespace), lambda c: c.total() == 6, "one group bound"
    )
    [(winner, _)] = first.items()
    loser = "b" if winner == "a" else "a"
    eventually(
        lambda: message(client, namespace, f"{loser}-0"),
        lambda text: "the group of 6 does not fit: 4 of 6 members fit, needs 2 CPUs more" in text,
        "a message that says what is short",
    )
    for number in range(6):
        delete_now(client, namespace, f"{winner}-{number}")
    eventually(
        lambda: bound_per_group(client, namespace), lambda c: c[loser] == 6, "the other group bound"
    )
    assert leader.terminate() == 0


def test_a_mixed_group_is_placed_where_one_member_after_the_other_fails(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start()
    leader.wait_until_leads()
    profile_in_force(client)
    add_nodes(plane, 8, 7)
    small = [member("mixed", number, 9, cpu="1") for number in range(8)]
    create_pods(client, namespace, *small, member("mixed", 8, 9, cpu="7"))
    eventually(lambda: len(bound(client, namespace)), lambda n: n == 9, "all members bound")
    assert leader.terminate() == 0


def test_a_leader_that_is_killed_while_a_group_waits_leaves_it_to_the_next(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    first = replicas.start(*QUICK_LEASE)
    first.wait_until_leads()
    profile_in_force(client)
    add_nodes(plane, 4)
    create_pods(client, namespace, *gang("g", 8, cpu="1"))
    eventually(lambda: message(client, namespace, "g-0"), lambda text: "8" in text, "a message")
    first.kill()
    second = replicas.start(*QUICK_LEASE)
    second.wait_until_leads()
    assert not bound(client, namespace)
    add_nodes(plane, 4, prefix="more")
    eventually(lambda: len(bound(client, namespace)), lambda n: n == 8, "the group bound")
    assert second.terminate() == 0


def test_a_group_whose_leader_is_killed_while_it_is_bound_is_completed_by_the_next(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    slowly = ("--qps=10", "--burst=10")
    first = replicas.start(*QUICK_LEASE, *slowly)
    first.wait_until_leads()
    profile_in_force(client)
    add_nodes(plane, *[16] * 4)
    create_pods(client, namespace, *gang("g", 60, cpu="1"))
    eventually(lambda: len(bound(client, namespace)), lambda n: n > 5, "some of them bound")
    first.kill()
    assert len(bound(client, namespace)) < 60
    second = replicas.start(*QUICK_LEASE)
    second.wait_until_leads()
    eventually(lambda: len(bound(client, namespace)), lambda n: n == 60, "the group bound")
    assert second.terminate() == 0


def test_a_group_whose_rack_fails_is_placed_in_another(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    leader = replicas.start()
    leader.wait_until_leads()
    profile_in_force(client)
    racks = {rack: add_nodes(plane, 4, 4, prefix=rack, rack=rack) for rack in ("r1", "r2", "r3")}
    annotations = {"scheduling.mooring.dev/topology-keys": "rack"}

    def create() -> None:
        create_pods(client, namespace, *gang("g", 6, cpu="1", annotations=annotations))

    def rack_of_all(nodes: dict[str, str]) -> str:
        used = {rack for rack, names in racks.items() if set(nodes.values()) & set(names)}
        assert len(used) == 1, nodes
        return used.pop()

    def all_bound() -> dict[str, str]:
        return eventually(lambda: bound(client, namespace), lambda b: len(b) == 6, "all bound")

    create()
    failed = rack_of_all(all_bound())
    for name in racks[failed]:
        client.delete(f"/api/v1/nodes/{name}")
    for number in range(6):
        delete_now(client, namespace, f"g-{number}")
    create()
    assert rack_of_all(all_bound()) != failed
    assert leader.terminate() == 0
