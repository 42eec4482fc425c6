"""Prefers nodes as large as the pod's limits (resource_limits.go of Kubernetes 1.9 to 1.19)."""

from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView


class ResourceLimits:
    """Scores 1 if the pod's limit of cpu or of memory is at most the node's allocatable, else 0.

    This decides only between nodes whose other scores are equal.
    """

    name: ClassVar[str] = "ResourceLimits"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_score(self, pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> Skip | None:
        """Return SKIP for a pod without limits; the score needs no state."""
        return None if pod.spec.limits else SKIP

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes]: 1 if allocatable cpu or memory covers the pod's limit, else 0."""
        within = np.zeros(len(nodes), np.bool_)
        for resource, limit in pod.spec.limits.items():
            within |= limit <= nodes.allocatable(resource)
        return within.astype(np.int64)
