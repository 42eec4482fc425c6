"""Node affinities of volumes, and the nodes that match."""

from collections.abc import Sequence

import numpy as np

from mooring.model.selectors import NodeSelector
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.view import BoolArray, NodeView

NO_AFFINITY = -1
"""The number for a node that matches no affinity."""


def check_node_affinity(nodes: NodeView, affinity: NodeSelector | None) -> BoolArray:
    """Return bool[nodes]: True where the node matches a volume's affinity; None matches all nodes.

    Match fields are ignored (CheckNodeAffinity in component-helpers).
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
    """Gives a number to each node affinity, and finds the affinities that a node matches.

    Most affinities require one value of one label, such as a zone. A node matches at most one such
    affinity of a label, so the affinities of a label fit into one column.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._numbers: dict[NodeSelector | None, int] = {}
        self._columns: list[IntArray] = []
        self._version = -1
        self.affinities: list[NodeSelector | None] = []
        """All affinities; the index of an affinity is its number."""

    def __len__(self) -> int:
        return len(self.affinities)

    def number(self, affinity: NodeSelector | None) -> int:
        """Return the number that identifies the affinity; a new affinity gets a new number."""
        number = self._numbers.get(affinity)
        if number is None:
            number = self._numbers[affinity] = len(self.affinities)
            self.affinities.append(affinity)
            self._version = -1
        return number

    def by_row(self) -> Sequence[IntArray]:
        """Return columns (int64[rows]) with the numbers of the affinities that each node matches.

        The number of an affinity is in one column only. A row has NO_AFFINITY if the node matches
        no affinity of the column.
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
                columns.append(np.where(check_node_affinity(nodes, affinity), number, NO_AFFINITY))
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
    if affinity is None or len(affinity.terms) != 1:
        return None
    (term,) = affinity.terms
    if term.fields or not term.valid or len(term.expressions) != 1:
        return None
    (requirement,) = term.expressions
    if requirement.operator != "In" or len(requirement.values) != 1:
        return None
    return requirement.key, requirement.values[0]
