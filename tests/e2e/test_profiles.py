"""Profiles are applied, changed, broken and deleted while Mooring runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from controlplane.client import ApiError
from e2e.node_pool import NodePool
from e2e.replicas import PROFILES, eventually, profile, ready

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
    """One SchedulingProfile in the cluster, named after the pool of its test."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._path = f"{PROFILES}/{pool.name}"

    def apply(self, **spec: Any) -> Raw:
        """The profile with this spec, once its status is of this generation."""
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
    """Add `count` pods one after the other; return how many each node of the pool got, sorted."""
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
    pool.add_pod("late", scheduler=pool.name)
    for number in range(3):
        pool.add_pod(f"marker{number}")
        pool.wait_until_bound(f"marker{number}")
    assert "late" not in pool.bound()


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


def test_a_profile_that_was_never_valid_schedules_no_pods(tested: AppliedProfile) -> None:
    broken = tested.apply(plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}})
    assert ready(broken)[:2] == ("False", "Invalid")
    assert broken["status"]["inForceGeneration"] == 0
    assert "effective" not in broken["status"]


def test_a_profile_nested_too_deeply_to_be_parsed_harms_no_other(
    pool: NodePool, tested: AppliedProfile
) -> None:
    """Python's JSON parser fails at 1,000 levels; the API server stores up to 10,000."""
    pool.add_nodes()
    deep = f"{pool.name}-deep"
    config = {"name": "NodeResourcesFit", "args": {"deep": "HERE"}}
    made = json.dumps(profile(deep, pluginConfig=[config]))
    body = made.replace('"HERE"', '{"a":' * 3000 + "1" + "}" * 3000).encode()
    with suppress(RecursionError):  # of this test, which cannot parse the answer either
        pool.client.post(PROFILES, body)
    tested.apply()
    assert place(pool, 1, scheduler=pool.name) == [1]
    with suppress(RecursionError):
        pool.client.delete(f"{PROFILES}/{deep}")
    assert ready(tested.apply(**PACK))[:2] == ("True", "InForce")
