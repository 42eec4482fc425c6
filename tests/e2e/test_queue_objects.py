"""Queues on a real API server: rejected objects, the statuses, and the output for users."""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from controlplane import ControlPlane, ControlPlaneError
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.conftest import Cluster
from e2e.node_pool import NodePool
from e2e.replicas import Raw, eventually, messages_of
from mooring.cli.explain import explain
from mooring.cli.queues import queues as command
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.kube.api_resources import QUEUE
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.testing.builders import coscheduling_pod_group, queue_object


@pytest.fixture
def queues(client: Client) -> Iterator[Client]:
    """Yield the client; the server has no Queues before and after the test."""
    yield client
    for raw in client.get(QUEUE.path())["items"]:
        client.delete(QUEUE.path(None, raw["metadata"]["name"]))


def create(client: Client, *raws: Raw) -> None:
    for raw in raws:
        del raw["metadata"]["uid"], raw["metadata"]["creationTimestamp"]
        client.post(QUEUE.path(), raw)


def status(client: Client, name: str) -> dict[str, Any]:
    return dict(client.get(QUEUE.path(None, name)).get("status") or {})


def ready(client: Client, name: str) -> tuple[str, str]:
    """Return reason and message of the condition Ready; "" and "" without a condition."""
    (condition,) = status(client, name).get("conditions") or [{"reason": "", "message": ""}]
    return condition["reason"], condition["message"]


def applied(plane: ControlPlane, spec: dict[str, Any]) -> str:
    """Return the output of a dry run of `kubectl apply` for a Queue with this spec."""
    raw = {"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": {"name": "tried"}}
    manifest = yaml.safe_dump(raw | {"spec": spec})
    return plane.access.kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)


QUOTA = {"name": "cpu", "nominalQuota": 1}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"parent": "", "resources": [QUOTA], "namespaceSelector": None},
        {
            "parent": "all",
            "resources": [
                {**QUOTA, "nominalQuota": "1500m", "borrowingLimit": 0, "lendingLimit": "1e3"},
                {"name": "example.com/gpu", "nominalQuota": 8},
            ],
            "fairSharing": {"weight": "0.5"},
            "preemption": {"reclaimWithinCohort": "Any", "withinQueue": "Never"},
            "namespaceSelector": {"matchLabels": {"team": "a"}},
        },
    ],
)
def test_a_good_queue_is_accepted(plane: ControlPlane, spec: dict[str, Any]) -> None:
    assert "created" in applied(plane, spec)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"parents": "a"}, 'unknown field "spec.parents"'),
        ({"parent": "A"}, "should match"),
        ({"resources": [{"name": "cpu"}]}, "nominalQuota: Required value"),
        ({"resources": [QUOTA, QUOTA]}, "Duplicate value"),
        ({"resources": [{**QUOTA, "nominalQuota": "-1"}]}, "should match"),
        ({"resources": [{**QUOTA, "nominalQuota": -1}]}, "greater than or equal to 0"),
        ({"resources": [{**QUOTA, "nominalQuota": "many"}]}, "should match"),
        ({"resources": [{**QUOTA, "lendingLimit": 1}]}, "need a parent to share with"),
        ({"resources": [{**QUOTA, "borrowingLimit": 1}], "parent": ""}, "need a parent"),
        ({"fairSharing": {"weight": "heavy"}}, "should match"),
        ({"preemption": {"withinQueue": "Always"}}, "Unsupported value"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "In and NotIn need values",
        ),
    ],
)
def test_a_mistake_is_refused_by_the_api_server(
    plane: ControlPlane, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ControlPlaneError) as rejection:
        applied(plane, spec)
    assert complaint in str(rejection.value)


def test_a_status_follows_the_pods_and_kubectl_shows_it(
    cluster: Cluster, queues: Client, pool: NodePool
) -> None:
    create(queues, queue_object("all", selector=None))
    for name in ("team-a", "team-b"):
        create(queues, queue_object(name, {"cpu": 2}, parent="all"))
    pool.add_nodes(cpu="4")
    for number in range(3):
        pool.add_pod(f"b{number}", cpu="1", labels={QUEUE_LABEL: "team-b"})

    def of(name: str) -> list[dict[str, str]]:
        return list(status(queues, name).get("resources", []))

    eventually(
        partial(of, "team-b"),
        lambda found: (
            found == [{"name": "cpu", "nominal": "2", "used": "3", "borrowed": "1", "lent": "0"}]
        ),
        "the status of the queue that borrows",
    )
    eventually(lambda: of("team-a")[0]["lent"], lambda lent: lent == "1", "what the other lends")
    assert status(queues, "all")["pods"] == 3
    header, *rows = cluster.access.kubectl("get", "queues").splitlines()
    columns = ["NAME", "PARENT", "READY", "REASON", "PODS", "WAITING", "AGE"]
    assert re.split("  +", header.strip()) == columns
    assert rows[2].split()[:6] == ["team-b", "all", "True", "InForce", "3", "0"]


GPU = "example.com/gpu"


@pytest.fixture
def two_teams(cluster: Cluster, queues: Client, pool: NodePool) -> NodePool:
    """Return a pool of two nodes with eight GPUs each; b uses all, of which eight are a's quota."""
    create(queues, queue_object("all", selector=None))
    for name in ("a", "b"):
        create(queues, queue_object(name, {GPU: 8}, parent="all"))
    capacity = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    labels = {"pool": pool.name}
    create_nodes(cluster.access, 2, prefix=pool.name, capacity=capacity, labels=labels)
    for number in range(16):
        pool.add_pod(f"b{number:02}", **using("b"))
    eventually(pool.bound, lambda found: len(found) == 16, "all GPUs used")
    return pool


