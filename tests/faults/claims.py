"""What the auditor knows of claims for devices: who holds each device, and what is left behind."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class ClaimSeen:
    """One version of a claim, as far as it is audited."""

    key: str
    uid: str
    allocated: bool = False
    devices: tuple[str, ...] = ()
    """Those that no other claim may have at the same time, as DRIVER/POOL/DEVICE."""
    consumers: tuple[tuple[str, str], ...] = ()
    """Name and uid of the pods for which it is reserved."""

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """Return the audited part of an API object."""
        metadata, status = raw["metadata"], raw.get("status") or {}
        allocation = status.get("allocation") or {}
        return cls(
            key=f"{metadata['namespace']}/{metadata['name']}",
            uid=metadata["uid"],
            allocated=bool(allocation),
            devices=tuple(
                f"{each['driver']}/{each['pool']}/{each['device']}"
                for each in (allocation.get("devices") or {}).get("results") or ()
                if not each.get("adminAccess") and not each.get("shareID")
            ),
            consumers=tuple(
                (each["name"], each["uid"])
                for each in status.get("reservedFor") or ()
                if each["resource"] == "pods"
            ),
        )


def claims_of(pod: Raw) -> tuple[str, ...]:
    """Return the names of the claims that an API object of a pod uses, as far as they exist."""
    entries = [
        *(pod["spec"].get("resourceClaims") or ()),
        *((pod.get("status") or {}).get("resourceClaimStatuses") or ()),
    ]
    return tuple(name for each in entries if (name := each.get("resourceClaimName")))


class UsesClaims(Protocol):
    """A pod, as far as this is about its claims."""

    @property
    def key(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def finished(self) -> bool: ...

    @property
    def claims(self) -> tuple[str, ...]: ...


class DeviceBooks:
    """The claims at one moment, and who holds each device."""

    def __init__(self) -> None:
        self._claims: dict[str, ClaimSeen] = {}
        self._holders: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By device: the claims that have it, by uid."""

    def put(self, claim: ClaimSeen, *, deleted: bool) -> Iterator[str]:
        """Take over a version of the claim; yield which devices another claim has already."""
        before = self._claims.pop(claim.uid, None)
        for device in before.devices if before is not None else ():
            self._holders[device].pop(claim.uid, None)
        if deleted:
            return
        self._claims[claim.uid] = claim
        for device in claim.devices:
            others = [key for uid, key in self._holders[device].items() if uid != claim.uid]
            self._holders[device][claim.uid] = claim.key
            if others and (before is None or device not in before.devices):
                yield f"{device} is allocated to {claim.key}, and to {others[0]} already"

    def not_reserved(self, pod: UsesClaims) -> Iterator[str]:
        """Yield which claims of a pod on a node are not allocated and reserved for it."""
        known = {claim.key: claim for claim in self._claims.values()} if pod.claims else {}
        namespace = pod.key.partition("/")[0]
        for name in pod.claims:
            claim = known.get(f"{namespace}/{name}")
            uids = [uid for _, uid in claim.consumers] if claim is not None else []
            if claim is None or not claim.allocated or pod.uid not in uids:
                yield f"{pod.key} is on {pod.node}, and its claim {name} is not reserved for it"

    def left(self, pods: Collection[UsesClaims]) -> Iterator[str]:
        """Yield what holds devices although no pod uses them; these pods exist."""
        uids = {pod.uid for pod in pods}
        used = {
            f"{pod.key.partition('/')[0]}/{name}"
            for pod in pods
            for name in pod.claims
            if not pod.finished
        }
        for claim in self._claims.values():
            gone = [name for name, uid in claim.consumers if uid not in uids]
            if gone:
                yield f"{claim.key} is reserved for {gone[0]}, which does not exist"
            if claim.allocated and not claim.consumers and claim.key not in used:
                yield f"{claim.key} is allocated, and no pod uses it"
