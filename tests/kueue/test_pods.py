"""Plain pods that Kueue gates, alone and as groups; and what `mooring explain` says of them."""

from collections.abc import Iterator

import pytest

from controlplane.client import Client
from e2e.replicas import create_pods, eventually, pod, pods
from kueue.team import GROUP, QUEUE, TOTAL, USER, Cluster, Team

RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
GATE = "kueue.x-k8s.io/admission"


def plain_pod(name: str, group: str = "", total: int = 0) -> dict[str, object]:
    """Return a pod for the queue `main` that requests a CPU, perhaps as one of a group."""
    raw = pod(name, cpu="1", scheduler="default-scheduler", labels={QUEUE: "main"})
    if group:
        raw["metadata"]["labels"][GROUP] = group
        raw["metadata"]["annotations"] = {TOTAL: str(total)}
    return raw


def gates(team: Team, name: str) -> list[str]:
    found = pods(team.client, team.name)[name]["spec"].get("schedulingGates", ())
    return [gate["name"] for gate in found]


def explained(team: Team, name: str, *words: str) -> str:
    """Return what is said of the pod once it has these words."""
    return eventually(
        lambda: team.cluster.explain(f"{team.name}/{name}"),
        lambda said: all(each in said for each in words),
        f"{name} explained with {words}",
    )


def test_a_gated_pod_is_explained_by_its_gate_and_by_what_its_workload_says(team: Team) -> None:
    team.add_nodes(1)
    team.add_flavor()
    team.add_queue("main", "1")
    create_pods(team.client, team.name, plain_pod("first"))
    eventually(team.bound, lambda nodes: "first" in nodes, "the first pod bound")
    create_pods(team.client, team.name, plain_pod("second"))
    assert GATE in gates(team, "second")
    explained(
        team,
        "second",
        f"held back by SchedulingGates: waiting for scheduling gates: [{GATE}",
        "Kueue's Workload pod-second-",
        "QuotaReserved False, Pending: ",
        "insufficient unused quota for cpu",
    )
    team.succeed("first")
    eventually(team.bound, lambda nodes: "second" in nodes, "the second pod bound")
    assert gates(team, "second") == []
    assert "Kueue" not in team.cluster.explain(f"{team.name}/second")


@pytest.fixture
def user(cluster: Cluster) -> Iterator[str]:
    """Yield a user who may see pods and have them explained, and knows nothing of Kueue."""
    with cluster.access.client() as client:
        for role in ("view", "mooring-explain"):
            bind(client, role)
        yield USER


def bind(client: Client, role: str) -> None:
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    metadata = {"name": f"{USER}-{role}"}
    client.post(RBAC, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})


def test_workloads_are_read_with_the_rights_of_whoever_asks(team: Team, user: str) -> None:
    team.add_flavor()
    team.add_queue("main", "0")
    create_pods(team.client, team.name, plain_pod("waits"))
    explained(team, "waits", "QuotaReserved False")
    create_pods(team.client, team.name, *(plain_pod(f"pair{n}", "pair", 2) for n in range(2)))
    explained(team, "pair1", "Kueue's Workload pair:", "QuotaReserved False")
    said = team.cluster.explain(f"{team.name}/waits", user)
    [line] = [line for line in said.splitlines() if "Workload" in line]
    assert line.startswith("  Kueue's Workloads cannot be read: list workloads.kueue.x-k8s.io")
    assert line.endswith("Kueue's ClusterRole kueue-batch-user-role grants it")
    bind(team.client, "kueue-batch-user-role")
    eventually(
        lambda: team.cluster.explain(f"{team.name}/waits", user),
        lambda text: "QuotaReserved False" in text,
        "the conditions",
    )


def test_a_group_of_pods_is_admitted_whole_by_kueue_and_placed_whole_by_mooring(
    team: Team,
) -> None:
    team.add_nodes(1)
    team.add_flavor()
    team.add_queue("main", "3")
    first, second, third = (plain_pod(f"p{number}", "ring", 3) for number in range(3))
    create_pods(team.client, team.name, first, second)
    explained(team, "p0", GATE, "Kueue has no Workload for it")
    create_pods(team.client, team.name, third)
    explained(team, "p0", "the group of 3 does not fit")
    assert team.bound() == {}
    assert gates(team, "p0") == []
    team.add_nodes(1, rack="more")
    eventually(team.bound, lambda nodes: len(nodes) == 3, "the group bound")


def test_a_stateful_set_whose_pods_come_at_once_is_placed_whole(team: Team) -> None:
    """Kueue gives its pods the label of groups, by which the profile makes them a gang."""
    team.add_nodes(1)
    team.add_flavor()
    team.add_queue("main", "3")
    template = plain_pod("db")
    template["metadata"] = {"labels": {"app": "db"}}
    spec = {
        "replicas": 3,
        "podManagementPolicy": "Parallel",
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
    }
    team.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db", "labels": {QUEUE: "main"}},
            "spec": spec,
        }
    )
    explained(team, "db-0", "the group of 3 does not fit")
    assert team.bound() == {}
    team.add_nodes(1, rack="more")
    eventually(team.bound, lambda nodes: len(nodes) == 3, "the group bound")
