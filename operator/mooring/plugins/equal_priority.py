"""Gives every node the same score: EqualPriority (core/generic_scheduler.go before 1.19)."""

from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.view import NodeView


class EqualPriority:
    """Gives every node the score 1, so that the plugin never decides between nodes."""

    name: ClassVar[str] = "EqualPriority"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def score(self, _pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes]: 1 for each node."""
        return np.ones(len(nodes), np.int64)
