"""Explains why the requests of a pod's claims cannot have a node's devices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.claims.model.resource_claims import ResourceClaim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.device_trial import FEW_COUNTERS, IN_USE, LITTLE_CAPACITY, DeviceTrial
from mooring.claims.plugin.requests import NodeDevices, Slot

INCOMPLETE: Final = "incomplete pool"
INVALID: Final = "invalid pool"
BY_USE: Final = (IN_USE, LITTLE_CAPACITY, FEW_COUNTERS)
"""Reasons that may end when other pods' claims are freed."""


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """Which devices of a node a request could take if the pod had no other requests.

    Attributes:
        claim: The claim, as `namespace/name`.
        request: The name of the request, or `request/sub-request`.
        wanted: The number of devices.
        left: The number of devices that the request could take.
        excluded: The number of unusable devices by reason, the most frequent reason first.
    """

    claim: str
    request: str
    wanted: int
    left: int
    excluded: Mapping[str, int]


def explained(
    slot: Slot, claims: Sequence[ResourceClaim], node: NodeDevices, trial: DeviceTrial
) -> ExplainedRequest:
    """Return how many of the node's devices the request could take, and why not the rest."""
    reasons = Counter[str]()
    for position in range(trial.size):
        try:
            reasons[trial.why_not(slot, position)] += 1
        except AllocationError as error:
            reasons[error.text] += 1
    for pool in node.pools:
        if not pool.usable:
            reason = INCOMPLETE if pool.incomplete else INVALID
            reasons[reason] += sum(len(each.devices) for each in pool.slices)
    left = reasons.pop("", 0)
    return ExplainedRequest(
        claims[slot.claim].key, slot.full_name, slot.count, left, dict(reasons.most_common())
    )
