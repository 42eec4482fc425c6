"""Describes a pod's ResourceClaims: their states, and why claims have no devices."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mooring.model.pod import Pod
from mooring.state.columns import IntArray

__all__ = ["ClaimReport", "ClaimsReport", "ExcludedDevices", "ExplainsClaims", "RequestReport"]


@dataclass(frozen=True, slots=True)
class ExcludedDevices:
    """How many devices a request cannot have for one reason, and on how many nodes.

    A device is counted once for each node that can use it, and only for the first reason.
    """

    reason: str
    devices: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RequestReport:
    """The devices for one request, without regard to the pod's other requests.

    Attributes:
        request: The name of the request, or `request/sub-request`.
        count: The wanted number of devices.
        enough_on: The number of nodes with enough usable devices.
        excluded: The unusable devices by reason, the most frequent reason first.
    """

    request: str
    count: int
    enough_on: int
    excluded: Sequence[ExcludedDevices]


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """A claim of the pod; `name` is its name in the pod's spec.

    `claim` is the ResourceClaim's name, or None if it was not created yet. `requests` is empty if
    the claim already has devices.
    """

    name: str
    claim: str | None
    state: str
    requests: Sequence[RequestReport] = ()


@dataclass(frozen=True, slots=True)
class ClaimsReport:
    """All claims of a pod, and the number of nodes that were searched for devices.

    `error` is the mistake in the claims or their selectors; None without a mistake.
    """

    claims: Sequence[ClaimReport]
    nodes: int
    nodes_in_all: int
    error: str | None = None


class ExplainsClaims(ABC):
    """The interface of a plugin that allocates devices and explains missing devices."""

    @abstractmethod
    def explain_claims(self, pod: Pod) -> ClaimsReport | None:
        """Return the states of the pod's claims; None if the pod has no claims.

        The search ends at the time limit of a scheduling attempt. `ClaimsReport.nodes` counts only
        the nodes that were searched until then.
        """

    @abstractmethod
    def rows_if_freed(self, pod: Pod, rows: IntArray) -> list[int]:
        """Return the `rows` whose nodes might have enough devices if all devices were free.

        Nodes where few devices must be freed come first. In a cluster with many different nodes,
        the result may lack some nodes.
        """
