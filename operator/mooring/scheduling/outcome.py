"""The outcome of a scheduling attempt: a node, or a FitError."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mooring.framework.decision import Decision, NodeScore, PodRef, Rejection
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.post_filter import Nomination
from mooring.model.pod import Pod
from mooring.runtime.pipeline import Pipeline


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """The chosen node and its row (schedule_one.go, ScheduleResult).

    Call `scores` and `diagnosis` before the cluster changes, because they read live columns.

    Attributes:
        feasible_nodes: The number of nodes that fit.
        evaluated_nodes: The number of nodes that the search examined.
        scores: Returns the scores of the n best nodes (None: of all feasible nodes) by name.
            It is None if the nodes were not scored.
        diagnosis: Returns why the other nodes are not feasible.
    """

    row: int
    node: str
    feasible_nodes: int
    evaluated_nodes: int
    scores: Callable[[int | None], Mapping[str, NodeScore]] | None
    diagnosis: Callable[[], Diagnosis]
    score_of: Callable[[int], NodeScore | None] = lambda _row: None
    """Returns the score of the node at a row; None if the node is not feasible or was not
    scored."""


@dataclass(frozen=True, slots=True, eq=False)
class FitError:
    """The outcome of an attempt if no node fits the pod now (framework/types.go, FitError).

    Attributes:
        cause: Why the nearest nodes reject the pod, in a few words (`mooring.scheduling.causes`).
        message: The sentence for users, with the messages of PostFilter plugins.
        nomination: The node that preemption found, with its victims.
        keeps_nomination: Whether the pod keeps its earlier nomination.
    """

    diagnosis: Diagnosis
    cause: str
    message: str
    nomination: Nomination | None = None
    keeps_nomination: bool = False


Outcome = ScheduleResult | FitError


class PodRejected(Exception):  # noqa: N818 - a verdict of a plugin, not a fault
    """Raised if a Reserve or Permit plugin rejects the pod on the chosen node."""

    def __init__(self, plugin: str, reason: str, node: str, pod: Pod) -> None:
        super().__init__(reason)
        self.plugin = plugin
        self.reason = reason
        self.node = node
        self.pod = pod

    @property
    def message(self) -> str:
        """A sentence for users: "0/1 nodes are available", and the reason."""
        return f"0/1 nodes are available: 1 {self.reason}."


def decision_of(
    pod: Pod, pipeline: Pipeline, outcome: Outcome, most: int | None = None
) -> Decision:
    """Return the record of an attempt; call this before the cluster changes.

    `most` limits the number of scores, and of rejections per plugin; None means no limit. If `most`
    is given, the record of a pod with a node has no rejections.
    """
    if isinstance(outcome, ScheduleResult):
        scores = outcome.scores(most) if outcome.scores is not None else None
        rejections = outcome.diagnosis().rejections() if most is None else {}
        return record_of(pod, pipeline, node=outcome.node, scores=scores, rejections=rejections)
    rejections, message = outcome.diagnosis.rejections(most), outcome.message
    nomination = outcome.nomination
    return record_of(pod, pipeline, nomination, rejections=rejections, message=message)


def record_of(
    pod: Pod,
    pipeline: Pipeline,
    nomination: Nomination | None = None,
    *,
    node: str | None = None,
    scores: Mapping[str, NodeScore] | None = None,
    rejections: Mapping[str, Rejection] = MappingProxyType({}),
    message: str | None = None,
) -> Decision:
    """Return the record of a decision about the pod; fields that are not given are unknown."""
    return Decision(
        pod=PodRef.of(pod),
        profile=pipeline.profile,
        profile_generation=pipeline.generation,
        kubernetes_version=pipeline.kubernetes.version,
        node=node,
        nominated_node=nomination.node if nomination else None,
        victims=tuple(map(PodRef.of, nomination.victims)) if nomination else (),
        scores=scores,
        rejections=rejections,
        message=message,
    )
