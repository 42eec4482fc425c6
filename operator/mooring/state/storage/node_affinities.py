"""Node affinities of volumes, numbered, and the nodes they select."""

from collections.abc import Sequence

import numpy as np

from mooring.model.selectors import NodeSelector
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.view import BoolArray, NodeView

__all__ = ["NO_AFFINITY", "NodeAffinities", "reachable"]

NO_AFFINITY = -1
"""In place of a place's number."""


def reachable(nodes: NodeView, affinity: NodeSelector | None) -> BoolArray:
    """True where a volume of this node affinity can be had; None can be had everywhere.

    Only labels are looked at: what a term asks of a node's fields counts for nothing
    (component-helpers storage/volume/helpers.go, CheckNodeAffinity).
    """
    if affinity is None:
        return np.ones(len(nodes), np.bool_)
    fits = np.zeros(len(nodes), np.bool_)
    for term in affinity.terms:
        if term.valid and not term.empty:
            matched = np.ones(len(nodes), np.bool_)
            for requirement in term.expressions:
                matched &= nodes.meets(requirement)
            fits |= matched
    return fits


class NodeAffinities:
    """Distinct node affinities by number.

    Most volumes can be had where one label has one value, such as on one node or in one zone. No
    two places of such a label overlap, so that one column tells all of them.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._numbers: dict[NodeSelector | None, int] = {}
        self._columns: list[IntArray] = []
        self._version = -1
        self.affinities: list[NodeSelector | None] = []
        """The affinity of each place."""

    def __len__(self) -> int:
        return len(self.affinities)

    def number(self, affinity: NodeSelector | None) -> int:
        """The affinity's number, given if it is new."""
        number = self._numbers.get(affinity)
        if number is None:
            number = self._numbers[affinity] = len(self.affinities)
            self.affinities.append(affinity)
            self._version = -1
        return number

    def by_row(self) -> Sequence[IntArray]:
        """Columns (int64 per row of the table) of numbers or NOWHERE.

        A place is found in just one of them, on the rows where a volume of it can be had.
        """
        if self._version != self._nodes.topology_version:
            self._columns = self._built()
            self._version = self._nodes.topology_version
        return self._columns

    def _built(self) -> list[IntArray]:
        nodes = NodeView(self._nodes)
        columns: list[IntArray] = []
        by_label: dict[str, dict[str, int]] = {}
        for number, affinity in enumerate(self.affinities):
            label = _one_label(affinity)
            if label is None:
                columns.append(np.where(reachable(nodes, affinity), number, NO_AFFINITY))
            else:
                by_label.setdefault(label[0], {})[label[1]] = number
        for key, by_value in by_label.items():
            values = nodes.label(key).values
            # The last item is for nodes without the label, whose code is -1.
            by_code = np.array(
                [*(by_value.get(value, NO_AFFINITY) for value in values), NO_AFFINITY]
            )
            columns.append(by_code[nodes.label_codes(key)])
        return columns


def _one_label(affinity: NodeSelector | None) -> tuple[str, str] | None:
    """The label and the one value for it that are all the affinity asks for; None if not so."""
    if affinity is None or len(affinity.terms) != 1:
        return None
    (term,) = affinity.terms
    if term.fields or not term.valid or len(term.expressions) != 1:
        return None
    (requirement,) = term.expressions
    if requirement.operator != "In" or len(requirement.values) != 1:
        return None
    return requirement.key, requirement.values[0]
