"""Counts the pods of each Queue that use a ResourceClaim, and the devices that the Queue uses.

A claim counts once in each Queue, with the most devices that it may get, as in a ResourceQuota. In
`Amounts`, the key `claim:NAMESPACE/NAME` has the number of pods that name the claim.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from mooring.claims.model.device_classes import CLASS_PREFIX
from mooring.claims.model.resource_claims import MOST_RESULTS, ExactRequest, ResourceClaim
from mooring.model.events import Kind
from mooring.model.pod import Pod, claim_keys
from mooring.state.objects import Objects

CLAIM: Final = "claim:"
"""The prefix of a claim's namespace/name; no resource has a colon in its name."""

Amounts = Mapping[str, int]


class ClaimUsers:
    """Counts the pods on nodes that use a claim, for each Queue; only `Queues` changes it."""

    def __init__(self, objects: Objects) -> None:
        self._claims: Mapping[str, ResourceClaim] = objects.of(Kind.RESOURCE_CLAIM)
        self._users: dict[str, Counter[int]] = {}

    def queues_of(self, claim: str) -> Collection[int]:
        """Return the numbers of the Queues with pods that name this claim (namespace/name)."""
        return tuple(self._users.get(f"{CLAIM}{claim}", ()))

    def in_devices(self, number: int, amounts: Amounts) -> Amounts:
        """Return `amounts` with devices in place of claims, for the Queue with this number.

        A claim adds no devices if other pods of the Queue already use the claim.
        """
        claims = [name for name in amounts if name.startswith(CLAIM)]
        if not claims:
            return amounts
        found = Counter({n: value for n, value in amounts.items() if not n.startswith(CLAIM)})
        for name in claims:
            before = self._users.get(name, Counter())[number]
            sign = (before + amounts[name] > 0) - (before > 0)
            for resource, count in devices_of(self._claims.get(name.removeprefix(CLAIM))).items():
                found[resource] += sign * count
        return found

    def counted(self, number: int, amounts: Amounts) -> Amounts:
        """Change how many pods of the Queue use each claim; return `in_devices` before the change.

        A claim's amount in `amounts` is the number of pods to add; it is negative if pods leave.
        """
        found = self.in_devices(number, amounts)
        if found is not amounts:
            for name, count in amounts.items():
                if name.startswith(CLAIM):
                    self._count(name, number, count)
        return found

    def _count(self, name: str, number: int, count: int) -> None:
        users = self._users.setdefault(name, Counter())
        users[number] += count
        if not users[number]:
            del users[number]
        if not users:
            del self._users[name]


def named_claims(pod: Pod) -> list[str]:
    """Return the keys in `Amounts` of the claims that the pod names."""
    return [f"{CLAIM}{key}" for key in claim_keys(pod)] if pod.spec.resource_claims else []


def devices_of(claim: object) -> Amounts:
    """Return the most devices of each class that a claim may get; {} if there is no claim."""
    devices = dict[str, int]()  # Counters take three times as long
    for request in claim.spec.requests if isinstance(claim, ResourceClaim) else ():
        most = dict[str, int]()
        for one in request.first_available or filter(None, (request.exactly,)):
            resource = f"{CLASS_PREFIX}{one.device_class}"
            most[resource] = max(most.get(resource, 0), _count_of(one))
        for resource, count in most.items():
            devices[resource] = devices.get(resource, 0) + count
    return devices


def _count_of(request: ExactRequest) -> int:
    if request.admin_access:  # takes no devices away from other requests
        return 0
    return MOST_RESULTS if request.mode == "All" else request.count
