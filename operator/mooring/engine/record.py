"""The decision record of an attempt."""

from mooring.engine.outcome import Outcome, Placement
from mooring.framework.decision import Decision
from mooring.model.pod import Pod

__all__ = ["decision_of"]


def decision_of(pod: Pod, profile: str, outcome: Outcome, most: int | None = None) -> Decision:
    """What the attempt decided, about every node; with `most`, about the best so many only.

    To be called before the cluster changes: what a placement did not choose is worked out here.
    """
    if isinstance(outcome, Placement):
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
