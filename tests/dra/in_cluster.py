"""Cases in a cluster's state, where nodes of one class have one result."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from dra.objects import Case, Object
from mooring.claims.model.resource_claims import Allocation, parse_resource_claim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.cel_selectors import Selectors, cel_selectors
from mooring.claims.plugin.equivalence import EquivalentNodes, Result, ResultsOnNodes
from mooring.claims.plugin.pools import Inventory, pools_of_node
from mooring.framework.evaluations import Evaluations
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.objects import object_key, parse_object
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

KINDS: Final = {
    "nodes": Kind.NODE,
    "slices": Kind.RESOURCE_SLICE,
    "classes": Kind.DEVICE_CLASS,
    "allocated": Kind.RESOURCE_CLAIM,
}
"""The kinds of the lists of a case."""


class _CountedNodes(EquivalentNodes):
    """Counts in `searches` how often an allocator was made."""

    searches = 0

    def allocator(self, *args: Any) -> Allocator:
        self.searches += 1
        return super().allocator(*args)


class InCluster:
    """A cluster, and what claims get there."""

    def __init__(
        self,
        given: Case | None = None,
        minor: str = "1.37",
        most_per_attempt: int | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self.state = ClusterState()
        self.view = ClusterView(self.state)
        self._rules = KUBERNETES_RULES[minor]
        self.evaluations = Evaluations(most_per_attempt)
        self.nodes = _CountedNodes(self._rules, self.evaluations)
        if most_bytes is not None:
            self.nodes.most_bytes = most_bytes
        for field, kind in KINDS.items() if given is not None else ():
            for raw in given[field] if given is not None else ():
                self.put(kind, raw)

    def put(self, kind: Kind, raw: Object) -> None:
        """Have the cluster know an object, with a uid of its own."""
        given = {**raw, "metadata": {**raw["metadata"], "uid": raw["metadata"]["name"]}}
        self.state.put(kind, object_key(kind, given), parse_object(kind, given))

    def delete(self, kind: Kind, raw: Object) -> None:
        """Have the cluster forget an object."""
        self.state.delete(kind, object_key(kind, raw))

    def by_class(self, claims: Sequence[Object]) -> ResultsOnNodes:
        """Return what the claims get on all rows, with one search per class."""
        parsed = [parse_resource_claim(raw) for raw in claims]
        return self.nodes.results(self.view.nodes, parsed, self.view)

    def in_attempts(self, claims: Sequence[Object]) -> tuple[ResultsOnNodes, int]:
        """Return what `by_class` does, and in how many attempts that do little."""
        for attempts in count(1):
            # What is searched on one node cannot be divided, so that later ones may do more.
            self.evaluations.begin_attempt(members=attempts // 20)
            try:
                return self.by_class(claims), attempts
            except PluginFailed:
                continue
        raise AssertionError

    def repeated(
        self, claims: Sequence[Object], row: int, selectors: Selectors | None = None
    ) -> list[Allocation] | None:
        """Return the allocation on a row from its moves; None if it has no solution."""
        moves, node = self.by_class(claims).moves_of(row), self.view.node(row)
        if moves is None or node is None:
            return None
        allocator = self._allocator(claims, selectors)
        return allocator.repeat(node.name, node.labels, str, self.nodes.pools(row), moves)

    def by_node(self, claims: Sequence[Object]) -> list[Result]:
        """Return what the claims get on all rows, with one search per node.

        Raises:
            AllocationError: that of the first node with one that is about more than the node.
        """
        inventory = Inventory(self.view.dynamic_resources.slices.all(), self._rules)
        allocator, answers = self._allocator(claims), list[Result]()
        for row in range(len(self.view.nodes)):
            node, answer = self.view.node(row), None
            try:
                if node is not None:
                    pools = pools_of_node(inventory, node.name, node.labels, self._rules)
                    answer = allocator.allocate(node.name, node.labels, str, pools)
                answers.append(answer)
            except AllocationError as error:
                if not error.on_node:
                    raise
                answers.append(error)
        return answers

    def _allocator(self, claims: Sequence[Object], selectors: Selectors | None = None) -> Allocator:
        devices, budget = self.view.dynamic_resources, Budget()
        return Allocator(
            [parse_resource_claim(raw) for raw in claims],
            devices.claims.allocated,
            devices.classes.get,
            selectors or cel_selectors(self._rules, budget),
            self._rules,
            budget,
        )
