"""Devices in use after any trials, attempts and watches are those that a recount finds."""

from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deciding import Deciding
from device_builders import (
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from group_searching import placed
from mooring.claims.model.resource_claims import (
    Allocation,
    ResourceClaim,
    allocation_fields,
    parse_resource_claim,
)
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.what_if import WhatIf
from mooring.testing.builders import node, pod, pod_group, uid_of

Raw = dict[str, Any]

SHARED = {"memory": {"value": "2Gi"}}
OBJECTS = (
    node("n1", cpu="4"),
    node("n2", cpu="4"),
    device_class("gpu"),
    device_class("parts", "device.allowMultipleAllocations"),
    resource_slice("s1", ["a0", "a1"], node="n1"),
    resource_slice(
        "s2", ["b0", device("b1", allowMultipleAllocations=True, capacity=SHARED)], node="n2"
    ),
    pod_group("g", 2),
)
PART = request(device_class="parts", capacity={"requests": {"memory": "1Gi"}})
CLAIMS = {
    "one": device_claim("one"),
    "two": device_claim("two", request(count=2)),
    "part": device_claim("part", PART),
    "other-part": device_claim("other-part", PART),
    "shared": device_claim("shared"),
    "watched": device_claim("watched", request(adminAccess=True)),
}
USES = {
    "a": ("one",),
    "b": ("two",),
    "c": ("part", "shared"),
    "d": ("other-part",),
    "e": ("shared",),
    "f": ("watched", "one"),
}
PODS = st.sampled_from(sorted(USES))
NAMES = st.sampled_from(sorted(CLAIMS))


def raw_pod(name: str, *, grouped: bool = False, **fields: Any) -> Raw:
    entries = [{"name": each, "resourceClaimName": each} for each in USES[name]]
    group = "g" if grouped else None
    return pod(name, cpu="1", spec={"resourceClaims": entries}, group=group, **fields)


class DeviceTrials(RuleBasedStateMachine):
    """Pods are decided about, assumed, forgotten and written; and what if they were not there?"""

    def __init__(self) -> None:
        super().__init__()
        self.deciding = Deciding(*OBJECTS, *CLAIMS.values())
        self.state, self.cluster = self.deciding.state, self.deciding.cluster
        self.assumed: dict[str, tuple[Pod, ExitStack]] = {}
        self.held: dict[str, dict[str, Allocation]] = {}
        """What was found for each assumed pod and is not written, by the uid of the claim."""
        self.version = 1

    @rule(name=PODS, priority=st.sampled_from([0, 100]))
    def decide(self, name: str, priority: int) -> None:
        """Decide, with trials of preemption if it fits nowhere."""
        if name not in self.assumed:
            self.deciding.outcome(raw_pod(name, priority=priority))

    @rule(name=PODS, grouped=st.booleans(), written=st.booleans())
    def assume(self, name: str, grouped: bool, written: bool) -> None:  # noqa: FBT001 - drawn
        if name in self.assumed:
            return
        raw = raw_pod(name, grouped=grouped)
        outcome = self.deciding.outcome(raw)
        if isinstance(outcome, ScheduleResult):
            parsed = parse_pod(raw)
            undo = assume_and_reserve(parsed, outcome.row, self.deciding.pipeline, self.state)
            self.assumed[name] = parsed, undo
            self.held[name] = dict(self.cluster.dynamic_resources.claims.held(parsed.uid))
            if written:
                self.write(name, shown=grouped)

    @rule(name=PODS)
    def give_up(self, name: str) -> None:
        if name in self.assumed:
            self.assumed.pop(name)[1].close()
            del self.held[name]

    @rule(name=PODS, shown=st.booleans())
    def write(self, name: str, shown: bool) -> None:  # noqa: FBT001 - drawn
        """Write the claims that are in flight for the pod; perhaps the watch shows them first."""
        known = self.cluster.dynamic_resources
        for uid, allocation in [*self.held.get(name, {}).items()]:
            claim = known.claims.of_uid(uid)
            if claim is None:
                continue
            if claim.allocation is None:
                fields = allocation_fields(allocation)
                written = self.changed(claim.name, allocation=fields, reserved_for=[name])
                if shown:
                    self.state.put(Kind.RESOURCE_CLAIM, claim.key, written)
                else:
                    self.state.assume_claim(written)
            self.state.release_claims(uid_of(name), [uid])
            del self.held[name][uid]

    @rule(name=NAMES, deleted=st.booleans())
    def free(self, name: str, deleted: bool) -> None:  # noqa: FBT001 - drawn
        key = f"default/{name}"
        if deleted:
            self.state.delete(Kind.RESOURCE_CLAIM, key)
        else:
            self.state.put(Kind.RESOURCE_CLAIM, key, self.changed(name))

    @rule(kept=st.sets(PODS, max_size=2), name=PODS)
    def ask_what_if(self, kept: set[str], name: str) -> None:
        """Decide about a pod as if all others were not there, but these."""
        what_if = WhatIf(self.deciding.shared, now=lambda: 0.0)
        for each in self.assumed.keys() - kept | {name}:
            what_if.remove(uid_of(each))
        with what_if.trial():
            what_if.decide(parse_pod(raw_pod(name)), self.deciding.pipeline)

    @rule(names=st.sets(PODS, min_size=1, max_size=3))
    def search_for_a_group(self, names: set[str]) -> None:
        free = sorted(names - self.assumed.keys())
        if free:
            placed(self.deciding, [raw_pod(name, grouped=True) for name in free])

    def changed(self, name: str, **fields: Any) -> ResourceClaim:
        self.version += 1
        raw = CLAIMS[name]
        requests = raw["spec"]["devices"]["requests"]
        return parse_resource_claim(device_claim(name, *requests, version=self.version, **fields))

    @invariant()
    def devices_in_use_are_those_of_claims_and_of_assumed_pods(self) -> None:
        known, recount = self.cluster.dynamic_resources, AllocatedDevices()
        held = {uid: each for claims in self.held.values() for uid, each in claims.items()}
        for name in USES:
            assert known.claims.held(uid_of(name)) == self.held.get(name, {})
        for uid in held.keys() | {raw["metadata"]["uid"] for raw in CLAIMS.values()}:
            claim = known.claims.of_uid(uid)
            results = claim.allocation.results if claim and claim.allocation else ()
            recount.put(uid, (*results, *(held[uid].results if uid in held else ())))
        assert known.claims.allocated.dedicated == recount.dedicated
        assert known.claims.allocated.shares == recount.shares
        assert known.claims.allocated.consumed == recount.consumed

    @invariant()
    def no_device_has_two_owners(self) -> None:
        assert (
            max(self.cluster.dynamic_resources.claims.allocated.dedicated.values(), default=0) <= 1
        )


TestDeviceTrials = DeviceTrials.TestCase
TestDeviceTrials.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
