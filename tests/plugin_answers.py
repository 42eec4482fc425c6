"""Calls one plugin about one pod as the scheduling cycle does; results are by node name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mooring.framework.hints import QueueingHint
from mooring.framework.registry import NoArgs
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import SKIP
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.policy.reading import read
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster
from mooring.testing.fakes import handle

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The reasons why a node is rejected, and whether preemption may help."""

    reasons: tuple[str, ...]
    resolvable: bool


class PluginAnswers:
    """A plugin, built with `args` as in a profile, and the cluster about which it is asked.

    The plugin follows the rules of the Kubernetes version `kubernetes`.
    """

    def __init__(
        self, plugin: type[Any], *objects: Raw, kubernetes: str = NEWEST.version, **args: Any
    ) -> None:
        self.state: ClusterState = cluster(*objects)
        model = getattr(plugin, "Args", NoArgs)
        built_with = replace(handle(self.state), kubernetes=KUBERNETES_RULES[kubernetes])
        self._plugin = plugin(read(model, args, "args"), built_with)
        self._cluster = ClusterView(self.state)
        self._nodes = self._cluster.nodes.take(self._cluster.nodes_in_order)

    def rejections(self, raw: Raw, *, pre_filter: bool = True) -> dict[str, Rejected] | None:
        """Return the nodes that the filter rejects; None if the plugin skips the pod.

        Without `pre_filter`, the plugin's PreFilter does not run, as in a profile that disables it.
        """
        pod, state = parse_pod(raw), None
        if pre_filter and hasattr(self._plugin, "pre_filter"):
            state = self._plugin.pre_filter(pod, self._cluster)
        if state is SKIP:
            return None
        fits = self._plugin.filter(pod, self._nodes, state)
        out = self._nodes.take(self._nodes.rows[~fits])
        if not len(out):
            return {}
        why = self._plugin.explain(pod, out, state)
        return {
            out.name(i): Rejected(why.reasons_at(i), bool(why.resolvable[i]))
            for i in range(len(out))
        }

    def scores(self, raw: Raw, *feasible: str, pre_score: bool = True) -> dict[str, int] | None:
        """Return normalized scores of these nodes (default: all); None if the plugin skips the pod.

        Without `pre_score`, the plugin's PreScore does not run, as in a profile that disables it.
        """
        pod, state = parse_pod(raw), None
        rows = [self.state.nodes.row_of[name] for name in feasible]
        nodes = self._nodes.take(np.array(rows, np.int64)) if feasible else self._nodes
        if pre_score and hasattr(self._plugin, "pre_score"):
            state = self._plugin.pre_score(pod, nodes, self._cluster)
        if state is SKIP:
            return None
        scores = normalize_score(self._plugin.score(pod, nodes, state), self._plugin.normalize)
        return {nodes.name(i): score for i, score in enumerate(scores.tolist())}

    def queueing_hint(
        self, raw: Raw, *, before: Raw | None = None, after: Raw | None = None
    ) -> bool:
        """Return whether the plugin registers for the change, and its hint is QUEUE."""
        kind = Kind((before or after or {})["kind"])
        action = Action.ADD if before is None else Action.DELETE if after is None else Action.UPDATE
        was, now = (side and parse_object(kind, side) for side in (before, after))
        if (kind, action) not in self._plugin.events_to_register:
            return False
        change = ClusterEvent(kind, action, was, now)
        hint = self._plugin.queueing_hint(parse_pod(raw), change, self._cluster)
        return hint is QueueingHint.QUEUE
