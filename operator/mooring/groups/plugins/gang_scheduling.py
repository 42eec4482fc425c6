"""Keeps members of a gang out of the scheduling queue until enough members exist (gangscheduling/).

A profile with this plugin also places the members of a group together.
"""

from itertools import product
from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.placements import GroupPolicy
from mooring.framework.verdicts import Unschedulable, shortened
from mooring.groups.model.pod_group import PodGroup
from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.groups.state.pod_groups import GROUP_KINDS
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView


class GangScheduling:
    """Gates the members of a gang until the gang's minimum of members exists."""

    name: ClassVar[str] = "GangScheduling"
    depends_on_node_only: ClassVar[bool] = False
    Args: ClassVar[type[GangSchedulingArgs]] = GangSchedulingArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.UNSCHEDULED_POD, Action.ADD),
            (Kind.POD, Action.ADD),
            (Kind.POD, Action.DELETE),
            *product(GROUP_KINDS, (Action.ADD, Action.UPDATE)),
        }
    )

    def __init__(self, args: GangSchedulingArgs, handle: Handle) -> None:
        self._cluster = handle.cluster
        self.pod_group_formats = args.formats
        self.group_policy = GroupPolicy(
            args.reserve_after.total_seconds() or None,
            args.reserved_nodes_percent,
            args.delete_bound_members,
        )

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """Return why the pod may not enter the queue, or None.

        A pod of a group waits while members are missing or gated, or while the group's object is
        missing or invalid.
        """
        group = self._cluster.pod_groups.of(pod)
        if group is None:
            return None
        reason = group.incomplete
        return Unschedulable(shortened(reason, 1024)) if reason is not None else None

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if another member of the pod's group, or the group's object, has changed."""
        key, about = cluster.pod_groups.key_of(pod), event.after or event.before
        if isinstance(about, PodGroup):
            return queue_if(about.key == key)
        return queue_if(isinstance(about, Pod) and cluster.pod_groups.key_of(about) == key)
