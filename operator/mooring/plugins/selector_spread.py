"""Few siblings on a node, and in its zone, are better: SelectorSpreadPriority and ServiceSpreading.

(selectorspread/ of Kubernetes before 1.23). Pods that belong together, as their Services and
controllers say, are spread over nodes, which count a third, and over zones, which count two.
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
from mooring.state.columns import IntArray
from mooring.state.labels import EACH_NODE
from mooring.state.snapshot import Snapshot
from mooring.state.topology.selection import Selection
from mooring.state.view import NodeView

__all__ = ["SelectorSpread", "ServiceSpreading"]

_ZONE_WEIGHT: Final = 2.0 / 3.0

_Floats = npt.NDArray[np.float64]


class SelectorSpread:
    """Spreads pods behind the same Services and of the same controller."""

    name: ClassVar[str] = "SelectorSpread"
    row_local: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: Snapshot) -> Skip | IntArray:
        """The siblings on each node; a pod with constraints of its own is spread by these."""
        return SKIP if pod.shape.spread else _counts(cluster.default_selector(pod), nodes, cluster)

    def score(self, _pod: Pod, nodes: NodeView, counts: IntArray) -> IntArray:
        """0 where the most are, 100 where none is."""
        return _spread(nodes, counts)


class ServiceSpreading:
    """Spreads pods behind the same Services, whoever owns them."""

    name: ClassVar[str] = "ServiceSpreading"
    row_local: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: Snapshot) -> Skip | IntArray:
        """The pods on each node that are behind all Services of the pod."""
        return _counts(cluster.behind_services(pod), nodes, cluster)

    def score(self, _pod: Pod, nodes: NodeView, counts: IntArray) -> IntArray:
        """0 where the most are, 100 where none is."""
        return _spread(nodes, counts)


def _counts(
    default_selector: Selection | None, nodes: NodeView, cluster: Snapshot
) -> Skip | IntArray:
    """int64 per node; SKIP without any, because then all nodes are equal."""
    if default_selector is None:
        return SKIP
    counts = cluster.counts(default_selector, EACH_NODE)
    return counts.at(nodes).astype(np.int64) if counts.total else SKIP


def _spread(nodes: NodeView, counts: IntArray) -> IntArray:
    """The scores, from the counts of the feasible nodes alone."""
    score = _fewest(counts)
    zones = nodes.zone_codes
    by_zone = np.bincount(zones, weights=counts, minlength=len(nodes.zones))
    by_zone[0] = 0.0  # nodes in no zone go by their own count
    zoned = score * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * _fewest(by_zone)[zones]
    return np.where(zones > 0, zoned, score).astype(np.int64)


def _fewest(counts: IntArray | _Floats) -> _Floats:
    """100 at a count of 0, 0 at the highest; in upstream's order, which decides the rounding."""
    most = counts.max()
    if not most:
        return np.full(len(counts), float(MAX_SCORE))
    share: _Floats = MAX_SCORE * ((most - counts) / most)
    return share
