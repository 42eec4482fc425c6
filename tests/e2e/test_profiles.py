"""Policy as its users live with it: applied, changed, broken and deleted while Mooring runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controlplane.client import ApiError
from e2e.replicas import PROFILES, eventually, profile, ready
from e2e.rooms import PotentialVictims

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
"""Upstream's LeastAllocated alone: takes turns."""

Raw = dict[str, Any]


class Policy:
    """One SchedulingProfile in the cluster, named after the room of its test."""

    def __init__(self, room: PotentialVictims) -> None:
        self._room = room
        self._path = f"{PROFILES}/{room.name}"

    def apply(self, **spec: Any) -> Raw:
        """The profile with this spec, once Mooring has judged it."""
        made = profile(self._room.name, **spec)
        client = self._room.client
        try:
            current = client.get(self._path)
        except ApiError:
            applied = client.post(PROFILES, made)
        else:
            applied = client.put(self._path, {**current, "spec": made["spec"]})
        return eventually(self.read, lambda raw: _judged(raw, applied), "a verdict")

    def read(self) -> Raw:
        found: Raw = self._room.client.get(self._path)
        return found

    def delete(self) -> None:
        self._room.client.delete(self._path)


def _judged(raw: Raw, applied: Raw) -> bool:
    observed = raw.get("status", {}).get("observedGeneration")
    return bool(observed == applied["metadata"]["generation"])


@contextmanager
def policy_of(room: PotentialVictims) -> Iterator[Policy]:
    policy = Policy(room)
    yield policy
    policy.delete()


@pytest.fixture
def policy(room: PotentialVictims) -> Iterator[Policy]:
    with policy_of(room) as policy:
        yield policy


def place(room: PotentialVictims, count: int, prefix: str = "p", **fields: Any) -> list[int]:
    """So many new pods one after the other; how many of them the room's nodes got, sorted."""
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        room.add_pod(name, **fields)
        room.wait_until_bound(name)
    nodes = [node for name, node in room.bound().items() if name in names]
    return sorted(nodes.count(node) for node in set(nodes))


def test_a_namespace_has_a_profile_of_its_own(room: PotentialVictims, policy: Policy) -> None:
    room.add_nodes(2)
    match = {
        "schedulerNames": ["mooring"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": room.name}},
        "precedence": 10,
    }
    policy.apply(match=match, **PACK)
    assert place(room, 4) == [4]


def test_a_namespace_gets_another_profile_with_another_label(
    room: PotentialVictims, policy: Policy
) -> None:
    room.add_nodes(2)
    selector = {"matchLabels": {"team": room.name}}
    policy.apply(match={"schedulerNames": ["never"], "namespaceSelector": selector})
    room.add_pod("web", scheduler="never")
    room.add_pod("marker")
    room.wait_until_bound("marker")
    assert "web" not in room.bound()
    room.client.patch(
        f"/api/v1/namespaces/{room.name}", {"metadata": {"labels": {"team": room.name}}}
    )
    room.wait_until_bound("web")


def test_pods_may_have_a_profile_by_their_labels(room: PotentialVictims, policy: Policy) -> None:
    room.add_nodes(2)
    selector = {"matchLabels": {"batch": room.name}}
    policy.apply(
        match={"schedulerNames": ["mooring"], "podSelector": selector, "precedence": 10}, **PACK
    )
    assert place(room, 4, "packed", labels={"batch": room.name}) == [4]
    assert place(room, 6, "spread") in ([1, 5], [2, 4], [3, 3])


def test_a_changed_profile_takes_effect_without_a_restart(
    room: PotentialVictims, policy: Policy
) -> None:
    room.add_nodes(2, cpu="8")
    policy.apply(**SPREAD)
    assert place(room, 4, "spread", scheduler=room.name) == [2, 2]
    changed = policy.apply(**PACK)
    assert ready(changed)[:2] == ("True", "InForce")
    assert changed["status"]["inForceGeneration"] == 2
    assert place(room, 4, "packed", scheduler=room.name) == [4]


def test_pods_that_nobody_takes_are_taken_by_a_profile_that_comes_later(
    room: PotentialVictims, policy: Policy
) -> None:
    room.add_nodes()
    room.add_pod("early", scheduler=room.name)
    room.add_pod("marker")
    room.wait_until_bound("marker")
    assert "early" not in room.bound()
    policy.apply()
    room.wait_until_bound("early")


def test_a_deleted_profile_decides_no_more(room: PotentialVictims) -> None:
    room.add_nodes()
    with policy_of(room) as policy:
        policy.apply()
        assert place(room, 1, scheduler=room.name) == [1]
    room.add_pod("late", scheduler=room.name)
    for number in range(3):
        room.add_pod(f"marker{number}")
        room.wait_until_bound(f"marker{number}")
    assert "late" not in room.bound()


def test_a_broken_profile_is_refused_with_every_mistake_and_the_last_good_one_stays(
    room: PotentialVictims, policy: Policy
) -> None:
    room.add_nodes(2)
    policy.apply(**PACK)
    broken = policy.apply(
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
    assert place(room, 4, scheduler=room.name) == [4]


def test_a_profile_that_was_never_good_decides_nothing(policy: Policy) -> None:
    broken = policy.apply(plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}})
    assert ready(broken)[:2] == ("False", "Invalid")
    assert broken["status"]["inForceGeneration"] == 0
    assert "effective" not in broken["status"]
