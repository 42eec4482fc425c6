"""Profiles are created, changed, made invalid and deleted while Mooring runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.observer import watched_binds
from bench.requests import requests_so_far
from controlplane.client import ApiError
from controlplane.nodes import create_nodes
from e2e.conftest import Cluster
from e2e.node_pool import NodePool
from e2e.replicas import PROFILES, create_pods, eventually, pod, ready
from node_selectors import expression, required_nodes, term
from policies import profile

PACK = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}],
                }
            },
        }
    ],
    "plugins": {
        "score": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 1}],
        }
    },
}
"""Fills one node before the next."""

SPREAD = {
    "plugins": {
        "score": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 1}],
        }
    }
}
"""Only NodeResourcesFit with LeastAllocated, which spreads pods evenly."""

Raw = dict[str, Any]


class AppliedProfile:
    """A SchedulingProfile in the cluster, with the name of its test's pool."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._path = f"{PROFILES}/{pool.name}"

    def apply(self, **spec: Any) -> Raw:
        """Apply this spec; return the profile when its status is about this generation."""
        made = profile(self._pool.name, **spec)
        client = self._pool.client
        try:
            current = client.get(self._path)
        except ApiError:
            applied = client.post(PROFILES, made)
        else:
            applied = client.put(self._path, {**current, "spec": made["spec"]})
        return eventually(self.read, lambda raw: _judged(raw, applied), "a verdict")

    def read(self) -> Raw:
        found: Raw = self._pool.client.get(self._path)
        return found

    def delete(self) -> None:
        self._pool.client.delete(self._path)


def _judged(raw: Raw, applied: Raw) -> bool:
    observed = raw.get("status", {}).get("observedGeneration")
    return bool(observed == applied["metadata"]["generation"])


@contextmanager
def profile_of(pool: NodePool) -> Iterator[AppliedProfile]:
    tested = AppliedProfile(pool)
    yield tested
    tested.delete()


@pytest.fixture
def tested(pool: NodePool) -> Iterator[AppliedProfile]:
    with profile_of(pool) as tested:
        yield tested


def place(pool: NodePool, count: int, prefix: str = "p", **fields: Any) -> list[int]:
    """Add `count` pods one after the other; return the sorted numbers of pods per node."""
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        pool.add_pod(name, **fields)
        pool.wait_until_bound(name)
    nodes = [node for name, node in pool.bound().items() if name in names]
    return sorted(nodes.count(node) for node in set(nodes))


