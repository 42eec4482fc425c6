"""Explains to users why a pod's claims cannot have the devices of the nodes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mooring.claims.claim_report import (
    ClaimReport,
    ClaimsReport,
    ExcludedDevices,
    RequestReport,
)
from mooring.claims.model.resource_claims import PodClaim, ResourceClaim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.equivalence import EquivalentNodes, NodeClasses
from mooring.claims.plugin.node_explanation import BY_USE, ExplainedRequest
from mooring.claims.plugin.pod_claims import is_bindable, is_owned, is_reserved
from mooring.framework.evaluations import AttemptTooLongError
from mooring.model.pod import Pod
from mooring.model.wording import plural
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

_TO_ALLOCATE: Final = "not allocated"
_MOST_REASONS: Final = 16
"""The most reasons per request, because selector errors may name each device; further reasons are
counted together."""
_OTHERS: Final = "other reasons"
_NO_DEVICES: Final = "no devices"
_MOST_ALIKE: Final = 8
_MOST_CLASSES: Final = 64
"""The most classes of nodes that `devices_to_free` examines; it ignores the others."""
_MOST_CHARACTERS: Final = 240


def claim_states(pod: Pod, cluster: ClusterView) -> list[ClaimReport]:
    """Return the states of the pod's claims, without reports about requests."""
    return [ClaimReport(entry.name, *_state(entry, pod, cluster)) for entry in _entries(pod)]


def _entries(pod: Pod) -> Iterator[PodClaim]:
    for entry in pod.spec.resource_claims:
        if entry.claim or pod.claim_names.get(entry.name, "") is not None:
            yield entry


def _state(entry: PodClaim, pod: Pod, cluster: ClusterView) -> tuple[str | None, str]:
    name = entry.claim or pod.claim_names.get(entry.name)
    if not name:
        return None, f"not created yet from ResourceClaimTemplate {entry.template}"
    claim = cluster.dynamic_resources.claims.get(f"{pod.namespace}/{name}")
    if claim is None:
        return name, "does not exist"
    return name, _state_of(claim, entry, pod, cluster)


def _state_of(claim: ResourceClaim, entry: PodClaim, pod: Pod, cluster: ClusterView) -> str:
    if claim.deleting:
        return "is being deleted"
    if not entry.claim and not is_owned(claim, pod, cluster):
        return "was not created for this pod"
    if claim.allocation is None:
        if cluster.dynamic_resources.claims.in_flight(claim.uid) is not None:
            return "is being allocated"
        return _TO_ALLOCATE
    whose = f"used by {plural(len(claim.reserved_for), 'pod')}"
    if any(each.uid == pod.uid for each in claim.reserved_for):
        whose = "reserved for this pod"
    elif is_reserved(claim, pod, cluster):
        whose = "reserved for its group"
    waits = "" if is_bindable(claim) else ", its devices are not bound yet"
    return f"allocated, {whose}{waits}"


class _Totals:
    """Counts, over all nodes, the reasons why requests cannot have devices."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, str], int] = {}
        self._enough = Counter[tuple[str, str]]()
        self._devices: dict[tuple[str, str], Counter[str]] = {}
        self._nodes: dict[tuple[str, str], Counter[str]] = {}

    def add(self, requests: Sequence[ExplainedRequest], nodes: int) -> None:
        """Count the reasons of these requests for this number of equal nodes."""
        for each in requests:
            key = each.claim, each.request
            self._wanted[key] = each.wanted
            self._enough[key] += nodes * (each.left >= each.wanted)
            devices = self._devices.setdefault(key, Counter())
            on_nodes = self._nodes.setdefault(key, Counter())
            shown = Counter[str]()
            for reason, number in each.excluded.items():
                text = reason[:_MOST_CHARACTERS]
                full = len(devices) + len(shown) >= _MOST_REASONS
                shown[_OTHERS if full and text not in devices else text] += number
            if not each.excluded and not each.left:
                shown[_NO_DEVICES] = 0
            for text, number in shown.items():
                devices[text] += number * nodes
                on_nodes[text] += nodes

    def of(self, claim: str) -> list[RequestReport]:
        """Return the reports about a claim's requests."""
        return [
            RequestReport(
                key[1],
                wanted,
                self._enough[key],
                [
                    ExcludedDevices(reason, number, self._nodes[key][reason])
                    for reason, number in self._devices[key].most_common()
                ],
            )
            for key, wanted in self._wanted.items()
            if key[0] == claim
        ]


def devices_excluded(
    pod: Pod,
    cluster: ClusterView,
    nodes: EquivalentNodes,
    classes: NodeClasses,
    allocator: Allocator,
) -> ClaimsReport:
    """Return why the claims of `allocator` have no devices.

    Examine as many nodes as the time limit of an attempt allows.
    """
    totals, states, rows = _Totals(), claim_states(pod, cluster), cluster.nodes_in_order
    _, first, counts = np.unique(classes.numbers[rows], return_index=True, return_counts=True)
    seen, error = 0, None
    for index, count in sorted(
        zip(first.tolist(), counts.tolist(), strict=True), key=lambda each: -each[1]
    ):
        node = cluster.node(row := int(rows[index]))
        if node is None:
            continue
        try:
            totals.add(allocator.explain(node.name, node.labels, nodes.pools(row)), count)
        except AllocationError as failed:
            error = error or failed.text[:_MOST_CHARACTERS]
        except AttemptTooLongError:
            break
        seen += count
    reports = [
        ClaimReport(each.name, each.claim, each.state, totals.of(f"{pod.namespace}/{each.claim}"))
        for each in states
    ]
    return ClaimsReport(reports, seen, len(rows), error)


def devices_to_free(
    rows: IntArray,
    cluster: ClusterView,
    nodes: EquivalentNodes,
    classes: NodeClasses,
    allocator: Allocator,
) -> Iterator[tuple[int, int]]:
    """Yield pairs: how many devices must be freed on a node, and the node's row.

    Nodes where this cannot help are left out. The iterator ends early at the time limit of an
    attempt.
    """
    numbers, first = np.unique(classes.numbers[rows], return_index=True)
    for number, index in [*zip(numbers.tolist(), first.tolist(), strict=True)][:_MOST_CLASSES]:
        node = cluster.node(int(rows[index]))
        if node is None:
            continue
        try:
            asked = allocator.explain(node.name, node.labels, nodes.pools(int(rows[index])))
        except AllocationError:
            continue
        except AttemptTooLongError:
            return
        lacking = _lacking(asked)
        if lacking is not None:
            alike = rows[classes.numbers[rows] == number]
            yield from ((lacking, row) for row in alike[:_MOST_ALIKE].tolist())


def _lacking(asked: Sequence[ExplainedRequest]) -> int | None:
    """Return how many devices the claims lack; None if freeing used devices cannot help."""
    least: dict[tuple[str, str], int | None] = {}
    used = 0
    for each in asked:
        in_use = sum(each.excluded.get(reason, 0) for reason in BY_USE)
        lacking = max(each.wanted - each.left, 0)
        used += in_use
        key = each.claim, each.request.partition("/")[0]
        best = least.setdefault(key, None)
        if lacking <= in_use and (best is None or lacking < best):
            least[key] = lacking
    # The sum may be 0, because requests are examined one by one.
    numbers = [number for number in least.values() if number is not None]
    return sum(numbers) if used and len(numbers) == len(least) else None
