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
        """The amounts that must be free on a node; None if free amounts alone do not decide.

        If they decide, the pod fits where these amounts and a pod slot are free.
        """

    def depends_on_requests_only(self) -> bool:
        """Return whether other pods affect the pod's filters only by their resource requests.

        Returns False if `pre_filter` of a plugin rejects the pod and evicting pods could not help.
        """

    def trial(self) -> AbstractContextManager[Trial]:
        """Return a context in which pods can be removed and added; its exit undoes this."""

    def rejection(self, row: int) -> tuple[str, ...]:
        """Return why the node rejects the pod, counting nominated pods; () if the pod fits."""

    def place(self, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        """Return {uid: row} for the pod and a node where it fits if the pods in `without` leave.

        Returns None if the pod fits nowhere.
        """


@dataclass(frozen=True, slots=True, eq=False)
class PostFilterState:
    """A pod that fits on no node, with the reasons; the argument of `post_filter`.

    `limits` are the profile's settings for preemption. `now` is in seconds since the epoch. `seed`
    differs between the attempts of a pod: a search that does not examine all nodes can begin at
    another node each time. `unschedulable_seconds` is the time since the end of the pod's first
    attempt that found no node.

    If `preempt_extenders` is true, extenders take part in the preemption. Then a plugin that
    supports extenders first returns Candidates, and runs again with the extenders' answer as
    `processed`.
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
    """A result: the pod fits on `node` once the victims are gone (NominatingInfo).

    If `strict`, the victims are evicted through the Eviction API only, which enforces disruption
    budgets. `message` is added to the nodes' reasons in the pod's condition. `violations` is the
    number of victims whose eviction violates a disruption budget.
    """

    node: str
    victims: tuple[Pod, ...]
    strict: bool = False
    message: str = ""
    violations: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """A node on which the pod would fit without `victims`; the most important victim comes first.

    `violations` is the number of victims whose eviction violates a disruption budget.
    """

    node: str
    victims: tuple[Pod, ...]
    violations: int


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """All candidates for the preempt extenders; a plugin returns them in place of a nomination."""

    candidates: tuple[PreemptionCandidate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedCandidates:
    """The candidates that the preempt extenders have kept, with their victims.

    If an extender that is not ignorable failed, `error` says why, and there are no candidates.
    """

    candidates: tuple[PreemptionCandidate, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NotEligible:
    """A result: the pod is not eligible to preempt now, but keeps its nomination.

    If `is_error`, no further plugin runs, and the reasons of earlier plugins are not reported
    (RunPostFilterPlugins).
    """

    reason: str
    is_error: bool = False


PostFilterResult: TypeAlias = Nomination | Candidates | Unschedulable | NotEligible
"""The possible results of `post_filter`."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupNomination:
    """A result: the members fit on `nodes` once the victims are gone.

    `nodes` has node names by the member's uid. Victims may be on any nodes. `strict` and
    `violations` are as in `Nomination`. `disruptions` has the number of single pods among the
    victims, then the number of groups that are evicted as a whole. `reason` is added to the group's
    message.
    """

    nodes: Mapping[Uid, str]
    victims: tuple[Pod, ...]
    strict: bool = False
    violations: int = 0
    disruptions: tuple[int, int] = (0, 0)
    reason: str = ""


GroupPreemption: TypeAlias = GroupNomination | Unschedulable | NotEligible
"""The possible results of `pod_group_post_filter`."""


@dataclass(frozen=True, slots=True, eq=False)
class PodGroupPostFilterState:
    """A pod group that fits nowhere; the argument of `pod_group_post_filter`.

    `members` are the members that the group needs for its minimum. `unschedulable_seconds` is the
    time since the end of the first attempt that found no node for a member.

    `place(pods)` returns each member's row by uid, as if these pods had left their nodes; None if a
    member does not fit then. The total cost of these searches is limited: `is_last` returns whether
    the next search may be the last one. `place_by_requests` is like `place`, but much quicker: it
    compares only requests, so other filters may still reject the nodes that it returns. It is None
    if `place` compares only requests, too.
    """

    group: PodGroupState
    members: tuple[Pod, ...]
    cluster: ClusterView
    place: Callable[[Collection[Pod]], Mapping[Uid, int] | None]
    is_last: Callable[[], bool]
    limits: Preemption
    now: float
    unschedulable_seconds: float = 0.0
    place_by_requests: Callable[[Collection[Pod]], Mapping[Uid, int] | None] | None = None
