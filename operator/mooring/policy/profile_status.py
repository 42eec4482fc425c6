"""Models of a SchedulingProfile's status, for the CRD's schema and for code that writes it."""

from typing import Any, Final, Literal

from pydantic import Field

from mooring.policy.defaults import PERCENTAGE_OF_NODES_TO_SCORE
from mooring.policy.durations import format_duration
from mooring.policy.extender import Extender
from mooring.policy.points import Point
from mooring.policy.reading import PolicyModel

LONGEST_MESSAGE: Final = 32_768
"""The maximum number of characters of a condition's message (metav1.Condition); the rest is cut
off."""


class Condition(PolicyModel):
    """A metav1.Condition."""

    type: str = Field(max_length=316)
    """The condition's name: `Ready`, `Conflicted`, `OverBudget` or `Warning`."""
    status: Literal["True", "False", "Unknown"]
    """Ready: whether the newest spec is in force. The other conditions are True or absent."""
    observed_generation: int = Field(0, ge=0)
    """The generation of the spec that the condition describes."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """The time of the last change of `status`."""
    reason: str = Field(max_length=1024)
    """Of Ready: InForce, Shadow, Invalid or PluginFailed. Of Conflicted: SamePods. Of OverBudget:
    RulesTooExpensive. Of Warning: NotOnAnyNode, UnknownServer or SpecNotKept."""
    message: str = Field(max_length=LONGEST_MESSAGE)
    """A text for people: every mistake with the path of its field."""


class PluginInForce(PolicyModel):
    """A plugin at an extension point."""

    name: str
    """The name of the plugin, such as NodeResourcesFit."""
    weight: int | None = None
    """The factor of the plugin's scores; only at score."""


class ExtenderInForce(PolicyModel):
    """An extender without its certificates; a verb that the extender does not support is absent."""

    url_prefix: str
    """The extender's URL without user, password and query, as in messages and metrics."""
    filter_verb: str | None = None
    """The path below `urlPrefix` for calls that filter nodes."""
    prioritize_verb: str | None = None
    """The path below `urlPrefix` for calls that score nodes."""
    weight: int | None = None
    """The factor of the extender's scores; only with `prioritizeVerb`."""
    preempt_verb: str | None = None
    """The path below `urlPrefix` for calls that check the victims of a preemption."""
    bind_verb: str | None = None
    """The path below `urlPrefix` for calls that bind a pod."""
    http_timeout: str
    """The time limit of one call, as a Go duration like 5s."""
    node_cache_capable: bool = False
    """The extender gets node names instead of node objects."""
    ignorable: bool = False
    """Pods are scheduled without the extender if it fails."""
    managed_resources: tuple[str, ...] = ()
    """Only pods that request one of these resources are sent to the extender; if empty, every pod
    is."""

    @classmethod
    def of(cls, extender: Extender) -> "ExtenderInForce":
        """Return the extender as the status shows it."""
        return cls(
            url_prefix=extender.name,
            filter_verb=extender.filter_verb or None,
            prioritize_verb=extender.prioritize_verb or None,
            weight=extender.weight if extender.prioritize_verb else None,
            preempt_verb=extender.preempt_verb or None,
            bind_verb=extender.bind_verb or None,
            http_timeout=format_duration(extender.timeout),
            node_cache_capable=extender.node_cache_capable,
            ignorable=extender.ignorable,
            managed_resources=tuple(resource.name for resource in extender.managed_resources),
        )


class EffectivePolicy(PolicyModel):
    """The profile in force, with all defaults."""

    scheduler_names: tuple[str, ...] = ()
    """The values of a pod's `schedulerName` that the profile applies to."""
    kubernetes_version: str | None = None
    """The minor version of Kubernetes whose kube-scheduler Mooring follows."""
    percentage_of_nodes_to_score: int = PERCENTAGE_OF_NODES_TO_SCORE
    """The percentage of feasible nodes that ends the search; 0: kube-scheduler's adaptive rule."""
    plugins: dict[Point, tuple[PluginInForce, ...]] = Field({})
    """The plugins of each extension point, in the order they run."""
    extenders: tuple[ExtenderInForce, ...] | None = None
    """The extenders in the order they are called; absent if there are none."""


COMPARED: Final = ("same", "tied", "different", "rejected", "unschedulable")
"""The results of comparisons. same: both schedulers chose the same node. tied: the profile gives
both nodes equal scores. different: the profile's node has a higher score. rejected: a plugin of the
profile rejects the pod's node. unschedulable: the profile finds no node."""


