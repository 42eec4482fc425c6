"""Runs one rule of a profile: rejects the nodes for which its filter is false, or scores."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, freed_node, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.workloads import Namespace
from mooring.plugins.rules.evaluation import Evaluator
from mooring.policy.rules.plan import Plan, Read, plan_filter, plan_score
from mooring.policy.rules.rule import RULES, Rule
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["Rules"]

_OF_POD_ALONE: Final = frozenset(("pod.labels", "pod.ownerKind", "pod.namespaceLabels"))
"""Variables that pods of one spec need not share."""
_LONGEST_REASON: Final = 512


class Rules:
    """One rule; its `name` is `Rules/` and the rule's name, its arguments are the rule.

    `depends_on_node_only` and `depends_on_node_object_only` depend on what the rule reads.
    """

    name: str = RULES
    depends_on_node_only: bool = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[Rule]] = Rule
    events_to_register: frozenset[tuple[Kind, Action]] = frozenset()

    def __init__(self, args: Rule, handle: Handle) -> None:
        self.name = args.plugin
        self._rule = args
        plan = plan_filter(args.filter) if args.filter is not None else plan_score(args.score or "")
        self._evaluations = handle.evaluations
        self._evaluator = Evaluator(plan, handle.cluster, handle.evaluations, args.name)
        self._reads = plan.reads
        self._counts_pods = "node.requested" in plan.variables
        by_spec = plan.variables.isdisjoint(_OF_POD_ALONE)
        self.depends_on_node_only = by_spec and args.normalize in (None, "None")
        self.depends_on_node_object_only = not self._counts_pods
        self.events_to_register = frozenset(_events(plan))

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return True where the expression is true; a node on which it fails is rejected."""
        results, rows = self._evaluator.run(pod, nodes)
        return results.fits if rows is None else results.fits[rows]

    def explain(self, pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return the rule's message, or why it fails on the node.

        Evicting pods can help only if the rule reads what pods request.
        """
        results, rows = self._evaluator.run(pod, nodes)
        failed = results.errors if rows is None else results.errors[rows]
        message = self._rule.message or f"node(s) didn't satisfy rule {self._rule.name}"
        reasons = [(message, failed == 0)]
        for number, text in enumerate(results.texts, start=1):
            reason = f"node(s) on which rule {self._rule.name} failed: {text}"
            reasons.append((reason[:_LONGEST_REASON], failed == number))
        return Explanation.from_masks(reasons, resolvable=np.full(len(nodes), self._counts_pods))

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes], 0 to 100; 0 where the expression fails or is not finite."""
        results, rows = self._evaluator.run(pod, nodes)
        if self._rule.normalize in (None, "None"):
            return results.scores if rows is None else results.scores[rows]
        reverse = self._rule.normalize == "Reversed"
        if results.is_kept and results.ranks is not None:
            return results.ranks.proportions(rows, reverse=reverse)
        return (results if rows is None else results.take(rows)).proportions(reverse=reverse)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE when the rule is true for the event's node now, or the namespace changed.

        Also QUEUE if it would take too long to find that out, because many nodes have changed.
        """
        if event.kind is Kind.NAMESPACE:
            after = event.after
            return queue_if(isinstance(after, Namespace) and after.name == pod.namespace)
        name = self._changed_node(event)
        if name is None:
            return QueueingHint.SKIP
        self._evaluations.begin_decision()
        return queue_if(self.filter(pod, cluster.nodes.only(name), None).any())

    def _changed_node(self, event: ClusterEvent) -> str | None:
        """Return the node of the event, if the event changed something that the rule reads."""
        match event.before, event.after:
            case Node() as before, Node() as after:
                changed = any(_of(before, read) != _of(after, read) for read in self._reads)
                return after.name if changed else None
            case _, Node() as after:
                return after.name
            case Pod() as gone, None:
                return freed_node(gone)
            case _, Pod() as after:
                return after.node_name
            case _:
                return None


def _events(plan: Plan) -> Iterable[tuple[Kind, Action]]:
    yield from ((Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE))
    if "node.requested" in plan.variables:
        yield from ((Kind.POD, Action.DELETE), (Kind.POD, Action.UPDATE), (Kind.POD, Action.ADD))
    if "pod.namespaceLabels" in plan.variables:
        yield from ((Kind.NAMESPACE, Action.ADD), (Kind.NAMESPACE, Action.UPDATE))


def _of(node: Node, read: Read) -> Any:
    """Return what the rule reads of a node, to be compared; pods are not counted here."""
    if read.variable == "node.labels" and read.key is not None:
        return node.labels.get(read.key)
    field = _FIELDS.get(read.variable)
    return field(node) if field is not None else None


_FIELDS: Final[Mapping[str, Callable[[Node], Any]]] = {
    "node.labels": lambda node: node.labels,
    "node.zone": lambda node: node.zone_key,
    "node.region": lambda node: node.zone_key,
    "node.unschedulable": lambda node: node.unschedulable,
    "node.allocatable": lambda node: (node.allocatable, node.pod_slots),
    "node.taints": lambda node: node.taints,
    "node.conditions": lambda node: node.conditions,
}
