"""The section `rebalancing` of a profile: which of its running pods may be moved, why and when."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from mooring.policy.label_selectors import LabelSelector
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel

_INT32: Final = 2**31 - 1
_TIME_PATTERN: Final = "^([01][0-9]|2[0-3]):[0-5][0-9]$"

TimeOfDay = Annotated[str, Field(pattern=_TIME_PATTERN)]
Weekday = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


class Goal(StrEnum):
    """What a move is for."""

    VIOLATIONS = "Violations"
    """The pod's node does not meet what the pod or the policy requires by now."""
    SPREAD = "Spread"
    """Another node has a higher score by the profile."""
    PACK = "Pack"
    """Nodes with little on them are emptied."""
    MAKE_ROOM = "MakeRoom"
    """Pods and pod groups that wait fit afterwards."""


class MovablePods(PolicyModel):
    """The pods that may be moved: never those without a controller, of DaemonSets, or static."""

    namespace_selector: LabelSelector | None = None
    """Labels of the pod's namespace; absent or empty selects all."""
    pod_selector: LabelSelector | None = None
    """Labels of the pod; absent or empty selects all."""
    owners: tuple[Annotated[str, Field(min_length=1, max_length=63)], ...] = Field(
        ("ReplicaSet", "StatefulSet", "ReplicationController"),
        min_length=1,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    """Kinds of the controllers whose pods may be moved. A pod of a Job begins its work anew."""
    local_storage: bool = False
    """Whether pods may be moved that lose data: with a hostPath, or an emptyDir on disk."""
    minimum_age_seconds: int = Field(300, ge=0, le=_INT32)
    """Pods that were created more recently are not moved."""
    groups: Literal["Never", "Whole"] = "Never"
    """Whether pod groups may be moved: never, or all members together, for Violations alone."""


class MoveLimits(PolicyModel):
    """How many pods are moved, and how fast. Disruption budgets hold besides."""

    moves_at_a_time: int = Field(1, ge=1, le=100)
    """Pods whose replacements are awaited at any time."""
    moves_at_a_time_per_workload: int = Field(1, ge=1, le=100)
    """The same of the pods of one controller."""
    moves_per_hour: int = Field(20, ge=1, le=_INT32)
    """Pods that are evicted within any hour."""
    moves_per_plan: int = Field(100, ge=1, le=300)
    """Moves of a plan."""
    replacement_seconds: int = Field(300, ge=10, le=86_400)
    """How long the replacement of a pod is awaited, until it is bound and ready."""
    rest_seconds: int = Field(3600, ge=0, le=_INT32)
    """For how long a pod that was moved is left alone."""


class Window(PolicyModel):
    """A time in which pods may be moved, in UTC."""

    days: tuple[Weekday, ...] = Field(
        (), max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Days on which it begins; without any, every day."""
    start: TimeOfDay
    """When it begins, such as "22:00"."""
    end: TimeOfDay
    """When it ends, on the next day if that is not after `start`."""


class Rebalancing(PolicyModel):
    """Moves of this profile's running pods to where they would be placed today."""

    mode: Literal["Plan", "Apply"] = "Plan"
    """Plan: moves are only shown. Apply: pods are evicted, one after the other, as `limits` say."""
    goals: tuple[Goal, ...] = Field(
        (Goal.VIOLATIONS,),
        min_length=1,
        max_length=4,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    """What pods are moved for. Spread and Pack exclude each other."""
    minimum_gain: int = Field(10, ge=1, le=_INT32)
    """For Spread: by how much the total score of the other node must be higher."""
    interval_seconds: int = Field(300, ge=10, le=_INT32)
    """The time between two plans."""
    pods: MovablePods = MovablePods()
    """The pods that may be moved."""
    limits: MoveLimits = MoveLimits()
    """How many pods are moved, and how fast."""
    windows: tuple[Window, ...] = Field((), max_length=16)
    """When pods may be moved; without any, always. Plans are made at any time."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for goals that undo each other."""
        if {Goal.SPREAD, Goal.PACK} <= set(self.goals):
            yield FieldError("goals", "has Spread and Pack, which undo each other: remove one")
