"""A plan: running pods to move, from where to where, in which order, with the gain of each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal

Why = str | TextAboutPods
"""A reason, as a sentence without a full stop."""


def about(text: str, *pods: Pod) -> TextAboutPods:
    """Return the text with each `{}` replaced by a pod."""
    whole = text.format(*(f"pod {pod.key}" for pod in pods))
    otherwise = text.format(*("a pod" for _ in pods))
    return TextAboutPods(whole, tuple(map(PodRef.of, pods)), otherwise)


@dataclass(frozen=True, slots=True)
class Move:
    """One running pod, its node, and the node meant for its replacement.

    `pod` is its state when the plan was made.
    """

    pod: Pod
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Step:
    """Moves that only help together, in the order of execution.

    Attributes:
        goal: The purpose of the moves.
        moves: At least one. Each is possible when those before it have been carried out, and
            those of a group when all pods have left their nodes.
        reason: Their gain, as a sentence without a full stop.
        gain: Their gain as a number, to compare steps: points of the total score for Spread, 1,000
            for each requirement that is met, pod that fits or node that is emptied.
        fits: The pending pods that fit afterwards and did not before.
        nodes: The node of each of these.
        emptied: The nodes that have no pods afterwards but those that stay on their node.
        group: The key of the pod group that is moved whole; empty if no group is.
    """

    goal: Goal
    moves: tuple[Move, ...]
    reason: Why
    gain: int
    fits: tuple[PodRef, ...] = ()
    nodes: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    group: str = ""

    @property
    def batches(self) -> Sequence[tuple[Move, ...]]:
        """The moves that begin together: single moves, or those of a whole group."""
        return (self.moves,) if self.group else [(move,) for move in self.moves]

    @property
    def gain_per_move(self) -> float:
        """The gain of the step for each disrupted pod."""
        return self.gain / len(self.moves)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order of execution; those that gain most per move come first.

    Attributes:
        steps: The steps; none if nothing is to be gained.
        pods: How many running pods the profile has.
        examined: How many of these were looked at for Violations and Spread, each counted once:
            compared with the decision of today, or found to stay on their node in any case. None
            for a plan with neither goal.
        refused: How many pods would gain and are not moved, by reason.
        message: Why there are no steps, as a sentence without a full stop; "" if that is because
            nothing is to be gained.
        spent: Whether the decisions that it may cost were spent before all was looked at.
        position: Where the next plan goes on, if this one could not look at all pods.
    """

    steps: tuple[Step, ...]
    pods: int = 0
    examined: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    message: Why = ""
    spent: bool = False
    position: int = 0

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves in order."""
        return tuple(move for step in self.steps for move in step.moves)
