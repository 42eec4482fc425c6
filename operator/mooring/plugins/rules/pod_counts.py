"""Counts pods for a rule: `node.pods(...)` and `domain("label").pods(...)`.

Every event of a pod or node updates a count. Equal selectors share one count, also between rules,
inter-pod affinity and topology spread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from mooring.cel.values import Failure
from mooring.framework.evaluations import UNITS_PER_COUNT, Evaluations
from mooring.model.bounded_cache import BoundedCache
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector
from mooring.policy.rules.rule_plan import PodCount, SelectedLabels, Step
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import EACH_NODE
from mooring.state.topology.domain_counts import DomainCounts
from mooring.state.topology.pod_selection import PodSelector, Selection, selection
from mooring.state.view import BoolArray, NodeView

_MOST_BYTES: Final = 256 * 1024
"""The most bytes of cached selections per rule; the least recently used are dropped."""
_NAMED: Final = 3
"""The most domains that a message names; of further domains, it gives only the number."""
_TOLD_APART: Final = 32
"""The most different texts in an explanation; if more are needed, all nodes get the same text."""
_NODES_PER_UNIT: Final = 16
"""The number of nodes whose counts are read for one unit of `Evaluations`."""

_Key = tuple[PodCount, str, tuple[str, ...]]


class PodCounts:
    """The counts of pods that one rule reads; `value` evaluates a step that reads only the pod."""

    def __init__(
        self, counts: Sequence[PodCount], cluster: ClusterView, value: Callable[[Step, Pod], Any]
    ) -> None:
        self._all = counts
        self._cluster = cluster
        self._value = value
        self._selections: BoundedCache[_Key, Selection] = BoundedCache(_MOST_BYTES, _memory)

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def units(self) -> int:
        """The units of `Evaluations` for reading the counts of all nodes in one decision."""
        nodes = len(self._cluster.nodes) // _NODES_PER_UNIT
        return len(self._all) * (UNITS_PER_COUNT + nodes)

    def count(self, pod: Pod, evaluations: Evaluations) -> None:
        """Count the pods that the rule reads; raise PluginFailed if the budget is used up.

        The next call continues.
        """
        wanted = ((pods, count.key or EACH_NODE) for count, pods in self._of(pod))
        evaluations.count_pods(self._cluster, wanted)

    def at(self, count: PodCount, pod: Pod) -> DomainCounts | Failure:
        """Return the count for this pod; return a Failure if its selector cannot be evaluated."""
        pods = self._selection(count, pod)
        return pods if isinstance(pods, Failure) else self._counts(count, pods)

    def described(self, pod: Pod, nodes: NodeView) -> list[tuple[str, BoolArray]]:
        """Return texts such as `rack r7 has 1 of app=db`, each with bool[nodes]: the text's nodes.

        For more than 32 domains, return one text about the domains with the most pods.
        """
        counted = [*self._of(pod)]
        if not (counted and len(nodes)):
            return [("", np.ones(len(nodes), np.bool_))]
        kinds = np.stack([self._kinds(*each, nodes) for each in counted])
        distinct, which = np.unique(kinds, axis=1, return_inverse=True)
        number, which = distinct.shape[1], which.ravel()
        if number > _TOLD_APART:
            number, which = 1, np.zeros(len(nodes), np.int64)
        groups = [which == kind for kind in range(number)]
        parts = [(nodes.take(nodes.rows[group]), group) for group in groups]
        return [
            ("; ".join(filter(None, (self._in_words(*each, part) for each in counted))), group)
            for part, group in parts
        ]

    def _kinds(self, count: PodCount, pods: Selection, nodes: NodeView) -> IntArray:
        # An explanation describes nodes with equal numbers alike.
        counts = self._counts(count, pods)
        numbers: IntArray = counts.at(nodes).astype(np.int64)
        return numbers if count.key is None else nodes.domain_codes(counts.domains)

    def selecting(self, pod: Pod, other: Pod) -> list[PodCount]:
        """Return the counts for `pod` that include `other`."""
        return [count for count, pods in self._of(pod) if self._cluster.selects(pods, other)]

    def reads_namespaces(self) -> bool:
        """Return whether a count of the rule selects pods by labels of their namespaces."""
        return any(count.namespace_labels is not None for count in self._all)

    def in_domains_of(self, node: Node, nodes: NodeView) -> BoolArray:
        """Return bool[nodes]: True for nodes that share a domain of the rule with `node`."""
        row = self._cluster.row(node.name)
        shared: BoolArray = nodes.rows == (-1 if row is None else row)
        for key in {count.key for count in self._all if count.key is not None}:
            value = node.labels.get(key)
            if value is not None and (code := nodes.label(key).index.get(value)) is not None:
                shared |= nodes.label_codes(key) == code
        return shared

    def domains_of(self, node: Node) -> list[str | None]:
        """Return the node's domain for each count; None if the node lacks the count's label."""
        return [node.name if c.key is None else node.labels.get(c.key) for c in self._all]

    def _of(self, pod: Pod) -> Iterator[tuple[PodCount, Selection]]:
        for count in self._all:
            pods = self._selection(count, pod)
            if not isinstance(pods, Failure):
                yield count, pods

    def _counts(self, count: PodCount, pods: Selection) -> DomainCounts:
        return self._cluster.counts(pods, count.key or EACH_NODE)

    def _selection(self, count: PodCount, pod: Pod) -> Selection | Failure:
        of_namespaces = count.namespace_labels or _NO_LABELS
        values = list[str]()
        for _, step in (*count.pods.read, *of_namespaces.read):
            value = self._value(step, pod)
            if isinstance(value, Failure):
                return value
            values.append(value)
        key = (count, pod.namespace, tuple(values))
        known = self._selections.get(key)
        if known is None:
            divided = len(count.pods.read)
            part = PodSelector(
                count.pods.selector(values[:divided]),
                self._namespaces(count, pod),
                of_namespaces.selector(values[divided:]) if count.namespace_labels else None,
            )
            known = selection((part,), terminating=True)
            self._selections.put(key, known)
        return known

    def _namespaces(self, count: PodCount, pod: Pod) -> frozenset[str]:
        if count.namespaces is not None:
            return count.namespaces
        return frozenset() if count.namespace_labels is not None else frozenset((pod.namespace,))

    def _in_words(self, count: PodCount, pods: Selection, nodes: NodeView) -> str:
        counts = self._counts(count, pods)
        if count.key is None:
            numbers = counts.at(nodes)
            least, most = int(numbers.min(initial=2**31 - 1)), int(numbers.max(initial=0))
            amount = str(most) if least == most else f"{least} to {most}"
            return f"the node has {amount} of {_selector_text(pods)}" if most else ""
        codes, by_code, label = nodes.domain_codes(counts.domains), counts.by_code, count.key
        found = [
            (-int(by_code[code]), counts.domains.values[code])
            for code in np.unique(codes[by_code[codes] > 0]).tolist()
        ]
        label = label.rpartition("/")[2]
        named = [f"{label} {value} has {-number}" for number, value in sorted(found)[:_NAMED]]
        if len(found) > _NAMED:
            named.append(f"{len(found) - _NAMED} more have some")
        return f"{', '.join(named)} of {_selector_text(pods)}" if named else ""


_NO_LABELS: Final = SelectedLabels(LabelSelector())


def _memory(key: _Key, pods: Selection) -> int:
    _, namespace, values = key
    return 400 + len(namespace) + 4 * sum(map(len, values)) + pods.memory


def _selector_text(pods: Selection) -> str:
    selector = pods.parts[0].selector
    shown = [requirement.text for requirement in selector.requirements] if selector else []
    return ",".join(shown) or "all pods"
