"""The books of devices against a slow model: an API server, a late watch, and pods that hold."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from device_builders import allocated, device_claim
from mooring.claims.model.resource_claims import Allocation, ResourceClaim, parse_resource_claim
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of

NAMES = st.sampled_from(["a", "b"])
PODS = st.sampled_from(["p", "q"])
DEVICES = st.lists(st.sampled_from(["d0", "d1", "d2"]), min_size=1, max_size=2)


@dataclass(frozen=True)
class Version:
    """A claim as the API server has it at some time."""

    uid: str
    number: int
    devices: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()

    def object(self, name: str) -> ResourceClaim:
        raw: dict[str, Any] = device_claim(
            name,
            version=self.number,
            allocation=allocated(*self.devices) if self.devices else None,
            reserved_for=self.consumers,
        )
        raw["metadata"]["uid"] = self.uid
        return parse_resource_claim(raw)


class Claims(RuleBasedStateMachine):
    """Claims are made, written and deleted; the watch and the answers tell of some versions."""

    def __init__(self) -> None:
        super().__init__()
        placed = (pod(name, node="n1") for name in ("p", "q"))
        self.state: ClusterState = cluster(node("n1"), *placed)
        self.server: dict[str, Version] = {}
        self.seen: dict[str, Version] = {}
        """What the scheduler has been told last, by name."""
        self.in_flight: dict[str, tuple[tuple[str, ...], list[str]]] = {}
        """Devices and pods by the uid of the claim."""
        self.number = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    @rule(name=NAMES, shown=st.booleans())
    def create(self, name: str, shown: bool) -> None:  # noqa: FBT001 - drawn
        number = self.next_number()
        self.server[name] = Version(f"{name}-{number}", number)
        if shown:
            self.watch(name)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.server.pop(name, None)

    @rule(
        name=NAMES,
        devices=DEVICES | st.just([]),
        consumers=st.lists(PODS, unique=True),
        answered=st.booleans(),
    )
    def write(
        self,
        name: str,
        devices: list[str],
        consumers: list[str],
        answered: bool,  # noqa: FBT001 - drawn
    ) -> None:
        if name not in self.server:
            self.create(name, shown=True)
        self.server[name] = replace(
            self.server[name],
            number=self.next_number(),
            devices=tuple(devices),
            consumers=tuple(consumers) if devices else (),
        )
        if answered:
            self.answer(name)

    @rule(name=NAMES)
    def watch(self, name: str) -> None:
        version = self.server.get(name)
        if version is None:
            self.seen.pop(name, None)
            self.state.delete(Kind.RESOURCE_CLAIM, f"default/{name}")
        else:
            self.seen[name] = version
            self.state.put(Kind.RESOURCE_CLAIM, f"default/{name}", version.object(name))

    @rule(name=NAMES)
    def answer(self, name: str) -> None:
        version, seen = self.server.get(name), self.seen.get(name)
        if version is None:
            return
        newer = seen is not None and seen.uid == version.uid and seen.number < version.number
        assert self.state.assume_claim(version.object(name)) == newer
        if newer:
            self.seen[name] = version

    @rule(name=NAMES, holder=PODS, devices=DEVICES)
    def hold(self, name: str, holder: str, devices: list[str]) -> None:
        if name not in self.seen:
            return
        uid = self.seen[name].uid
        _, holders = self.in_flight.setdefault(uid, (tuple(devices), []))
        if holder not in holders:
            holders.append(holder)
        self.state.hold_claims(uid_of(holder), {uid: allocation(*devices)})

    @rule(holder=PODS)
    def release(self, holder: str) -> None:
        for uid, (_, holders) in tuple(self.in_flight.items()):
            if holder in holders:
                holders.remove(holder)
            if not holders:
                del self.in_flight[uid]
        self.state.release_claims(uid_of(holder))

    @rule(removed=st.lists(PODS, min_size=1, unique=True), comes_back=st.booleans())
    def try_without(self, removed: list[str], comes_back: bool) -> None:  # noqa: FBT001 - drawn
        before, row = self.in_use(), self.state.nodes.row_of["n1"]
        with self.state.trial(frees_claims=True) as trial:
            first = self.state.pods.get(uid_of(removed[0]))
            for name in removed:
                trial.remove(uid_of(name))
            assert self.in_use() == self.expected(frozenset(removed))
            if comes_back and first is not None:
                trial.add(first.pod, row)
                assert self.in_use() == self.expected(frozenset(removed[1:]))
        assert self.in_use() == before

    def expected(self, without: frozenset[str] = frozenset()) -> Counter[str]:
        held = {
            uid: set(devices)
            for uid, (devices, pods) in self.in_flight.items()
            if set(pods) - without
        }
        for version in self.seen.values():
            if not version.consumers or set(version.consumers) - without:
                held.setdefault(version.uid, set()).update(version.devices)
        return Counter(device for devices in held.values() for device in devices)

    def in_use(self) -> Counter[str]:
        books = ClusterView(self.state).dynamic_resources.claims.allocated.dedicated
        return Counter({device.device: count for device, count in books.items()})

    @invariant()
    def devices_are_in_use_as_often_as_claims_hold_them(self) -> None:
        assert self.in_use() == self.expected()

    @invariant()
    def claims_are_seen_as_they_were_told_last(self) -> None:
        view = ClusterView(self.state).dynamic_resources
        for name in ("a", "b"):
            version = self.seen.get(name)
            claim = view.claims.get(f"default/{name}")
            assert claim == (version.object(name) if version is not None else None)
            assert version is None or view.claims.of_uid(version.uid) == claim


def allocation(*devices: str) -> Allocation:
    parsed = parse_resource_claim(device_claim(allocation=allocated(*devices))).allocation
    assert parsed is not None
    return parsed


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
