"""What plugins ask of a change when they say whether it may cure their refusals."""

from collections.abc import Callable

from mooring.model.changes import Change
from mooring.model.node import Node
from mooring.model.pod import Pod

__all__ = ["left_node", "opened"]


def opened(change: Change, admits: Callable[[Node], bool]) -> bool:
    """Whether a node that came or changed is admitted now, and was not before."""
    before, after = change.before, change.after
    if not isinstance(after, Node) or not admits(after):
        return False
    return not (isinstance(before, Node) and admits(before))


def left_node(gone: Pod) -> str | None:
    """The node on which a deleted pod, placed or nominated, leaves room."""
    return gone.node_name or gone.nominated_node
