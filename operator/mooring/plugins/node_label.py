"""Requires or prefers nodes by the presence or absence of label keys; values do not matter.

See CheckNodeLabelPresence and NodeLabel (nodelabel/ of Kubernetes 1.17 to 1.22).
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT
from mooring.state.view import BoolArray, NodeView


class NodeLabelArgs(PolicyModel):
    """Labels that a node must have, must not have, should have or should not have."""

    present_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must have to fit."""
    absent_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must not have to fit."""
    present_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose presence adds to a node's score."""
    absent_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose absence adds to a node's score."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for a label that must or should be both present and absent."""
        for field, wanted, unwanted in (
            ("absentLabels", self.present_labels, self.absent_labels),
            (
                "absentLabelsPreference",
                self.present_labels_preference,
                self.absent_labels_preference,
            ),
        ):
            for number, label in enumerate(unwanted):
                if label in wanted:
                    message = f'"{label}" is also in the list of labels that should be present'
                    yield FieldError(f"{field}[{number}]", message)


class NodeLabel:
    """Rejects nodes by required and forbidden labels, and scores nodes by other labels."""

    name: ClassVar[str] = "NodeLabel"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[NodeLabelArgs]] = NodeLabelArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NodeLabelArgs, handle: Handle) -> None:
        self._args = args
        self._preferences = len(args.present_labels_preference) + len(args.absent_labels_preference)

    def pre_filter(self, _pod: Pod, _cluster: ClusterView) -> Skip | None:
        """Return SKIP if the profile requires and forbids no labels; the filter needs no state."""
        return None if self._args.present_labels or self._args.absent_labels else SKIP

    def filter(self, _pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return bool[nodes]: True where all required labels and no forbidden labels exist."""
        fits = np.ones(len(nodes), np.bool_)
        for met in _met(nodes, self._args.present_labels, self._args.absent_labels):
            fits &= met
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return the reason for all rejected nodes; evictions change no labels."""
        reason = "node(s) didn't have the requested labels"
        return Explanation.single(reason, len(nodes), resolvable=False)

    def pre_score(self, _pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> Skip | None:
        """Return SKIP if the profile has no preferences; the score needs no state."""
        return None if self._preferences else SKIP

    def score(self, _pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes]: the percentage of the preferences that the node meets."""
        total = np.zeros(len(nodes), np.int64)
        args = self._args
        for met in _met(nodes, args.present_labels_preference, args.absent_labels_preference):
            total += MAX_SCORE * met
        return total // self._preferences

    def queueing_hint(self, _pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a new or changed node has the right labels now, but had not before."""
        present, absent = self._args.present_labels, self._args.absent_labels

        def right(node: Node) -> bool:
            labels = node.labels
            return all(k in labels for k in present) and not any(k in labels for k in absent)

        return queue_if(node_newly(event, right))


def _met(nodes: NodeView, present: tuple[str, ...], absent: tuple[str, ...]) -> Iterator[BoolArray]:
    for key in present:
        yield nodes.label_codes(key) != ABSENT
    for key in absent:
        yield nodes.label_codes(key) == ABSENT
