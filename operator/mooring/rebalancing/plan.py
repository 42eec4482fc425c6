"""A plan: which running pods move, to which nodes, in which order, and with which gain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal

Why = str | TextAboutPods
"""A reason: a sentence without a full stop."""


def about(text: str, *pods: Pod) -> TextAboutPods:
    """Return the text with each `{}` replaced by a pod's name; users without rights see "a pod"."""
    whole = text.format(*(f"pod {pod.key}" for pod in pods))
    otherwise = text.format(*("a pod" for _ in pods))
    return TextAboutPods(whole, tuple(map(PodRef.of, pods)), otherwise)


@dataclass(frozen=True, slots=True)
class Move:
    """A running pod, its node, and the node for the pod that replaces it.

    `pod` is the pod's version when the plan was made.
    """

    pod: Pod
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Step:
    """Moves that help only together, in the order of execution.

    Attributes:
        goal: The purpose of the moves.
        moves: At least one. Each is possible when the moves before it have been carried out. The
            moves of a group are possible when all its pods have left their nodes.
        reason: What the moves gain, as a sentence without a full stop.
        gain: The gain as a number, to compare steps. For Spread: points of the total score.
            Otherwise: 1,000 for each requirement that is met, pod that fits or node that is
            emptied.
        fits: The pending pods that fit afterwards and did not fit before.
        nodes: The node for each pod in `fits`.
        emptied: The nodes that then have only static pods and pods of DaemonSets.
        group: The key of the pod group that is moved as a whole; empty if no group is.
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
        """The moves that begin together: each move alone, or all moves of a group."""
        return (self.moves,) if self.group else [(move,) for move in self.moves]

    @property
    def gain_per_move(self) -> float:
        """The step's gain divided by the number of disrupted pods."""
        return self.gain / len(self.moves)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in the order of execution, by falling gain per move.

    Attributes:
        steps: The steps; none if moves gain nothing.
        pods: How many running pods the profile has.
        examined: How many of these pods were examined for the goals Violations and Spread. Pods
            that must stay on their nodes count as examined. None if the plan has neither goal.
        refused: The number of pods that would gain but are not moved, by reason.
        message: Why there are no steps, as a sentence without a full stop; "" if moves gain
            nothing.
        spent: Whether the budget of decisions was spent, or pods were left unexamined.
        position: The position in the order of pods where the next plan continues.
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
        """All moves of all steps, in the order of execution."""
        return tuple(move for step in self.steps for move in step.moves)