class ShadowStatus(PolicyModel):
    """The results of comparisons with the other scheduler since the profile is in force.

    A restarted scheduler counts from zero.
    """

    since: str = Field(json_schema_extra={"format": "date-time"})
    """The time at which the comparisons began."""
    compared: int = Field(0, ge=0)
    """Pods that the other scheduler bound and that were compared."""
    same: int = Field(0, ge=0)
    """Pods for which this profile chose the same node."""
    tied: int = Field(0, ge=0)
    """Pods for which this profile chose another node of equal score."""
    different: int = Field(0, ge=0)
    """Pods for which this profile chose a node of higher score."""
    rejected: int = Field(0, ge=0)
    """Pods whose node this profile rejects."""
    unschedulable: int = Field(0, ge=0)
    """Pods for which this profile found no node."""
    not_compared: int = Field(0, ge=0)
    """Pods that were not compared, because too many came or a plugin failed."""
    bound_utilization_percent: int = Field(0, ge=0, le=100)
    """The mean utilization, in percent, of the nodes that pods were bound to; each pod counts on
    its node."""
    shadow_utilization_percent: int = Field(0, ge=0, le=100)
    """The mean utilization, in percent, of the nodes that this profile chose; each pod counts on
    its node."""
    bound_balance_percent: int = Field(0, ge=0, le=100)
    """How evenly cpu and memory are used on the nodes that pods were bound to, on average; 100:
    evenly."""
    shadow_balance_percent: int = Field(0, ge=0, le=100)
    """How evenly cpu and memory are used on the nodes that this profile chose, on average; 100:
    evenly."""


class PlannedMove(PolicyModel):
    """A move of the last plan."""

    pod: str
    """The pod that moves, as NAMESPACE/NAME."""
    from_: str = Field(alias="from")
    """The node that the pod leaves."""
    to: str
    """The node on which the replacement should run."""
    goal: str
    """The goal of the move: Violations, Spread, Pack or MakeRoom."""
    reason: str
    """A sentence about the gain of the move."""


class RefusedMoves(PolicyModel):
    """Pods that would gain by a move but may not be moved."""

    reason: str
    """Why the pods may not be moved."""
    count: int = Field(ge=0)
    """The number of pods that may not be moved for this reason."""


class MoveBegun(PolicyModel):
    """A move whose pod is about to be evicted, or whose replacement is not ready yet."""

    pod: str
    """The pod that moves, as NAMESPACE/NAME."""
    uid: str
    """The uid of the pod that moves."""
    owner: str
    """The uid of the pod's controller."""
    to: str
    """The node on which the replacement should run."""
    time: str = Field(json_schema_extra={"format": "date-time"})
    """When the move began."""


class MoveEnded(PolicyModel):
    """A move that evicted its pod and no longer waits for the replacement."""

    pod: str
    """Namespace and name of the pod that was evicted."""
    uid: str
    """The uid of the replacement if the result is moved, else of the controller. The replacement,
    or all pods of the controller, are not moved for a time."""
    from_: str = Field(alias="from")
    """The node that the pod left."""
    to: str
    """The node on which the replacement should have run."""
    result: str
    """How the move ended: moved, elsewhere, late or gone."""
    time: str = Field(json_schema_extra={"format": "date-time"})
    """When the move ended."""


class RebalancingStatus(PolicyModel):
    """The last plan, and the state of its moves."""

    observed_time: str = Field(json_schema_extra={"format": "date-time"})
    """The time at which Mooring computed this status."""
    planned_time: str | None = Field(None, json_schema_extra={"format": "date-time"})
    """When the last plan was made."""
    planned: int = Field(0, ge=0)
    """The number of moves in the last plan."""
    plan: tuple[PlannedMove, ...] = ()
    """The first ten moves of the last plan."""
    done: int = Field(0, ge=0)
    """The number of moves that ended with a ready replacement on the target, since the profile has
    the section `rebalancing`."""
    refused: tuple[RefusedMoves, ...] = ()
    """How many pods would gain by a move but may not be moved, for each reason."""
    message: str = Field("", max_length=1024)
    """What Mooring is doing, or why the last plan ended early."""
    evicted_in_last_hour: int = Field(0, ge=0)
    """The number of pods that were evicted in the hour before `observedTime`."""
    under_way: tuple[MoveBegun, ...] = ()
    """The moves that have begun but not ended. A new leader waits for their replacements too."""
    last_moves: tuple[MoveEnded, ...] = ()
    """The last 50 ended moves. A new leader does not move their replacements again, either."""


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
    conflict: str | None = Field(None, max_length=1024)
    """`outranked by NAME` if the profile NAME takes pods that this profile may match too, `outranks
    NAME` if this profile takes them; absent without a conflict. The condition Conflicted says
    more."""
    effective: EffectivePolicy | None = None
    """The profile in force, with all defaults."""
    shadow: ShadowStatus | None = None
    """For a profile in mode Shadow: the results of comparisons with the other scheduler."""
    rebalancing: RebalancingStatus | None = None
    """For a profile with `rebalancing`: the last plan, and the state of its moves."""
    in_force_spec: dict[str, Any] | None = Field(
        None, json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    """The spec in force, which a restarted scheduler uses if the newest spec is invalid. It is
    absent if it has more than 512 KiB."""
