"""The status of a SchedulingProfile: the models for the CRD's schema and for its writer."""

from typing import Any, Literal

from pydantic import Field

from mooring.policy.defaults import PERCENTAGE_OF_NODES_TO_SCORE
from mooring.policy.points import Point
from mooring.policy.reading import PolicyModel

__all__ = [
    "Condition",
    "EffectivePolicy",
    "PluginInForce",
    "SchedulingProfileStatus",
    "ShadowStatus",
]


class Condition(PolicyModel):
    """A metav1.Condition."""

    type: str = Field(max_length=316)
    """`Ready` or `Conflicted`."""
    status: Literal["True", "False", "Unknown"]
    """Ready: whether the newest spec is in force. Conflicted: True, else it is absent."""
    observed_generation: int = Field(0, ge=0)
    """The generation of the spec that the condition describes."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """The time of the last change of `status`."""
    reason: str = Field(max_length=1024)
    """Of Ready: InForce, Shadow, Invalid or PluginFailed. Of Conflicted: SamePods."""
    message: str = Field(max_length=32768)
    """A text for people: every mistake with the path of its field."""


class PluginInForce(PolicyModel):
    """A plugin at an extension point."""

    name: str
    """The plugin's name."""
    weight: int | None = None
    """The factor of its scores, at score only."""


class EffectivePolicy(PolicyModel):
    """The profile in force, with all defaults."""

    scheduler_names: tuple[str, ...] = ()
    """The values of a pod's `schedulerName` that the profile applies to."""
    percentage_of_nodes_to_score: int = PERCENTAGE_OF_NODES_TO_SCORE
    """The share of feasible nodes that ends the search; 0: kube-scheduler's adaptive rule."""
    plugins: dict[Point, tuple[PluginInForce, ...]] = Field({})
    """The plugins of each extension point, in the order they run."""


class ShadowStatus(PolicyModel):
    """What comparisons with the other scheduler have shown since the profile is in force.

    A restarted scheduler begins anew.
    """

    since: str = Field(json_schema_extra={"format": "date-time"})
    """When the comparisons began."""
    compared: int = Field(0, ge=0)
    """Pods that the other scheduler bound and that were compared."""
    same: int = Field(0, ge=0)
    """Pods for which this profile chose the same node."""
    tied: int = Field(0, ge=0)
    """Pods for which it chose a node of equal score."""
    different: int = Field(0, ge=0)
    """Pods for which it chose a node of higher score."""
    rejected: int = Field(0, ge=0)
    """Pods whose node it rejects."""
    unschedulable: int = Field(0, ge=0)
    """Pods for which it found no node."""
    not_compared: int = Field(0, ge=0)
    """Pods that came too fast, or about which a plugin failed."""
    bound_utilization_percent: int = Field(0, ge=0, le=100)
    """The mean utilization of the nodes that pods were bound to, with the pod."""
    shadow_utilization_percent: int = Field(0, ge=0, le=100)
    """The same of the nodes that this profile chose."""
    bound_balance_percent: int = Field(0, ge=0, le=100)
    """How evenly cpu and memory of the nodes that pods were bound to are used; 100: evenly."""
    shadow_balance_percent: int = Field(0, ge=0, le=100)
    """The same of the nodes that this profile chose."""


class SchedulingProfileStatus(PolicyModel):
    """The result of reading the spec."""

    observed_generation: int = Field(0, ge=0)
    """The generation of the spec that was read last."""
    in_force_generation: int = Field(0, ge=0)
    """The generation in force: if the newest spec is invalid, the last valid one; 0: none."""
    conditions: tuple[Condition, ...] = Field(
        (),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """`Ready` is True while the newest spec is in force."""
    effective: EffectivePolicy | None = None
    """The profile in force, with all defaults."""
    shadow: ShadowStatus | None = None
    """For a profile with mode Shadow: how its choices differ."""
    in_force_spec: dict[str, Any] | None = Field(
        None, json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    """The spec in force. A restarted scheduler uses it if the newest spec is invalid."""
