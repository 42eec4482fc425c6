"""What a SchedulingProfile's status says, for the CRD's schema and for whoever writes it."""

from typing import Any, Literal

from pydantic import Field

from mooring.policy.defaults import PERCENTAGE_OF_NODES_TO_SCORE
from mooring.policy.points import Point
from mooring.policy.reading import PolicyModel

__all__ = ["Condition", "EffectivePolicy", "PluginInForce", "SchedulingProfileStatus"]


class Condition(PolicyModel):
    """A metav1.Condition."""

    type: str = Field(max_length=316)
    """`Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: int = Field(0, ge=0)
    """The generation of the spec this was said about."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When `status` last changed."""
    reason: str = Field(max_length=1024)
    """InForce, Invalid or PluginFailed."""
    message: str = Field(max_length=32768)
    """For people: every mistake with the path of its field."""


class PluginInForce(PolicyModel):
    """A plugin at an extension point."""

    name: str
    """The plugin's name."""
    weight: int | None = None
    """What multiplies its scores, at score only."""


class EffectivePolicy(PolicyModel):
    """The policy in force, defaults included."""

    scheduler_names: tuple[str, ...] = ()
    """The values of a pod's `schedulerName` the profile answers to."""
    percentage_of_nodes_to_score: int = PERCENTAGE_OF_NODES_TO_SCORE
    """The share of the nodes that is looked at; 0: less the larger the cluster."""
    plugins: dict[Point, tuple[PluginInForce, ...]] = Field({})
    """The plugins of each extension point, in the order they run."""


class SchedulingProfileStatus(PolicyModel):
    """What became of the spec."""

    observed_generation: int = Field(0, ge=0)
    """The generation of the spec that was last looked at."""
    in_force_generation: int = Field(0, ge=0)
    """The generation in force: the last good one where the newest is invalid; 0: none."""
    conditions: tuple[Condition, ...] = Field(
        (),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """`Ready` is True while the newest spec is in force."""
    effective: EffectivePolicy | None = None
    """The policy in force, defaults included."""
    in_force_spec: dict[str, Any] | None = Field(
        None, json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    """The spec in force, from which a restarted scheduler goes on where the newest is invalid."""
