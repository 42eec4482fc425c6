"""Arguments of the plugin GangScheduling."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal

from pydantic import Field

from mooring.groups.model.pod_group import SIGS_LABEL, GroupFormat, GroupSource
from mooring.groups.model.task_groups import APPLICATION_KEYS
from mooring.policy.durations import Duration
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.reading import PolicyModel

PodGroupPreset = Literal["Coscheduling", "Koordinator", "Volcano", "KAI", "YuniKorn", "Grove"]
"""A scheduler with its own labels and annotations for groups."""


class PodGroupLabel(PolicyModel):
    """A label or annotation by which pods of this site name their group."""

    name: QualifiedName
    """The label or annotation whose value is the name of the group."""
    minimum: QualifiedName | None = None
    """The label or annotation whose value is the group's minimum; without it, the minimum is 1."""


_PRESETS: Final[Mapping[PodGroupPreset, tuple[GroupFormat, ...]]] = {
    "Coscheduling": (GroupFormat(f"{SIGS_LABEL}/name", f"{SIGS_LABEL}/min-available"),),
    "Koordinator": (
        GroupFormat(SIGS_LABEL, source=GroupSource.COSCHEDULING),
        GroupFormat(
            "gang.scheduling.koordinator.sh/name",
            "gang.scheduling.koordinator.sh/min-available",
            queue_keys=("quota.scheduling.koordinator.sh/name",),
        ),
    ),
    "Volcano": tuple(
        GroupFormat(
            name,
            "scheduling.volcano.sh/group-min-member",
            GroupSource.VOLCANO,
            queue_keys=("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
        )
        for name in ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
    ),
    "KAI": (
        GroupFormat(
            "pod-group-name",
            source=GroupSource.KAI,
            expected_key="kai.scheduler/queue",
            queue_keys=("kai.scheduler/queue",),
        ),
    ),
    "YuniKorn": tuple(GroupFormat(key, source=GroupSource.YUNIKORN) for key in APPLICATION_KEYS),
    "Grove": (GroupFormat("grove.io/podgang", source=GroupSource.GROVE),),
}


class GangSchedulingArgs(PolicyModel):
    """Arguments: which labels name groups, and when a waiting group gets reserved nodes."""

    pod_group_labels: tuple[PodGroupLabel, ...] = Field((), max_length=16)
    """Labels and annotations that name a pod's group; the first one that the pod has is used."""
    pod_group_presets: tuple[PodGroupPreset, ...] = Field((), max_length=len(_PRESETS))
    """Schedulers whose labels and annotations are read too, after `pod_group_labels`."""
    reserve_after: Duration = timedelta()
    """How long a group waits before it gets reserved nodes, and how long it keeps them; `0` turns
    reservations off."""
    reserved_nodes_percent: int = Field(25, ge=1, le=100)
    """The largest share of the nodes that may be reserved; one node may always be reserved."""
    delete_bound_members: bool = False
    """If some members of a gang cannot be bound, delete the members that were bound with them.

    So no part of a gang keeps its nodes. No member is deleted if a member has no controller to
    create it again.
    """

    @property
    def formats(self) -> tuple[GroupFormat, ...]:
        """The labels and annotations that name groups, in the order of their use."""
        own = (GroupFormat(label.name, label.minimum) for label in self.pod_group_labels)
        return (*own, *(form for preset in self.pod_group_presets for form in _PRESETS[preset]))
