"""Claims for devices, as decisions see them: in flight, assumed, or mirrored.

An allocation is in flight for a pod from Reserve until PreBind has written it. Then the API
server's answer is assumed until the watch shows it. The devices of both are in use. See
dra_manager.go of kube-scheduler's plugin.

Claims are identified by uid, because a new claim may get the name of a deleted claim.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from mooring.claims.model.resource_claims import (
    Allocation,
    ClaimSpec,
    DeviceId,
    DeviceResult,
    ResourceClaim,
)
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.model.pod import Pod, Uid, claim_keys
from mooring.state.objects import Objects


@dataclass(slots=True)
class _InFlight:
    """An unwritten allocation and its pods; `gone` is the claim, if the claim was deleted."""

    allocation: Allocation
    holders: dict[Uid, None] = field(default_factory=dict)
    gone: ResourceClaim | None = None


class ResourceClaims:
    """All claims, the allocations in flight, and the devices of both.

    In a trial, `get` and `of_uid` return claims as `without` and `asking` change them.
    """

    def __init__(self, objects: Objects) -> None:
        self._mirrored: Mapping[str, ResourceClaim] = objects.of(Kind.RESOURCE_CLAIM)
        self._assumed: dict[str, ResourceClaim] = {}
        """Assumed claims by `namespace/name`; the mirrored claim of equal uid is older."""
        self._in_flight: dict[str, _InFlight] = {}
        """Allocations in flight, by the claim's uid."""
        self._held: dict[Uid, dict[str, None]] = {}
        """The uids of the claims in flight for each pod."""
        self._known: dict[str, ResourceClaim] = {}
        """All claims by uid; an assumed claim replaces the mirrored one."""
        self._of_consumer: dict[str, dict[str, None]] = {}
        """The uids of the claims that are reserved for each consumer, by the consumer's uid."""
        self._of_pod: dict[str, dict[str, None]] = {}
        """The uids of the claims that were created for each pod's extended resources."""
        self._gone: dict[str, None] = {}
        """The uids of pods that a trial treats as gone, so that their claims are free."""
        self._asked: dict[str, ClaimSpec] = {}
        """The specs that a trial uses for claims without devices, by the claim's uid."""
        self.allocated = AllocatedDevices()
        """The devices of allocated claims and of allocations in flight."""

    def get(self, key: str) -> ResourceClaim | None:
        """Return the claim of this namespace/name; None if it is unknown."""
        claim = self._latest(key)
        return claim if claim is None or not (self._gone or self._asked) else self._tried(claim)

    def of_uid(self, uid: str) -> ResourceClaim | None:
        """Return the claim of this uid; None if it is unknown."""
        claim = self._known.get(uid)
        return claim if claim is None or not (self._gone or self._asked) else self._tried(claim)

    def in_flight(self, uid: str) -> Allocation | None:
        """Return the claim's allocation that is not written yet, or None."""
        pending = self._in_flight.get(uid)
        return pending.allocation if pending is not None else None

    def holders(self, uid: str) -> Collection[Uid]:
        """Return the uids of the pods for which an allocation of the claim is in flight."""
        pending = self._in_flight.get(uid)
        return tuple(pending.holders) if pending is not None else ()

    def held(self, pod: Uid) -> Mapping[str, Allocation]:
        """Return the allocations in flight for the pod, by the claim's uid."""
        return {uid: self._in_flight[uid].allocation for uid in self._held.get(pod, ())}

    def named_by(self, pod: Pod) -> list[ResourceClaim]:
        """Return the known claims that the pod names or that were created for its templates."""
        return [*filter(None, map(self.get, claim_keys(pod)))] if pod.spec.resource_claims else []

    def reserved_for(self, consumer: str) -> list[ResourceClaim]:
        """Return the claims that are reserved for the consumer of this uid."""
        return [self._known[uid] for uid in self._of_consumer.get(consumer, ())]

    def users(self, device: DeviceId) -> list[ResourceClaim]:
        """Return the claims that use the device, even if only with admin access."""
        uids = self.allocated.holders(device)
        return [claim for uid in uids if (claim := self.of_uid(uid)) is not None]

    def for_extended_resources(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims that were created for the pod's extended resources.

        Claims of other namespaces are ignored, because a user may name any pod as their controller.
        """
        if pod.uid in self._gone:
            return []
        found = [self._known[uid] for uid in self._of_pod.get(pod.uid, ())]
        return [claim for claim in found if claim.namespace == pod.namespace]

    def shown(
        self, key: str, before: ResourceClaim | None, after: ResourceClaim | None
    ) -> ResourceClaim | None:
        """Store the claim that the watch shows; `after` is None if it was deleted.

        `before` is the version that the watch showed last. Returns the version that decisions have
        used: `before`, or an assumed version.
        """
        assumed = self._assumed.get(key)
        if assumed is not None and (after is None or not _is_newer(assumed, after)):
            del self._assumed[key]
        known = assumed or before
        if known is not None and (after is None or after.uid != known.uid):
            self._forget(known)
        if after is not None:
            self._learn(self._assumed.get(key, after))
        return known

    def assume(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Use `claim`, an answer of the API server, until the watch shows this or a newer version.

        Returns the former version. Does nothing and returns None if the claim was deleted, or if
        the known version is not older.
        """
        known = self._latest(claim.key)
        if known is None or known.uid != claim.uid or not _is_newer(claim, known):
            return None
        self._assumed[claim.key] = claim
        self._learn(claim)
        return known

    def hold(self, pod: Uid, allocations: Mapping[str, Allocation]) -> None:
        """Mark these allocations, by the claim's uid, as in flight for the pod.

        An allocation that is already in flight for another pod stays unchanged.
        """
        for uid, allocation in allocations.items():
            pending = self._in_flight.setdefault(uid, _InFlight(allocation))
            pending.holders[pod] = None
            self._held.setdefault(pod, {})[uid] = None
            self._recount(uid)

    def release(
        self, pod: Uid, claims: Iterable[str] | None = None
    ) -> list[tuple[ResourceClaim, Allocation]]:
        """Undo `hold` for the pod and these claims; None means all claims.

        Returns the claims that are not in flight for any pod now, with their former allocations.
        This includes deleted claims.
        """
        held = self._held.get(pod, {})
        freed = []
        for uid in tuple(held) if claims is None else [uid for uid in claims if uid in held]:
            del held[uid]
            pending = self._in_flight[uid]
            del pending.holders[pod]
            if not pending.holders:
                del self._in_flight[uid]
                self._recount(uid)
                if (claim := self.of_uid(uid) or pending.gone) is not None:
                    freed.append((claim, pending.allocation))
        if not held:
            self._held.pop(pod, None)
        return freed

    @contextmanager
    def without(self, consumer: Uid) -> Iterator[None]:
        """Until the context ends, treat claims as free if only the pod of this uid uses them.

        Claims in flight are included.
        """
        held = self.held(consumer)
        self.release(consumer)
        claims = tuple(self._of_consumer.get(consumer, ()))
        self._gone[consumer] = None
        for uid in claims:
            self._recount(uid)
        try:
            yield
        finally:
            del self._gone[consumer]
            for uid in claims:
                self._recount(uid)
            self.hold(consumer, held)

    @contextmanager
    def asking(self, uid: str, spec: ClaimSpec) -> Iterator[None]:
        """Until the context ends, use `spec` for the claim of this uid, if it has no devices."""
        before = self._asked.get(uid)
        self._asked[uid] = spec
        try:
            yield
        finally:
            del self._asked[uid]
            if before is not None:
                self._asked[uid] = before

    def _latest(self, key: str) -> ResourceClaim | None:
        return self._assumed.get(key) or self._mirrored.get(key)

    def _tried(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the claim as `asking` and `without` change it for a trial."""
        asked = self._asked.get(claim.uid)
        if asked is not None and claim.allocation is None:
            return replace(claim, spec=asked)
        if claim.reserved_for and all(c.uid in self._gone for c in claim.reserved_for):
            return replace(claim, allocation=None, reserved_for=(), device_statuses=())
        return claim

    def _learn(self, claim: ResourceClaim) -> None:
        before = self._known.get(claim.uid)
        if before is claim:
            return
        if before is not None:
            self._unindex(before)
        self._known[claim.uid] = claim
        for consumer in claim.reserved_for:
            self._of_consumer.setdefault(consumer.uid, {})[claim.uid] = None
        if claim.for_extended_resources:
            self._of_pod.setdefault(claim.controller_uid, {})[claim.uid] = None
        self._recount(claim.uid)

    def _forget(self, claim: ResourceClaim) -> None:
        known = self._known.pop(claim.uid, None)
        if known is not None:
            self._unindex(known)
            self._recount(claim.uid)
        pending = self._in_flight.get(claim.uid)
        if pending is not None:
            pending.gone = replace(claim, allocation=None)

    def _unindex(self, claim: ResourceClaim) -> None:
        for consumer in claim.reserved_for:
            drop_item(self._of_consumer, consumer.uid, claim.uid)
        if claim.for_extended_resources:
            drop_item(self._of_pod, claim.controller_uid, claim.uid)

    def _recount(self, uid: str) -> None:
        self.allocated.put(uid, self._results(uid))

    def _results(self, uid: str) -> Iterator[DeviceResult]:
        claim, pending = self.of_uid(uid), self._in_flight.get(uid)
        if claim is not None and claim.allocation is not None:
            yield from claim.allocation.results
        if pending is not None:
            yield from pending.allocation.results


def _is_newer(claim: ResourceClaim, than: ResourceClaim) -> bool:
    if claim.uid != than.uid:
        return False
    versions = claim.resource_version, than.resource_version
    # A claim without a version is the oldest.
    if not all(version.isdecimal() for version in versions):
        return versions[0] != versions[1] and not versions[1]
    return int(versions[0]) > int(versions[1])
