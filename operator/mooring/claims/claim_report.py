"""The report about a pod's ResourceClaims: their states, and why they have no devices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mooring.model.pod import Pod
from mooring.state.columns import IntArray

__all__ = ["ClaimReport", "ClaimsReport", "ExcludedDevices", "ExplainsClaims", "RequestReport"]


@dataclass(frozen=True, slots=True)
class ExcludedDevices:
    """The number of devices, and of their nodes, that this reason excludes before any other reason.

    A device that several nodes can use counts once for each of them.
    """

    reason: str
    devices: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RequestReport:
    """The devices for one request, apart from the pod's other requests.

    `request` is its name, or `request/sub-request`, and `count` the wanted number. `enough_on` is
    the number of nodes with enough usable devices. `excluded` counts all other devices by reason,
    the most frequent reason first.
    """

    request: str
    count: int
    enough_on: int
    excluded: Sequence[ExcludedDevices]


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """A claim of the pod; `name` is the name of the pod's entry for the claim.

    `claim` is the ResourceClaim's name, None if it was not created from its template yet.
    `requests` has reports if the claim is to be allocated.
    """

    name: str
    claim: str | None
    state: str
    requests: Sequence[RequestReport] = ()


@dataclass(frozen=True, slots=True)
class ClaimsReport:
    """All claims of a pod, and the number of nodes that were searched for devices.

    `error` is the mistake in the claims or their selectors; None if there is none.
    """

    claims: Sequence[ClaimReport]
    nodes: int
    nodes_in_all: int
    error: str | None = None


class ExplainsClaims(ABC):
    """A plugin that allocates devices, and explains why a pod's claims cannot be allocated."""

    @abstractmethod
    def explain_claims(self, pod: Pod) -> ClaimsReport | None:
        """Return the states of the pod's claims; None if the pod has no claims.

        The report covers as many nodes as an attempt has time for.
        """

    @abstractmethod
    def rows_if_freed(self, pod: Pod, rows: IntArray) -> list[int]:
        """Return the rows that might have enough devices if no device was in use.

        Rows where the fewest devices must be freed come first. Not all rows are examined.
        """
