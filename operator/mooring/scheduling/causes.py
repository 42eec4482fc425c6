"""Finds the cause of an unschedulable pod; all reports about waiting pods show it.

If a PreFilter plugin rejects the pod for all nodes, its reason is the cause. Otherwise the cause is
the most frequent reason of the nodes that are nearest to fitting. Nodes that offer nothing of a
requested resource are left out. The first of these rules that tells two nodes apart decides which
node is nearer:

- Evicting pods may help on the nearer node.
- The nearer node passes more filters.
- The nearer node has fewer reasons.

If the plugin reads a label, topologyKey or StorageClass that does not exist, the cause says so.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final

import numpy as np

from mooring.framework.diagnosis import EXTENDER, Diagnosis, RejectedNodes
from mooring.framework.verdicts import Explanation, shortened
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.model.selectors import Requirement
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.volumes.model.pod_volumes import ClaimVolume

_MOST_ROWS: Final = 64
"""At most this many of the nodes that one plugin rejects are compared; they are evenly spread."""
_MOST_LOOKED_UP: Final = 32
"""The most required node labels of a pod that are checked; also the most topologyKeys, the most
volume claims, and the most requested resources."""


def _some(number: int) -> IntArray:
    if number <= _MOST_ROWS:
        return np.arange(number)
    return np.linspace(0, number - 1, _MOST_ROWS).astype(np.int64)


def cause_of(pod: Pod, diagnosis: Diagnosis, cluster: ClusterView) -> str:
    """Return why the pod has no node; see the top of this module."""
    plugin, text = _nearest(pod, diagnosis, cluster)
    missing = _MISSING.get(plugin)
    return next(missing(pod, cluster), text) if missing is not None else text


def _nearest(pod: Pod, diagnosis: Diagnosis, cluster: ClusterView) -> tuple[str, str]:
    """Return the plugin whose rejected nodes come nearest to a fit, and its reasons."""
    if diagnosis.pre_filter is not None or not diagnosis.rejected:
        plugin = min(diagnosis.pre_filter_plugins, default="")
        return plugin, diagnosis.pre_filter or diagnosis.message
    groups = diagnosis.rejected[::-1]  # they are in the order of the filters
    if len(groups) == 1 and len(groups[0].explanation.reasons) == 1:
        return groups[0].plugin, groups[0].explanation.reasons[0]
    if groups[0].plugin == EXTENDER:  # these nodes pass all filters
        return EXTENDER, _reasons(groups[0], _some(len(groups[0].rows)))
    for resolvable in (True, False):
        for group in groups:
            at = np.flatnonzero(group.explanation.resolvable == resolvable)
            near = _near(pod, cluster, group.rows, at[_some(len(at))])
            if len(near):
                return group.plugin, _reasons(group, near)
    return groups[0].plugin, _reasons(groups[0], _some(len(groups[0].rows)))


def _near(pod: Pod, cluster: ClusterView, rows: IntArray, positions: IntArray) -> IntArray:
    has = np.ones(len(positions), np.bool_)
    for resource, amount in islice(pod.spec.demand.resources.items(), _MOST_LOOKED_UP):
        if amount:
            has &= cluster.nodes.allocatable(resource)[rows[positions]] > 0
    return positions[has]


def _reasons(group: RejectedNodes, positions: IntArray) -> str:
    """Return the most frequent set of reasons among the nodes with the fewest reasons."""
    why = group.explanation
    if len(why.reasons) == 1:
        return why.reasons[0]
    bits = why.bits[positions].reshape(len(positions), -1)
    count = np.bitwise_count(bits).sum(axis=1)
    fewest = np.flatnonzero(count == count.min())
    says = [word.tobytes() for word in bits[fewest]]
    most = says.index(Counter(says).most_common(1)[0][0])
    at = positions[fewest[most : most + 1]]
    (reasons,) = Explanation(why.reasons, why.bits[at], why.resolvable[at]).reasons_by_row()
    return " and ".join(reasons)


def no_such_node(requirements: Sequence[Requirement], cluster: ClusterView) -> str:
    """Return a text about the first required label that no node has; "" if there is none."""
    nodes = cluster.nodes
    for requirement in requirements[:_MOST_LOOKED_UP]:
        wanted = requirement.operator in ("In", "Exists")
        if wanted and not (nodes.meets(requirement) & nodes.present).any():
            return f"no node has the label {shortened(requirement.text)}"
    return ""


def _missing_labels(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    required = pod.spec.required_nodes
    terms = required.terms if required is not None and len(required.terms) == 1 else ()
    for requirements in (pod.spec.node_selector.requirements, *(t.expressions for t in terms)):
        if text := no_such_node(requirements, cluster):
            yield text


def _missing_keys(
    keys_of: Callable[[PodSpec], Iterator[str]], pod: Pod, cluster: ClusterView
) -> Iterator[str]:
    for key in islice(keys_of(pod.spec), _MOST_LOOKED_UP):
        if no_such_node((Requirement(key, "Exists"),), cluster):
            yield f"no node has the topologyKey {key}"


def _missing_classes(pod: Pod, cluster: ClusterView) -> Iterator[str]:
    classes = cluster.objects(Kind.STORAGE_CLASS)
    names = (volume.claim for volume in pod.volumes if isinstance(volume, ClaimVolume))
    for name in islice(names, _MOST_LOOKED_UP):
        claim = cluster.storage.volumes.claim(f"{pod.namespace}/{name}")
        if claim is None or claim.bound or not claim.storage_class:
            continue
        if claim.storage_class not in classes:
            missing = shortened(claim.storage_class)
            yield f'StorageClass "{missing}" of an unbound claim does not exist'


_MISSING: Final[Mapping[str, Callable[[Pod, ClusterView], Iterator[str]]]] = MappingProxyType(
    {
        "NodeAffinity": _missing_labels,
        "PodTopologySpread": partial(
            _missing_keys, lambda spec: (each.topology_key for each in spec.spread if each.hard)
        ),
        "InterPodAffinity": partial(
            _missing_keys, lambda spec: (each.topology_key for each in spec.affinity.required)
        ),
        "VolumeBinding": _missing_classes,
    }
)
"""Maps a plugin's name to a function that yields a message for each missing object that the plugin
reads."""
