"""The section `rebalancing` of a profile: which running pods may be moved, why and when."""

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
    """The purpose of a move."""

    VIOLATIONS = "Violations"
    """Move pods whose node no longer satisfies the pod or the policy."""
    SPREAD = "Spread"
    """Move pods to nodes with a higher score in the profile."""
    PACK = "Pack"
    """Move all pods away from nodes that have few pods."""
    MAKE_ROOM = "MakeRoom"
    """Move pods so that pending pods and pod groups fit."""


class MovablePods(PolicyModel):
    """Which pods may be moved.

    Static pods, pods of DaemonSets and pods without a controller never are.
    """

    namespace_selector: LabelSelector | None = None
    """Labels of the pod's namespace; an absent or empty selector matches all namespaces."""
    pod_selector: LabelSelector | None = None
    """Labels of the pod; an absent or empty selector matches all pods."""
    owners: tuple[Annotated[str, Field(min_length=1, max_length=63)], ...] = Field(
        ("ReplicaSet", "StatefulSet", "ReplicationController"),
        min_length=1,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    """Kinds of controllers whose pods may be moved. A moved pod of a Job starts its work again."""
    local_storage: bool = False
    """Whether pods with a hostPath, or an emptyDir on disk, may be moved; they lose this data."""
    minimum_age_seconds: int = Field(300, ge=0, le=_INT32)
    """Pods that are younger than this number of seconds are not moved."""
    groups: Literal["Never", "Whole"] = "Never"
    """Never: pod groups are not moved. Whole: all members move together, only for the goal
    Violations."""


class MoveLimits(PolicyModel):
    """How many pods are moved, and how fast. Disruption budgets apply too."""

    moves_at_a_time: int = Field(1, ge=1, le=100)
    """The most moves that wait for a replacement at the same time."""
    moves_at_a_time_per_workload: int = Field(1, ge=1, le=100)
    """The most moves of pods of one controller that wait for a replacement at the same time."""
    moves_per_hour: int = Field(20, ge=1, le=_INT32)
    """The most pods that are evicted within any hour."""
    moves_per_plan: int = Field(100, ge=1, le=300)
    """The most moves of one plan; further moves wait for the next plan."""
    replacement_seconds: int = Field(300, ge=10, le=86_400)
    """The seconds to wait until the replacement is bound and ready; then the move counts as
    late."""
    rest_seconds: int = Field(3600, ge=0, le=_INT32)
    """The seconds after a move during which the pod or its replacement is not moved again."""


class Window(PolicyModel):
    """A time in which pods may be moved, in UTC."""

    days: tuple[Weekday, ...] = Field(
        (), max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Days on which the window begins; if empty, every day."""
    start: TimeOfDay
    """When the window begins, such as "22:00"."""
    end: TimeOfDay
    """When the window ends; on the next day if this is not after `start`."""


class Rebalancing(PolicyModel):
    """Moves this profile's running pods to the nodes where they would be placed today."""

    mode: Literal["Plan", "Apply"] = "Plan"
    """Plan: moves are only shown. Apply: pods are evicted one after the other, within `limits`."""
    goals: tuple[Goal, ...] = Field(
        (Goal.VIOLATIONS,),
        min_length=1,
        max_length=4,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    """The purposes of moves. Spread and Pack exclude each other."""
    minimum_gain: int = Field(10, ge=1, le=_INT32)
    """For Spread: how much higher the total score of the other node must be."""
    interval_seconds: int = Field(300, ge=10, le=_INT32)
    """The seconds between two plans."""
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
