"""The argument of `post_filter`, and its results."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mooring.framework.diagnosis import Diagnosis
from mooring.framework.verdicts import Unschedulable
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.policy.profile import Preemption
from mooring.state.cluster import Trial
from mooring.state.cluster_view import ClusterView

__all__ = [
    "Candidates",
    "DryRun",
    "GroupNomination",
    "GroupPreemption",
    "Nomination",
    "NotEligible",
    "PodGroupPostFilterState",
    "PostFilterResult",
    "PostFilterState",
    "PreemptionCandidate",
    "ProcessedCandidates",
]


class DryRun(Protocol):
    """Runs the pod's filters on a cluster with pods added or removed (DryRunPreemption)."""

    @property
    def resource_requests(self) -> Mapping[str, int] | None:
        """The amounts that must be free on a node if no other filter depends on other pods.

        Then a node fits after evictions exactly if these amounts and a slot are free, and no trial
        is needed. None: other filters of this pod (ports, affinity, volumes) depend on other pods
        too.
        """

    def trial(self) -> AbstractContextManager[Trial]:
        """Let pods be removed and added inside; at the end everything is as it was."""

    def rejection(self, row: int) -> tuple[str, ...]:
        """Return why the row rejects the pod, with nominated pods counted; () if it does not."""


@dataclass(frozen=True, slots=True, eq=False)
class PostFilterState:
    """A pod that no node fits, with the reasons.

    `limits` are the profile's settings for preemption. `now` is in seconds since the epoch. `seed`
    differs between the attempts of a pod: a search that does not look at all nodes can begin
    elsewhere each time. `unschedulable_seconds` is how long ago the pod's first attempt without a
    node ended.

    If `preempt_extenders` is true, extenders take part in the preemption: a plugin that supports it
    first returns Candidates, and runs again with `processed`, the extenders' answer.
    """

    pod: Pod
    diagnosis: Diagnosis
    cluster: ClusterView
    dry_run: DryRun
    limits: Preemption
    now: float
    seed: int = 0
    preempt_extenders: bool = False
    processed: "ProcessedCandidates | None" = None
    unschedulable_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Nomination:
    """The pod fits on `node` once the victims are gone (NominatingInfo in kube-scheduler).

    If `strict`, they are evicted through the Eviction API only, which enforces disruption budgets.
    `message` is added to the nodes' reasons in the pod's condition. `violations` is the number of
    victims whose eviction violates a disruption budget.
    """

    node: str
    victims: tuple[Pod, ...]
    strict: bool = False
    message: str = ""
    violations: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """The pod would fit on `node` without the victims, which are the most important first.

    `violations` counts the victims whose eviction violates a disruption budget.
    """

    node: str
    victims: tuple[Pod, ...]
    violations: int


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """All candidates, for the preempt extenders; returned in place of a nomination."""

    candidates: tuple[PreemptionCandidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedCandidates:
    """The candidates that the preempt extenders left, with their victims.

    `error` is the failure of an extender that is not ignorable; then there are no candidates.
    """

    candidates: tuple[PreemptionCandidate, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NotEligible:
    """The pod is not eligible to preempt now (PodEligibleToPreemptOthers).

    A nomination that the pod already has stays, unlike after Unschedulable. If it is an error, no
    further plugin runs, and the reasons of those before are not reported (RunPostFilterPlugins).
    """

    reason: str
    is_error: bool = False


PostFilterResult: TypeAlias = Nomination | Candidates | Unschedulable | NotEligible
"""What `post_filter` returns."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupNomination:
    """The members fit on these nodes (by uid) once the victims, of any nodes, are gone.

    `violations` counts the victims whose eviction violates a disruption budget.
    """

    nodes: Mapping[Uid, str]
    victims: tuple[Pod, ...]
    strict: bool = False
    violations: int = 0


GroupPreemption: TypeAlias = GroupNomination | Unschedulable | NotEligible
"""What `pod_group_post_filter` returns."""


@dataclass(frozen=True, slots=True, eq=False)
class PodGroupPostFilterState:
    """A pod group that fits nowhere; the argument of `pod_group_post_filter`.

    `members` are those that the group needs to have its minimum. `unschedulable_seconds` is how
    long ago the first attempt of a member without a node ended. `place` returns the row of each by
    uid, as if the given pods had left their nodes, or None if they do not all fit then. How much
    these searches may cost in all is bounded; `is_last` says whether only one more is sure to be
    made.
    """

    group: PodGroupState
    members: tuple[Pod, ...]
    cluster: ClusterView
    place: Callable[[Collection[Pod]], Mapping[Uid, int] | None]
    is_last: Callable[[], bool]
    limits: Preemption
    now: float
    unschedulable_seconds: float = 0.0
