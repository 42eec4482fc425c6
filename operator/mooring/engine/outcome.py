"""How an attempt can end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mooring.framework.decision import Decision, NodeScore
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.post_filter import Nomination
from mooring.model.pod import Pod

__all__ = [
    "FitError",
    "Outcome",
    "ScheduleResult",
    "decision_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleResult:
    """The pod goes to a row.

    `evaluated_nodes` says how many nodes the search looked at. `scores` gives the scores of the
    feasible nodes by name, of all or of the best few; it is None where only one node was feasible.
    `diagnosis` says why the other nodes were not. Both work on live columns: to be called before
    anything changes.
    """

    row: int
    node: str
    feasible_nodes: int
    evaluated_nodes: int
    scores: Callable[[int | None], Mapping[str, NodeScore]] | None
    diagnosis: Callable[[], Diagnosis]


@dataclass(frozen=True, slots=True, eq=False)
class FitError:
    """No node can take the pod now; `message` is the whole sentence, post-filters included.

    `keeps_nomination` says that a nomination the pod already has is to stay.
    """

    diagnosis: Diagnosis
    message: str
    nomination: Nomination | None = None
    keeps_nomination: bool = False


Outcome = ScheduleResult | FitError


def decision_of(pod: Pod, profile: str, outcome: Outcome, most: int | None = None) -> Decision:
    """What the attempt decided, about every node; with `most`, about the best so many only.

    To be called before the cluster changes: what a placement did not choose is worked out here.
    """
    if isinstance(outcome, ScheduleResult):
        return Decision(
            pod=pod.key,
            profile=profile,
            node=outcome.node,
            nominated_node=None,
            victims=(),
            scores=outcome.scores(most) if outcome.scores is not None else None,
            rejections=outcome.diagnosis().rejections() if most is None else {},
            message=None,
        )
    nomination = outcome.nomination
    return Decision(
        pod=pod.key,
        profile=profile,
        node=None,
        nominated_node=nomination.node if nomination else None,
        victims=tuple(victim.key for victim in nomination.victims) if nomination else (),
        scores=None,
        rejections=outcome.diagnosis.rejections(most),
        message=outcome.message,
    )
