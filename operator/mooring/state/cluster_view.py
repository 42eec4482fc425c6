"""The cluster as decisions and plugins read it."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any

import numpy as np

from mooring.model.demand import Demand
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.pod import Pod, Uid
from mooring.model.workloads import Service
from mooring.quota.state.queues import Queues
from mooring.state.cluster import ClusterState, Trial
from mooring.state.columns import IntArray
from mooring.state.labels import Domains
from mooring.state.pods import PlacedPod
from mooring.state.topology.domain_counts import CountArray, DomainCounts
from mooring.state.topology.equivalent_pods import Role
from mooring.state.topology.pod_selection import Selection
from mooring.state.view import NodeView, NodeViewWithNominated, NodeViewWithoutPod


class ClusterView:
    """A read-only view of the live state.

    Methods return live data, unless they say that they copy. A plugin must not keep live data after
    its call. During a decision, only the decision's own trials change the state.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes = NodeView(state.nodes)
        self.row_changes = state.nodes.changes
        """The log of rows whose node or pods have changed; read-only."""
        self.node_changes = state.nodes.node_changes
        """The log of rows whose node was added, changed or deleted; read-only."""
        self.pod_columns = state.pod_columns
        """Placed and nominated pods as columns."""
        self.nominations = state.nominations
        """Pods nominated to a node."""
        self.evictions = state.evictions
        """The evictions by this scheduler, and the disruptions that budgets still allow."""
        self.pod_groups = state.pod_groups
        """Pod groups and their members."""
        self.storage = state.storage
        """Volumes and claims, their users, and the nodes they can be attached to; read-only."""
        self.dynamic_resources = state.dynamic_resources
        """ResourceClaims, ResourceSlices, DeviceClasses, and devices in use; read-only."""

    @property
    def queues(self) -> Queues:
        """The Queues with their quotas and their use, read-only."""
        return self._state.queues

    @property
    def server_version(self) -> str:
        """The API server's version (1.37); "" until it is known."""
        return self._state.server_version

    @property
    def kubernetes(self) -> KubernetesRules:
        """The rules of the API server's version; a profile may follow another version."""
        return self._state.kubernetes

    @property
    def is_tried(self) -> bool:
        """Whether a trial is open; decisions must then not be carried out."""
        return self._state.is_tried

    @property
    def nodes(self) -> NodeView:
        """All rows of the node table, including rows without a node (see `NodeView.present`)."""
        table = self._state.nodes
        if len(self._nodes.rows) != len(table.names):
            self._nodes = NodeView(table)
        return self._nodes

    @property
    def node_count(self) -> int:
        """The number of existing nodes; rows without a node are not counted."""
        return self._state.nodes.present_count

    @property
    def node_label_keys(self) -> Collection[str]:
        """The label keys that at least one node has."""
        return self._state.nodes.label_keys

    @property
    def node_resources(self) -> frozenset[str]:
        """The resources that at least one node offers."""
        return frozenset(self._state.nodes.allocatable)

    @property
    def nodes_in_order(self) -> IntArray:
        """The rows of all existing nodes, from each zone in turn; read-only."""
        return self._state.nodes.order()

    @property
    def node_set_version(self) -> int:
        """A number that grows whenever row numbers may change: if a node is added or deleted."""
        return self._state.nodes.set_version

    @property
    def node_names(self) -> Sequence[str]:
        """The name of each row's node; a copy, which the caller may keep."""
        return tuple(self._state.nodes.names)

    def pods_on(self, row: int) -> Sequence[PlacedPod]:
        """Return a copy: the pods on the node of this row, assumed pods included, in no order."""
        return tuple(self._state.pods.on(row))

    def pods_of(self, node: str) -> Sequence[PlacedPod]:
        """Return a copy: the pods on the node of this name, assumed pods included.

        The node may be unknown.
        """
        # `pods_on` cannot separate the pods of unknown nodes: they share one row.
        return self._state.pods_of(node)

    def disrupted_with(self, row: int) -> dict[Uid, Pod]:
        """Return, by uid, the pods on the node of this row and the pods disrupted with them.

        If a group can only be disrupted as a whole, its members on other nodes are included.
        """
        groups = self.pod_groups
        found = {placed.pod.uid: placed.pod for placed in self.pods_on(row)}
        if groups.disrupted_whole:
            of_pods = {group.key: group for pod in found.values() if (group := groups.of(pod))}
            for group in groups.disrupted_whole:
                if group.key in of_pods:
                    found |= {placed.pod.uid: placed.pod for placed in group.on_nodes}
        return found

    def row(self, node: str) -> int | None:
        """Return the row of the node of this name; None if there is no such node."""
        return self._state.nodes.row_of.get(node)

    def rows(self, nodes: Iterable[str]) -> IntArray:
        """Return the rows (int64) of the nodes of these names; -1 for an unknown name."""
        return np.array([*map(self._state.nodes.row_of.get, nodes, repeat(-1))], np.int64)

    def nodes_with_nominated(
        self, rows: IntArray, resources: Iterable[str], pod: Pod, ends: float = math.inf
    ) -> NodeView:
        """Return a view of these rows as if nominated pods were already on their nodes.

        Only pods for which `pod` must leave room are added, with their requests of `resources`.
        `pod` will have ended at `ends` (seconds since the epoch).
        """
        table, columns = self._state.nodes, self._state.pod_columns
        more_pods, more_requested = columns.nominated_demand(
            resources, pod.spec.priority, pod.uid, table.row_count, ends
        )
        return NodeViewWithNominated(table, rows, more_pods, more_requested)

    def nodes_without_pod(self, rows: IntArray, demand: Demand) -> NodeView:
        """Return a view of these nodes, as if one pod with this demand had left each of them."""
        return NodeViewWithoutPod(self._state.nodes, rows, demand)

    def node(self, row: int) -> Node | None:
        """Return the node of a row; None if the row has no node."""
        return self._state.nodes.nodes[row]

    def fits_requests(self, row: int, amounts: Mapping[str, int]) -> bool:
        """Return whether the row's node has a free pod slot and these free amounts by resource."""
        return self._state.nodes.fits_requests(row, amounts)

    def trial(self, *, frees_claims: bool = False) -> AbstractContextManager[Trial]:
        """Begin a dry run; the end of the context undoes all changes.

        With `frees_claims`, removing a pod also frees its claims' devices if no other pod uses the
        claims.
        """
        return self._state.trial(frees_claims=frees_claims)

    def pod(self, uid: Uid) -> PlacedPod | None:
        """Return the placed pod of this uid; None if it is on no node."""
        return self._state.pods.get(uid)

    def pod_named(self, key: str) -> PlacedPod | None:
        """Return the newest placed pod of this namespace/name, or None; for messages only."""
        return self._state.pods.named(key)

    def is_placed(self, pod: Pod) -> bool:
        """Return whether the pod, bound or only assumed, is on a node."""
        return self.pod(pod.uid) is not None

    def objects(self, kind: Kind) -> Mapping[str, Any]:
        """Return the mirrored objects of a kind by name, or by namespace/name."""
        return self._state.objects.of(kind)

    def object_changes(self, kind: Kind) -> int:
        """Return a number that grows when an object of the kind is added, changed or deleted."""
        return self._state.objects.changes[kind]

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; {} if it is unknown."""
        return self._state.objects.namespace_labels(name)

    def known_namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it is unknown."""
        return self._state.objects.known_namespace_labels(name)

    def counts(self, pods: Selection, key: str) -> DomainCounts:
        """Count the selected placed pods per value of a node label, or per node (EACH_NODE).

        Assumed pods are counted, and terminating pods if the selection includes them.
        """
        return self._state.topology.counts(pods, key)

    def is_counted(self, pods: Selection, key: str) -> bool:
        """Return whether `counts` can answer at once, without counting pods."""
        return self._state.topology.is_counted(pods, key)

    def count_some(self, pods: Selection, key: str) -> int:
        """Examine some EquivalentPods for a later call of `counts`; return their number."""
        return self._state.topology.count_some(pods, key)

    def owners(self, role: Role, pod: Pod) -> Mapping[Domains, IntArray | CountArray]:
        """Sum the weights of placed pods' inter-pod terms that select `pod`, for each node label.

        Each array has a sum for each code of the label's values, and a last item 0 for nodes
        without the label. Required terms weigh 1.
        """
        return self._state.topology.owners(role, pod)

    def selects(self, pods: Selection, pod: Pod) -> bool:
        """Return whether the selection includes the pod; the pod need not be placed."""
        return self._state.topology.selects(pods, pod)

    def default_selector(self, pod: Pod) -> Selection | None:
        """Return the pods of the pod's Services and controller, as `DefaultSelectors.of` does."""
        return self._state.default_selector.of(pod)

    def behind_services(self, pod: Pod) -> Selection | None:
        """Return the pods that match all Services of `pod`; None if `pod` has no Service."""
        return self._state.default_selector.behind_services(pod)

    def services(self, pod: Pod) -> tuple[Service, ...]:
        """Return the Services that select the pod, sorted by name."""
        return self._state.default_selector.services(pod)
