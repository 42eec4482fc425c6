"""The state as it is once the moves planned so far have been carried out."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from mooring.engine.what_if import WhatIf
from mooring.framework.card_plugin import assign_devices
from mooring.framework.pipeline import Pipeline
from mooring.model.pod import Pod
from mooring.state.cluster import Trial

__all__ = ["PlanTrial"]


class PlanTrial:
    """A trial with changes that are made and taken back; open inside `with`."""

    def __init__(self, what_if: WhatIf, pipeline: Pipeline) -> None:
        self._what_if = what_if
        self._cluster = what_if.cluster
        self._pipeline = pipeline
        self._changes: list[ExitStack] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.back_to(0)

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._changes)

    def move(self, leaves: Pod, comes: Pod, node: str) -> None:
        """Have a pod leave its node, and its replacement on the node of this name."""
        self._make(leaves, comes, node)

    def remove(self, pod: Pod) -> None:
        """Have the pod leave its node."""
        self._make(pod, None, "")

    def add(self, pod: Pod, node: str) -> None:
        """Have the pod on the node of this name."""
        self._make(None, pod, node)

    def back_to(self, count: int) -> None:
        """Take all changes back but the first `count`."""
        while len(self._changes) > count:
            self._changes.pop().close()

    @contextmanager
    def without(self, pod: Pod) -> Iterator[Trial]:
        """Have the pod on no node inside."""
        with self._what_if.trial() as trial:
            trial.withdraw(pod.uid)
            trial.remove(pod.uid)
            yield trial

    def _make(self, leaves: Pod | None, comes: Pod | None, node: str) -> None:
        """Make a change: a pod leaves its node, one comes to a node, or both."""
        with ExitStack() as undo:
            trial = undo.enter_context(self._what_if.trial())
            if leaves is not None:
                trial.withdraw(leaves.uid)
                trial.remove(leaves.uid)
            row = self._cluster.row(node)
            if row is not None and comes is not None:
                trial.add(comes, row)
                self._pipeline.evaluations.begin_attempt()
                assign_devices(self._pipeline.reserve, comes, row)
            self._changes.append(undo.pop_all())