def test_a_namespace_has_a_profile_of_its_own(pool: NodePool, tested: AppliedProfile) -> None:
    pool.add_nodes(2)
    match = {
        "schedulerNames": ["mooring"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": pool.name}},
        "precedence": 10,
    }
    tested.apply(match=match, **PACK)
    assert place(pool, 4) == [4]


def test_a_namespace_gets_another_profile_with_another_label(
    pool: NodePool, tested: AppliedProfile
) -> None:
    pool.add_nodes(2)
    selector = {"matchLabels": {"team": pool.name}}
    tested.apply(match={"schedulerNames": ["never"], "namespaceSelector": selector})
    pool.add_pod("web", scheduler="never")
    pool.add_pod("marker")
    pool.wait_until_bound("marker")
    assert "web" not in pool.bound()
    pool.client.patch(
        f"/api/v1/namespaces/{pool.name}", {"metadata": {"labels": {"team": pool.name}}}
    )
    pool.wait_until_bound("web")


def test_pods_may_have_a_profile_by_their_labels(pool: NodePool, tested: AppliedProfile) -> None:
    pool.add_nodes(2)
    selector = {"matchLabels": {"batch": pool.name}}
    tested.apply(
        match={"schedulerNames": ["mooring"], "podSelector": selector, "precedence": 10}, **PACK
    )
    assert place(pool, 4, "packed", labels={"batch": pool.name}) == [4]
    assert place(pool, 6, "spread") in ([1, 5], [2, 4], [3, 3])


def test_a_changed_profile_takes_effect_without_a_restart(
    pool: NodePool, tested: AppliedProfile
) -> None:
    pool.add_nodes(2, cpu="8")
    tested.apply(**SPREAD)
    assert place(pool, 4, "spread", scheduler=pool.name) == [2, 2]
    changed = tested.apply(**PACK)
    assert ready(changed)[:2] == ("True", "InForce")
    assert changed["status"]["inForceGeneration"] == 2
    assert place(pool, 4, "packed", scheduler=pool.name) == [4]


def test_pods_without_a_profile_are_scheduled_once_a_profile_matches_them(
    pool: NodePool, tested: AppliedProfile
) -> None:
    pool.add_nodes()
    pool.add_pod("early", scheduler=pool.name)
    pool.add_pod("marker")
    pool.wait_until_bound("marker")
    assert "early" not in pool.bound()
    tested.apply()
    pool.wait_until_bound("early")


def test_a_deleted_profile_schedules_no_pods(pool: NodePool) -> None:
    pool.add_nodes()
    with profile_of(pool) as tested:
        tested.apply()
        assert place(pool, 1, scheduler=pool.name) == [1]
    attempts = range(10)  # the watch of profiles may be later than that of pods
    assert any(_is_left_alone(pool, f"late{number}") for number in attempts)


def _is_left_alone(pool: NodePool, name: str) -> bool:
    """Create a pod for the pool's profile; return whether only later pods are bound."""
    pool.add_pod(name, scheduler=pool.name)
    place(pool, 3, prefix=f"after-{name}-")
    return name not in pool.bound()


def test_an_invalid_profile_reports_every_mistake_and_the_last_valid_one_stays_in_force(
    pool: NodePool, tested: AppliedProfile
) -> None:
    pool.add_nodes(2)
    tested.apply(**PACK)
    broken = tested.apply(
        plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}},
        pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}}],
    )
    status, reason, message = ready(broken)
    assert (status, reason) == ("False", "Invalid")
    assert "spec.plugins.score.enabled[0].name" in message
    assert "NoSuchPlugin" in message
    assert "spec.pluginConfig[0].args.scoringStrategy.type" in message
    assert broken["status"]["inForceGeneration"] == 1
    assert broken["status"]["inForceSpec"] == PACK
    assert broken["status"]["observedGeneration"] == 2
    assert place(pool, 4, scheduler=pool.name) == [4]


def test_rules_decide_and_a_mistake_in_a_rule_is_located_in_the_status(
    pool: NodePool, tested: AppliedProfile
) -> None:
    [ssd], _ = pool.add_nodes(prefix="ssd"), pool.add_nodes(prefix="hdd")
    rule = {
        "name": "ssd",
        "filter": 'node.name.contains("-ssd") && pod.requests.cpu > 0',
        "message": "node(s) had no ssd",
    }
    tested.apply(rules=[rule])
    assert place(pool, 2, scheduler=pool.name) == [2]
    assert set(pool.bound().values()) == {ssd}
    pool.add_pod("large", scheduler=pool.name, cpu="4")
    message = pool.wait_until_unschedulable("large")["message"]
    assert "1 Insufficient cpu" in message
    assert "1 node(s) had no ssd" in message
    broken = tested.apply(rules=[{**rule, "filter": 'node.lables.disk == "ssd"'}])
    status, reason, message = ready(broken)
    assert (status, reason) == ("False", "Invalid")
    mistake = 'unknown name "node.lables.disk", did you mean node.labels?'
    mistake = f"spec.rules[0].filter: line 1, column 1: {mistake}"
    assert message == f"generation 1 stays in force: {mistake}"
    assert broken["status"]["inForceGeneration"] == 1


def test_a_profile_that_was_never_valid_schedules_no_pods(tested: AppliedProfile) -> None:
    broken = tested.apply(plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}})
    assert ready(broken)[:2] == ("False", "Invalid")
    assert broken["status"]["inForceGeneration"] == 0
    assert "effective" not in broken["status"]