def using(queue: str, group: str | None = None) -> dict[str, Any]:
    labels = {QUEUE_LABEL: queue} | ({COSCHEDULING_LABEL: group} if group else {})
    no_kubelet = {"terminationGracePeriodSeconds": 0}
    return {"labels": labels, "requests": {GPU: 1}, "limits": {GPU: 1}, **no_kubelet}


def add_gang(pool: NodePool, size: int) -> None:
    group = coscheduling_pod_group("gang", size, namespace=pool.name)
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{pool.name}/podgroups"
    pool.client.post(path, group)
    for number in range(size):
        pool.add_pod(f"a{number}", **using("a", "gang"))


def test_a_gang_takes_back_one_node_and_the_other_pods_stay(two_teams: NodePool) -> None:
    before = two_teams.bound()
    add_gang(two_teams, 8)

    def gang(found: dict[str, str]) -> list[str]:
        return [node for name, node in found.items() if name.startswith("a")]

    def seen() -> tuple[dict[str, str], set[str]]:
        return two_teams.bound(), messages_of(two_teams.client, two_teams.name)

    found, _ = eventually(seen, lambda seen: len(gang(seen[0])) == 8, "the gang runs")
    (node,) = {*gang(found)}
    left = {name for name, on in before.items() if on == node}
    assert len(left) == 8
    assert before.keys() - found.keys() == left
    notes = two_teams.notes("Preempted")
    assert len(notes) == 8
    assert all("queue a took back what queue b had borrowed" in note for note in notes)


def explained(cluster: Cluster, pool: NodePool, what: str) -> str:
    """Return the output of `mooring explain` with one space between words."""
    words = [what, f"--namespace={pool.name}", f"--server={cluster.scheduler.url}"]
    words += ["--insecure-skip-tls-verify", f"--kubeconfig={cluster.access.admin_kubeconfig}"]
    result = CliRunner().invoke(explain, words)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_explain_says_from_whom_a_gang_takes_its_share_back(
    cluster: Cluster, two_teams: NodePool
) -> None:
    for name in two_teams.bound():  # so that a victim is still there when somebody asks
        two_teams.patch_pod(name, {"metadata": {"finalizers": ["example.com/stays"]}})
    add_gang(two_teams, 8)
    took_back = partial(two_teams.events, "Preempted")
    events = eventually(took_back, lambda found: len(found) == 8, "who is evicted")
    victims = [event["regarding"]["name"] for event in events]
    for what in ("a0", "podgroup/gang"):
        said = explained(cluster, two_teams, what)
        assert "b uses 16 of 8. preemption: evicts 8 pods of queue b." in said
        assert all(f"{two_teams.name}/{name}" in said for name in victims)
        assert "It would fit" not in said
    said = explained(cluster, two_teams, victims[0])
    assert f"by {two_teams.name}/a" in said
    assert "queue a took back what queue b had borrowed" in said
    for name in two_teams.bound():
        two_teams.patch_pod(name, {"metadata": {"finalizers": None}})


def test_a_gang_beyond_its_share_evicts_nobody_and_says_why(two_teams: NodePool) -> None:
    add_gang(two_teams, 9)
    said = partial(messages_of, two_teams.client, two_teams.name)
    why = f"queue a: 0 of 8 {GPU} used, 9 asked, nothing left to borrow: b uses 16 of 8"
    eventually(said, lambda found: any(why in text for text in found), "the reason")
    assert len(two_teams.bound()) == 16


def test_what_is_wrong_with_a_queue_is_said_and_its_former_version_stays(
    cluster: Cluster, queues: Client
) -> None:
    create(queues, queue_object("a", {"cpu": 1}), queue_object("b", {"cpu": 1}, parent="a"))
    eventually(partial(ready, queues, "b"), lambda said: said[0] == "InForce", "b in force")
    queues.patch(QUEUE.path(None, "a"), {"spec": {"parent": "b"}})
    why = "generation 1 stays in force: spec.parent: the parents form a circle: a -> b -> a"
    eventually(partial(ready, queues, "a"), lambda said: said == ("Invalid", why), "the circle")
    assert status(queues, "a")["resources"][0]["nominal"] == "2"
    queues.patch(QUEUE.path(None, "a"), {"spec": {"parent": ""}})
    eventually(partial(ready, queues, "a"), lambda said: said[0] == "InForce", "a in force")
    assert cluster.scheduler.get("/metrics")[1].count('mooring_queue_nominal{queue="a"') == 1


def run_command(cluster: Cluster, *words: str) -> str:
    words = (*words, f"--kubeconfig={cluster.access.admin_kubeconfig}")
    result = CliRunner().invoke(command, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_shows_the_tree(cluster: Cluster, queues: Client) -> None:
    create(queues, queue_object("all", selector=None), queue_object("a", {"cpu": 2}, parent="all"))
    eventually(partial(ready, queues, "a"), lambda said: said[0] == "InForce", "a in force")
    eventually(partial(ready, queues, "all"), lambda said: said[0] == "InForce", "all in force")
    shown = run_command(cluster)
    assert shown.splitlines() == [
        "cpu",
        "QUEUE   NOMINAL   USED   BORROWED   LENT   WAITING   SHARE",
        "all           2      0          0      0         0       0",
        "  a           2      0          0      0         0       0",
    ]
    names = [each["name"] for each in json.loads(run_command(cluster, "-o", "json"))["queues"]]
    assert names == ["all", "a"]
