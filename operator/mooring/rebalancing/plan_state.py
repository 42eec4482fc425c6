"""One plan while it is made: the data that its searches share."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.model.pod import Pod, Uid
from mooring.rebalancing.plan import Step
from mooring.rebalancing.plan_trial import PlanTrial

NOWHERE_ELSE: Final = "fits on no other node"


@dataclass(eq=False, repr=False)
class Planning(PlanTrial):
    """A plan in the making: a trial in which the moves of `steps` have been made."""

    takes: Callable[[Pod], bool]
    """Whether a pod is of the profile."""
    pending: Sequence[Pod] = field(default=(), kw_only=True)
    """The unschedulable pods of the profile, those with the highest priority first."""
    position: int = field(default=0, kw_only=True)
    """The position where the last plan ended; later, where this one does."""
    steps: list[Step] = field(default_factory=list, init=False)
    moved: set[Uid] = field(default_factory=set, init=False)
    """The pods that are moved, which are moved once only."""
    places: dict[Uid, tuple[Pod, str]] = field(default_factory=dict, init=False)
    """The nodes of pods that wait and fit, with moves or without; they keep their places."""
    looked_at: set[Uid] = field(default_factory=set, init=False)
    """The pods on nodes that were looked at for Violations and Spread."""
    _refused: dict[Uid, str] = field(default_factory=dict, init=False)

    @property
    def moves_left(self) -> int:
        """How many more pods the plan may move."""
        return self.section.limits.moves_per_plan - len(self.moved)

    @property
    def done(self) -> bool:
        """Whether the plan has its maximum length, or the budget is spent."""
        return self.moves_left <= 0 or self.budget.spent

    def may_move(self, pod: Pod) -> bool:
        """Return whether the plan may move the pod alone."""
        if pod.uid in self.moved or not self.takes(pod):
            return False
        return self.movable.refusal(pod) is None

    def accept(self, step: Step) -> None:
        """Add a step whose moves have been made in the trial."""
        self.steps.append(step)
        self.moved.update(move.pod.uid for move in step.moves)

    def place(self, pod: Pod, node: str) -> None:
        """Give a pod that waits its place on the node in the trial."""
        self.add(pod, node)
        self.places[pod.uid] = pod, node

    def refuse(self, pod: Pod, why: str) -> None:
        """Note that the pod would gain and is not moved."""
        self._refused.setdefault(pod.uid, why)

    @property
    def refused(self) -> dict[str, int]:
        """How many pods would gain and are not moved, by reason, the most frequent first."""
        counted = Counter(why for uid, why in self._refused.items() if uid not in self.moved)
        return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