CHANGES = 100
PODS_PER_CHANGE = 5
PODS = CHANGES * PODS_PER_CHANGE
BEHIND = 50
"""So many pods wait at most when the next change comes: each change meets pods on their way."""
POLICIES = 5
"""Generation g of the profile admits the nodes of policy g modulo this alone."""


def only_nodes_of(policy: str) -> Raw:
    """Return a profile whose pods fit only on nodes with this value of the label `policy`."""
    affinity = required_nodes(term(expression("policy", "In", policy)))["nodeAffinity"]
    return {"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": affinity}}]}


def create_nodes_of_policies(pool: NodePool) -> dict[str, str]:
    """Create one large node for each policy; return the policies by node name."""
    capacity = {"cpu": "1k", "memory": "1Ti", "pods": str(PODS)}
    policies: dict[str, str] = {}
    for policy in map(str, range(POLICIES)):
        prefix, labels = f"{pool.name}-{policy}", {"pool": pool.name, "policy": policy}
        [node] = create_nodes(pool.access, 1, prefix=prefix, capacity=capacity, labels=labels)
        policies[node] = policy
    return policies


def generations_in_force(cluster: Cluster, profile: str) -> set[int]:
    """Return the generations of the profile that were in force, according to the log."""
    return {
        record["generation"]
        for record in cluster.scheduler.log()
        if record["message"] == f"profile {profile} is in force"
    }


def latest_decisions(cluster: Cluster, namespace: str) -> dict[str, Raw]:
    """Return the latest decision records of the namespace's pods, at most a hundred."""
    _, text = cluster.scheduler.get(f"/debug/decisions?namespace={namespace}")
    return {record["pod"]: record for record in json.loads(text)["decisions"]}


def test_a_hundred_profile_changes_during_a_drain_lose_and_double_nothing(
    pool: NodePool, cluster: Cluster
) -> None:
    """Pods come all the time; the profile is created, changed, deleted and created again.

    Each generation admits other nodes than the one before. So a pod's node shows which generations
    may have decided about the pod.
    """
    path, names = f"{PROFILES}/{pool.name}", [f"p{number}" for number in range(PODS)]
    policies = create_nodes_of_policies(pool)
    bindings = requests_so_far(cluster.access)
    records: dict[str, Raw] = {}
    with watched_binds(cluster.access, pool.name, names) as binds:
        generation = 0
        for begin in range(0, PODS, PODS_PER_CHANGE):
            coming = names[begin : begin + PODS_PER_CHANGE]
            waiting = (pod(name, cpu="10m", scheduler=pool.name) for name in coming)
            create_pods(pool.client, pool.name, *waiting)
            if begin == PODS // 2:
                pool.client.delete(path)
                generation = 0
            generation += 1
            made = profile(pool.name, **only_nodes_of(str(generation % POLICIES)))
            change = pool.client.patch if generation > 1 else pool.client.post
            change(path if generation > 1 else PROFILES, made)
            enough = begin + PODS_PER_CHANGE - BEHIND
            eventually(lambda: len(binds.times), enough.__le__, f"{enough} bound pods")
            records |= latest_decisions(cluster, pool.name)
        assert binds.wait(60.0), "pods are lost"
    records |= latest_decisions(cluster, pool.name)
    placed = pool.bound()
    assert placed.keys() == set(names)
    added = requests_so_far(cluster.access) - bindings
    assert {key: count for key, count in added.items() if key.startswith("POST pods/binding")} == {
        "POST pods/binding 201": PODS
    }
    in_force = generations_in_force(cluster, pool.name)
    decided = [record for record in records.values() if record["node"]]
    assert len(decided) > PODS // 2, "too few decisions were seen to say anything"
    for record in decided:
        made = record["profileGeneration"]
        assert made in in_force
        assert placed[record["pod"].split("/")[1]] == record["node"]
        assert policies[record["node"]] == str(made % POLICIES)
    # On a fast machine kopf hands over one generation for several that are in its batch window.
    assert len({record["profileGeneration"] for record in decided}) > CHANGES // 10
    pool.client.delete(path)
