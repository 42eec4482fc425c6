"""Prefers nodes and zones with fewer pods of the same Services and controller.

See SelectorSpreadPriority and ServiceSpreading (selectorspread/ of Kubernetes before 1.23).
"""

from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import EACH_NODE
from mooring.state.topology.pod_selection import Selection
from mooring.state.view import NodeView

_ZONE_WEIGHT: Final = 2.0 / 3.0

_Floats = npt.NDArray[np.float64]


class SelectorSpread:
    """Spreads pods of the same Services and of the same controller."""

    name: ClassVar[str] = "SelectorSpread"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: ClusterView) -> Skip | IntArray:
        """Return int64[nodes]: the number of pods of the same Services and controller.

        Return SKIP if there are no such pods, or if the pod has its own spread constraints.
        """
        return SKIP if pod.spec.spread else _counts(cluster.default_selector(pod), nodes, cluster)

    def score(self, _pod: Pod, nodes: NodeView, counts: IntArray) -> IntArray:
        """Return int64[nodes]: 0 for the most pods on the node and in its zone, 100 for none."""
        return _spread(nodes, counts)


class ServiceSpreading(SelectorSpread):
    """Spreads pods of the same Services, whatever their controllers are."""

    name: ClassVar[str] = "ServiceSpreading"

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: ClusterView) -> Skip | IntArray:
        """Return int64[nodes]: the number of pods of the same Services; SKIP without such pods."""
        return _counts(cluster.behind_services(pod), nodes, cluster)


def _counts(
    default_selector: Selection | None, nodes: NodeView, cluster: ClusterView
) -> Skip | IntArray:
    if default_selector is None:
        return SKIP
    counts = cluster.counts(default_selector, EACH_NODE)
    return counts.at(nodes).astype(np.int64) if counts.total else SKIP


def _spread(nodes: NodeView, counts: IntArray) -> IntArray:
    score = _fewest(counts)
    zones = nodes.zone_codes
    by_zone = np.bincount(zones, weights=counts, minlength=len(nodes.zones))
    by_zone[0] = 0.0  # a node without a zone is scored by its own count alone
    zoned = score * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * _fewest(by_zone)[zones]
    return np.where(zones > 0, zoned, score).astype(np.int64)


def _fewest(counts: IntArray | _Floats) -> _Floats:
    most = counts.max()
    if not most:
        return np.full(len(counts), float(MAX_SCORE))
    share: _Floats = MAX_SCORE * ((most - counts) / most)
    return share
