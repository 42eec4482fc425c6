"""Runs one rule of a profile: rejects the nodes for which the rule is false, or scores nodes.

The first rule imports the modules that evaluate rules, because their import takes long
(`mooring.policy.rules.rule`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, freed_node, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.workloads import Namespace
from mooring.policy.rules.rule import RULES, Rule
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

if TYPE_CHECKING:
    from mooring.plugins.rules.pod_counts import PodCounts
    from mooring.policy.rules.rule_plan import Read, RulePlan


_OF_POD_ALONE: Final = frozenset(("pod.labels", "pod.ownerKind", "pod.namespaceLabels"))
"""Variables that may differ between pods of the same spec."""
_LONGEST_REASON: Final = 512


class Rules:
    """Runs one rule of a profile; `name` is `Rules/` and the rule's name.

    `depends_on_node_only` and `depends_on_node_object_only` depend on the values that the rule
    reads.
    """

    name: str = RULES
    depends_on_node_only: bool = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[Rule]] = Rule
    events_to_register: frozenset[tuple[Kind, Action]] = frozenset()

    def __init__(self, args: Rule, handle: Handle) -> None:
        from mooring.plugins.rules.evaluation import Evaluator  # noqa: PLC0415 - slow, see the top

        self.name = args.plugin
        self._rule = args
        plan = args.plan
        self._evaluations = handle.evaluations
        self._evaluator = Evaluator(plan, handle.cluster, handle.evaluations, args.name)
        self._reads = plan.reads
        self._reads_requests = "node.requested" in plan.variables
        self._counts_pods = plan.reads_pods_on_nodes
        by_spec = plan.variables.isdisjoint(_OF_POD_ALONE) and not plan.counts
        self.depends_on_node_only = by_spec and args.normalize in (None, "None")
        self.depends_on_node_object_only = not self._counts_pods
        self.events_to_register = frozenset(_events(plan))

    def pre_filter(self, pod: Pod, _: ClusterView) -> Skip | None:
        """Return SKIP if the pod's values alone make the rule true on every node.

        SKIP saves the counting of pods. PreFilter does not run for rules that count no pods.
        """
        return SKIP if self._evaluator.is_true_for(pod) else None

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return bool[nodes]: True where the expression is true and does not fail."""
        results, rows = self._evaluator.run(pod, nodes)
        return results.fits if rows is None else results.fits[rows]

    def explain(self, pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return, for each node, the rule's message, or why the expression fails on the node.

        The rejection is resolvable if the rule reads the requests of pods, or counts pods.
        """
        results, rows = self._evaluator.run(pod, nodes)
        failed = results.errors if rows is None else results.errors[rows]
        message = self._rule.message or f"node(s) didn't satisfy rule {self._rule.name}"
        refused = [*self._refused(pod, nodes, failed == 0)]
        reasons = [(message, mask) for _, mask in refused]
        for number, text in enumerate(results.texts, start=1):
            reason = f"node(s) on which rule {self._rule.name} failed: {text}"
            reasons.append((reason[:_LONGEST_REASON], failed == number))
        return Explanation.from_masks(
            reasons,
            resolvable=np.full(len(nodes), self._counts_pods),
            details=[detail for detail, _ in refused],
        )

    def _refused(
        self, pod: Pod, nodes: NodeView, refused: BoolArray
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield pairs: a text about the counted pods, and bool[nodes], the nodes with this text."""
        counts = self._evaluator.counts
        if not counts:
            yield "", refused
            return
        at = np.flatnonzero(refused)
        for there, where in counts.described(pod, nodes.take(nodes.rows[at])):
            mask = np.zeros(len(nodes), np.bool_)
            mask[at[where]] = True
            yield there[:_LONGEST_REASON], mask

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes], 0 to 100; 0 if the expression fails or is not finite."""
        results, rows = self._evaluator.run(pod, nodes)
        if self._rule.normalize in (None, "None"):
            return results.scores if rows is None else results.scores[rows]
        reverse = self._rule.normalize == "Reversed"
        if results.is_kept and results.ranks is not None:
            return results.ranks.proportions(rows, reverse=reverse)
        return (results if rows is None else results.take(rows)).proportions(reverse=reverse)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the rule is now true for a node that the event concerns.

        Returns QUEUE, too, if the evaluation takes too long, or if the event is about a namespace
        that may matter to the rule.
        """
        if event.kind is Kind.NAMESPACE:
            return queue_if(self._is_about(pod, event))
        nodes = self._changed_nodes(pod, event, cluster)
        if not len(nodes):
            return QueueingHint.SKIP
        self._evaluations.begin_hint()
        return queue_if(self.filter(pod, nodes, None).any())

    def _is_about(self, pod: Pod, event: ClusterEvent) -> bool:
        changed = event.after or event.before
        own = isinstance(changed, Namespace) and changed.name == pod.namespace
        return own or self._evaluator.counts.reads_namespaces()

    def _changed_nodes(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> NodeView:
        counts, nodes = self._evaluator.counts, cluster.nodes
        if counts and (domains := [*_changed_domains(counts, pod, event, cluster)]):
            shared = np.logical_or.reduce([counts.in_domains_of(node, nodes) for node in domains])
            return nodes.take(nodes.rows[shared & nodes.present])
        reads_event = event.kind is Kind.NODE or self._reads_requests
        return nodes.only((self._changed_node(event) or "") if reads_event else "")

    def _changed_node(self, event: ClusterEvent) -> str | None:
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


def _changed_domains(
    counts: "PodCounts", pod: Pod, event: ClusterEvent, cluster: ClusterView
) -> Iterator[Node]:
    """Yield a node of each topology domain in which the event may have changed a count of pods."""
    if event.kind is Kind.NODE:
        nodes = [node for node in (event.before, event.after) if isinstance(node, Node)]
        if len(nodes) == 1 or counts.domains_of(nodes[0]) != counts.domains_of(nodes[-1]):
            yield from nodes
        return
    was, now = (
        (freed_node(other), counts.selecting(pod, other)) if isinstance(other, Pod) else (None, [])
        for other in (event.before, event.after)
    )
    if was == now:
        return
    for name in {node for node, selecting in (was, now) if selecting}:
        row = cluster.row(name or "")
        node = cluster.node(row) if row is not None else None
        if node is not None:
            yield node


def _events(plan: "RulePlan") -> Iterable[tuple[Kind, Action]]:
    yield from ((Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE))
    if plan.counts:
        yield Kind.NODE, Action.DELETE
    if plan.reads_pods_on_nodes:
        yield from ((Kind.POD, Action.DELETE), (Kind.POD, Action.UPDATE), (Kind.POD, Action.ADD))
    in_namespaces = any(count.namespace_labels is not None for count in plan.counts)
    if "pod.namespaceLabels" in plan.variables or in_namespaces:
        yield from product((Kind.NAMESPACE,), Action)


def _of(node: Node, read: "Read") -> Any:
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
