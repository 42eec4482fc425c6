"""The data that the searches of one plan share while the plan is made."""

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
    """A plan in the making: a trial that contains the moves of `steps`."""

    takes: Callable[[Pod], bool]
    """Returns whether the profile decides about a pod."""
    pending: Sequence[Pod] = field(default=(), kw_only=True)
    """The unschedulable pods of the profile, sorted by falling priority."""
    position: int = field(default=0, kw_only=True)
    """The position in the order of pods where the last plan ended; after planning, where this plan
    ended."""
    steps: list[Step] = field(default_factory=list, init=False)
    moved: set[Uid] = field(default_factory=set, init=False)
    """The uids of the pods that the plan moves; no pod moves twice."""
    places: dict[Uid, tuple[Pod, str]] = field(default_factory=dict, init=False)
    """The waiting pods that fit, with their nodes, by uid; they keep their room in later trials."""
    looked_at: set[Uid] = field(default_factory=set, init=False)
    """The uids of the pods that were examined for Violations and Spread."""
    _refused: dict[Uid, str] = field(default_factory=dict, init=False)

    @property
    def moves_left(self) -> int:
        """The number of pods that the plan may still move."""
        return self.section.limits.moves_per_plan - len(self.moved)

    @property
    def done(self) -> bool:
        """Whether the plan has as many moves as allowed, or has spent its budget."""
        return self.moves_left <= 0 or self.budget.spent

    def may_move(self, pod: Pod) -> bool:
        """Return whether the pod has this profile, is not moved yet, and `movable` allows it."""
        if pod.uid in self.moved or not self.takes(pod):
            return False
        return self.movable.refusal(pod) is None

    def accept(self, step: Step) -> None:
        """Add a step; the caller has made its moves in the trial."""
        self.steps.append(step)
        self.moved.update(move.pod.uid for move in step.moves)

    def place(self, pod: Pod, node: str) -> None:
        """Put a waiting pod on the node in the trial, and add it to `places`."""
        self.add(pod, node)
        self.places[pod.uid] = pod, node

    def refuse(self, pod: Pod, why: str) -> None:
        """Record why a pod that would gain is not moved; keep only the first reason."""
        self._refused.setdefault(pod.uid, why)

    @property
    def refused(self) -> dict[str, int]:
        """Return how many pods would gain but are not moved, by reason, the most frequent first."""
        counted = Counter(why for uid, why in self._refused.items() if uid not in self.moved)
        return dict(sorted(counted.items(), key=lambda each: (-each[1], each[0])))
