"""The state as it is once the moves planned so far have been carried out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Self, TypeVar

from mooring.engine.groups.budget import SearchBudget
from mooring.engine.what_if import WhatIf
from mooring.framework.card_plugin import assign_devices
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod
from mooring.pausing import around_pauses, pause_now
from mooring.state.cluster import Trial

__all__ = ["PlanTrial"]

_Result = TypeVar("_Result")


class _Change(NamedTuple):
    """A pod that leaves its node, one that comes to a node, or both."""

    leaves: Pod | None
    comes: Pod | None
    node: str


class PlanTrial:
    """A trial with changes that are made and taken back; open inside `with`, but for pauses.

    After a pause the changes are made anew in the state of then. Nodes are known by their names
    across pauses, because rows may be other nodes'. A pod that has left its node in a pause is not
    moved: nothing comes instead of it.
    """

    def __init__(self, what_if: WhatIf, pipeline: Pipeline, budget: SearchBudget) -> None:
        self._what_if = what_if
        self._cluster = what_if.cluster
        self._pipeline = pipeline
        self._budget = budget
        self._changes: list[tuple[_Change, ExitStack]] = []

    def __enter__(self) -> Self:
        self._pauses = around_pauses(self._closed)
        self._pauses.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pauses.__exit__(None, None, None)
        self._close()

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._changes)

    def move(self, leaves: Pod, comes: Pod, node: str) -> None:
        """Have a pod leave its node, and its replacement on the node of this name."""
        self._make(_Change(leaves, comes, node))

    def remove(self, pod: Pod) -> None:
        """Have the pod leave its node."""
        self._make(_Change(pod, None, ""))

    def add(self, pod: Pod, node: str) -> None:
        """Have the pod on the node of this name."""
        self._make(_Change(None, pod, node))

    def back_to(self, count: int) -> None:
        """Take all changes back but the first `count`."""
        while len(self._changes) > count:
            self._changes.pop()[1].close()

    @contextmanager
    def without(self, pod: Pod) -> Iterator[Trial]:
        """Have the pod on no node inside; nothing may pause there."""
        with self._what_if.trial() as trial:
            trial.withdraw(pod.uid)
            trial.remove(pod.uid)
            yield trial

    def tried(self, work: Callable[[], _Result]) -> _Result:
        """Return what the work returns; pause and try again while values that it needs are missing.

        Raises:
            StillEvaluating: the budget is spent.
        """
        while True:
            try:
                return work()
            except StillEvaluating:
                self._budget.spend(1)
                if self._budget.spent:
                    raise
            pause_now()

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Close the trial for a pause: afterwards rows, pods and nodes may be others."""
        self._close()
        yield
        while not self._reopened():
            self._budget.spend(1)
            pause_now()

    def _reopened(self) -> bool:
        """Make all changes anew; return False if cards of nodes that are new must be counted."""
        changes = self._changes
        self._changes = []
        try:
            for change, _ in changes:
                self._make(change)
        except StillEvaluating:
            self._close()
            self._changes = changes
            if self._budget.spent:
                raise
            return False
        return True

    def _make(self, change: _Change) -> None:
        self._changes.append((change, self._made(change)))

    def _made(self, change: _Change) -> ExitStack:
        leaves, comes = change.leaves, change.comes
        with ExitStack() as undo:
            trial = undo.enter_context(self._what_if.trial())
            if leaves is not None:
                if self._cluster.pod(leaves.uid) is None:
                    comes = None
                trial.withdraw(leaves.uid)
                trial.remove(leaves.uid)
            row = self._cluster.row(change.node)
            if row is None or comes is None or self._cluster.is_placed(comes):
                return undo.pop_all()
            trial.add(comes, row)
            assign_devices(self._pipeline.reserve, comes, row)
            return undo.pop_all()

    def _close(self) -> None:
        for _, undo in reversed(self._changes):
            undo.close()
