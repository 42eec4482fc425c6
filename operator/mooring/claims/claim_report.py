"""The report about a pod's ResourceClaims: their states, and why they have no devices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mooring.model.pod import Pod
from mooring.state.columns import IntArray

__all__ = ["ClaimReport", "ClaimsReport", "ExcludedDevices", "ExplainsClaims", "RequestReport"]


@dataclass(frozen=True, slots=True)
class ExcludedDevices:
    """How many devices, on how many nodes, this reason excludes as the first one.

    A device that several nodes can use counts once for each of them.
    """

    reason: str
    devices: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RequestReport:
    """A request, or `request/sub-request`, for `count` devices, without the pod's other requests.

    `enough_on` is the number of nodes with so many devices that it could take, and `excluded` has
    the others, the most frequent reason first.
    """

    request: str
    count: int
    enough_on: int
    excluded: Sequence[ExcludedDevices]


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """A claim of the pod by the entry's name; its requests if it is to be allocated.

    `claim` is the ResourceClaim's name, None if it was not created from its template yet.
    """

    name: str
    claim: str | None
    state: str
    requests: Sequence[RequestReport] = ()


@dataclass(frozen=True, slots=True)
class ClaimsReport:
    """All claims of a pod, and how many nodes have been searched for devices.

    `error` says what is wrong with the claims or their selectors; None if nothing is.
    """

    claims: Sequence[ClaimReport]
    nodes: int
    nodes_in_all: int
    error: str | None = None


class ExplainsClaims(ABC):
    """A plugin that allocates devices, and explains why a pod's claims cannot be allocated."""

    @abstractmethod
    def explain_claims(self, pod: Pod) -> ClaimsReport | None:
        """Return the states of the pod's claims, for as many nodes as an attempt has time.

        None if the pod has no claims.
        """

    @abstractmethod
    def rows_if_freed(self, pod: Pod, rows: IntArray) -> list[int]:
        """Return the rows that might have enough devices if no device was in use.

        Rows where the fewest devices must be freed come first. Not all rows are examined.
        """
