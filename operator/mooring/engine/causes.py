"""The cause of an unschedulable pod, which everybody shows who says why a pod waits.

The cause is what has to change on the nodes that come nearest to fitting, however few these are:

1. A PreFilter plugin that rejects the pod for all nodes gives the cause.
2. Otherwise nodes are compared. The first of these differences decides which is nearer:
   a node that passes all filters (only nominated pods, a reservation or an extender reject it);
   a node that has some of each resource that the pod requests;
   a node that fewer filters reject;
   a node where evicting pods may help;
   a node that rejects the requests of the pod, and not where it may run;
   a node that passes more filters before one rejects it;
   a node with fewer reasons.
   The cause is all reasons of the nearest node; of equally near ones, what most of them say.
3. If the pod names a label, a topologyKey or a StorageClass that does not exist, and the plugin
   that gave the cause reads it, the cause says so.

`with_distances` finds how near nodes are when a pod is diagnosed, `Diagnosis.nearest` compares
them, and `cause_of` returns the text.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.runtime import run_filter, run_resource_requests
from mooring.framework.verdicts import shortened
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.selectors import Requirement
from mooring.model.volumes import ClaimVolume
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

__all__ = ["cause_of", "no_such_node", "with_distances"]

_MOST_ROWS: Final = 64
"""Nodes of one plugin that are compared."""
_MOST_LOOKED_UP: Final = 32
"""Labels, keys, claims and resources of a pod that are looked up; tenants may name thousands."""


def with_distances(
    groups: Sequence[RejectedNodes],
    pod: Pod,
    pipeline: Pipeline,
    cluster: ClusterView,
    states: Mapping[str, Any],
) -> list[RejectedNodes]:
    """Return the groups of rejected nodes, each with its nearest node and how far that is.

    Filters that have rejected other nodes run on some nodes that earlier filters rejected; `states`
    are theirs, by their names.
    """
    distances = _Distances(groups, pod, pipeline, cluster, states)
    return [distances.of(stage) for stage in range(len(groups))]


@dataclass(frozen=True, slots=True, eq=False)
class _Distances:
    """Compares nodes that filters rejected."""

    groups: Sequence[RejectedNodes]
    pod: Pod
    pipeline: Pipeline
    cluster: ClusterView
    states: Mapping[str, Any]

    def of(self, stage: int) -> RejectedNodes:
        """Return one of the groups with its nearest node."""
        group = self.groups[stage]
        positions = _some(len(group.rows))
        rows, why = group.rows[positions], group.explanation
        by_requests = group.plugin in self.pipeline.resource_filters
        none = np.zeros(len(rows), np.int64)
        bits = why.bits[positions].reshape(len(rows), -1)
        differences = (
            self._lacks_all(group.plugin, rows) if by_requests else none,
            sum(self._others(stage, rows), none),
            (~why.resolvable[positions]).astype(np.int64),
            none + (not by_requests),
            none - stage,
            np.bitwise_count(bits).sum(axis=1, dtype=np.int64),
        )
        first = np.lexsort(differences[::-1])[0]
        distance = tuple(int(difference[first]) for difference in differences)
        equal = np.all([difference == difference[first] for difference in differences], axis=0)
        says = [word.tobytes() for word in bits[equal]]
        most = says.index(Counter(says).most_common(1)[0][0])
        return replace(group, nearest=int(positions[equal][most]), distance=distance)

    def _others(self, stage: int, rows: IntArray) -> Iterator[BoolArray]:
        """Yield for each other filter that rejected nodes which of the rows (bool) it rejects."""
        for number, other in enumerate(self.groups):
            if self.pipeline.always_check_all_filters and number != stage:
                yield np.isin(rows, other.rows)
            elif number > stage:
                yield self._rejects(other.plugin, rows)

    def _rejects(self, name: str, rows: IntArray) -> BoolArray:
        plugin = next(plugin for plugin in self.pipeline.filters if plugin.name == name)
        nodes, state = self.cluster.nodes.take(rows), self.states.get(name)
        try:
            return ~run_filter(self.pipeline, plugin, self.pod, nodes, state)
        except PluginFailed:
            return np.ones(len(rows), np.bool_)  # a plugin needs not know what others rejected

    def _lacks_all(self, name: str, rows: IntArray) -> IntArray:
        """Return 1 for each row that has nothing of a resource that the pod requests, else 0."""
        plugin = self.pipeline.resource_filters[name]
        needs = run_resource_requests(self.pipeline, plugin, self.states.get(name))
        lacks = np.zeros(len(rows), np.bool_)
        for resource, amount in islice(needs.items(), _MOST_LOOKED_UP):
            if amount:
                lacks |= self.cluster.nodes.allocatable(resource)[rows] == 0
        return lacks.astype(np.int64)


def _some(number: int) -> IntArray:
    """Return positions of at most 64 of so many nodes, in ascending order."""
    if number <= _MOST_ROWS:
        return np.arange(number)
    return np.linspace(0, number - 1, _MOST_ROWS).astype(np.int64)


def cause_of(pod: Pod, diagnosis: Diagnosis, cluster: ClusterView) -> str:
    """Return what keeps the pod from having a node; see the rule at the top of this module."""
    plugin, text = diagnosis.nearest
    missing = _MISSING.get(plugin)
    return next(missing(pod, cluster), text) if missing is not None else text


def no_such_node(requirements: Sequence[Requirement], cluster: ClusterView) -> str:
    """Return which label that a node must have no node has; "" if there is no such label."""
    nodes = cluster.nodes
    for requirement in requirements[:_MOST_LOOKED_UP]:
        wanted = requirement.operator in ("In", "Exists")
        if wanted and not (nodes.meets(requirement) & nodes.present).any():
            return f"no node has the label {shortened(requirement.text)}"
    return ""


def _missing_labels(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    """Yield labels that the pod selects nodes by and no node has."""
    required = pod.spec.required_nodes
    terms = required.terms if required is not None and len(required.terms) == 1 else ()
    for requirements in (pod.spec.node_selector.requirements, *(t.expressions for t in terms)):
        if text := no_such_node(requirements, cluster):
            yield text


def _missing_spread_keys(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    keys = (constraint.topology_key for constraint in pod.spec.spread if constraint.hard)
    return _missing_keys(keys, cluster)


def _missing_affinity_keys(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    return _missing_keys((term.topology_key for term in pod.spec.affinity.required), cluster)


def _missing_keys(keys: Iterator[str], cluster: ClusterView) -> Iterator[str]:
    """Yield keys that no node has as a label."""
    for key in islice(keys, _MOST_LOOKED_UP):
        if no_such_node((Requirement(key, "Exists"),), cluster):
            yield f"no node has the topologyKey {key}"


def _missing_classes(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    """Yield StorageClasses that unbound claims of the pod name and that do not exist."""
    classes = cluster.objects(Kind.STORAGE_CLASS)
    names = (volume.claim for volume in pod.volumes if isinstance(volume, ClaimVolume))
    for name in islice(names, _MOST_LOOKED_UP):
        claim = cluster.storage.claim(f"{pod.namespace}/{name}")
        if claim is None or claim.bound or not claim.storage_class:
            continue
        if claim.storage_class not in classes:
            missing = shortened(claim.storage_class)
            yield f'claim {name} is not bound, and its StorageClass "{missing}" does not exist'


_MISSING: Final[Mapping[str, Callable[[Pod, ClusterView], Iterator[str]]]] = MappingProxyType(
    {
        "NodeAffinity": _missing_labels,
        "PodTopologySpread": _missing_spread_keys,
        "InterPodAffinity": _missing_affinity_keys,
        "VolumeBinding": _missing_classes,
    }
)
"""Finds what the pod names and does not exist, by the plugin that reads it."""
