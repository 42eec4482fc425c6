"""Counts the claims with devices in use, by kind.

These claims are the best guess at future claims. Claims with equal requests are of one kind.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from mooring.claims.model.resource_claims import DeviceId, ResourceClaim
from mooring.state.cluster_view import ClusterView

_DIGEST_BYTES: Final = 16


class TypicalClaims:
    """Counts the claims that hold devices; claims with equal requests are counted as one kind."""

    def __init__(self) -> None:
        self._version = -1
        self._holders: dict[DeviceId, tuple[str, ...]] = {}
        self._kinds: dict[str, bytes] = {}
        """The kind of each counted claim, by the claim's uid."""
        self._counts: Counter[bytes] = Counter()
        self._samples: dict[bytes, ResourceClaim] = {}

    def most_common(self, cluster: ClusterView, most: int) -> list[tuple[ResourceClaim, int]]:
        """Return a sample claim and the number of claims of the `most` most frequent kinds."""
        self._follow(cluster)
        ordered = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [(self._samples[kind], number) for kind, number in ordered[:most]]

    def _follow(self, cluster: ClusterView) -> None:
        allocated = cluster.dynamic_resources.claims.allocated
        if self._version == allocated.version:
            return
        changed: Iterable[DeviceId] | None = allocated.changed_since(self._version)
        if changed is None:
            changed = {*self._holders, *allocated.dedicated, *allocated.shares}
        self._version = allocated.version
        uids = set[str]()
        for device in changed:
            now = tuple(allocated.holders(device))
            uids.update(self._holders.pop(device, ()), now)
            if now:
                self._holders[device] = now
        for uid in uids:
            self._count(uid, cluster)

    def _count(self, uid: str, cluster: ClusterView) -> None:
        before, devices = self._kinds.pop(uid, None), cluster.dynamic_resources
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before], self._samples[before]
        claim = devices.claims.of_uid(uid)
        allocation = claim and (claim.allocation or devices.claims.in_flight(uid))
        if claim is None or not allocation or all(r.admin_access for r in allocation.results):
            return
        kind = self._kinds[uid] = kind_of([claim])
        self._counts[kind] += 1
        self._samples.setdefault(kind, replace(claim, allocation=None, reserved_for=()))


def kind_of(claims: Sequence[ResourceClaim]) -> bytes:
    """Return a hash of the claims' requests; claims with equal requests are of one kind."""
    asked = "".join([each.spec.asked for each in claims])
    return blake2b(asked.encode(), digest_size=_DIGEST_BYTES).digest()
