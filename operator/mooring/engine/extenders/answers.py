"""What a decision needs from extenders, and what they have answered so far.

A pod that an extender cares for is decided in two halves. The first ends with a call that has to be
made; the second begins from the start, with the answer, in the state that the cluster has by then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mooring.framework.pipeline import Pipeline
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.model.pod import Pod
from mooring.policy.extender import Extender
from mooring.state.columns import IntArray

__all__ = [
    "DID_NOT_FIT",
    "MOST_CALLS",
    "ExtenderAnswers",
    "FilterCall",
    "Filtered",
    "NodeFailure",
    "PreemptCall",
    "RowsAsOf",
    "interested",
]

MOST_CALLS: Final = 5
"""Rounds of calls to extenders in one attempt, in case what they pass is taken meanwhile."""
DID_NOT_FIT: Final = "node(s) did not fit when the extenders were called"
"""Why a node is rejected that fits by now and that the extenders were not asked about."""


@dataclass(frozen=True, slots=True, eq=False)
class RowsAsOf:
    """Rows of nodes (int64), which hold for the set of nodes of this version."""

    rows: IntArray
    node_set_version: int


@dataclass(frozen=True, slots=True)
class FilterCall:
    """The filter extenders must be called with these feasible nodes before a node is chosen.

    With `nominated`, the one node is that to which the pod is nominated: if the extenders pass it,
    it is chosen without looking at others. `evaluated_nodes` counts the nodes that the search for
    feasible ones looked at. `without` are extenders and verbs that are left out as if they failed.
    `rows` are those of the nodes, if they are known. `for_group` says that it is about one of many
    members of a group, `is_sample` that more nodes fit than these.
    """

    nodes: tuple[str, ...]
    evaluated_nodes: int
    nominated: bool = False
    without: frozenset[tuple[Extender, str]] = frozenset()
    rows: RowsAsOf | None = field(default=None, compare=False)
    for_group: bool = False
    is_sample: bool = False


@dataclass(frozen=True, slots=True)
class PreemptCall:
    """The preempt extenders must be called with these candidates before one is nominated."""

    candidates: tuple[PreemptionCandidate, ...]


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Why an extender filtered a node out, and whether preemption could help there."""

    reason: str
    resolvable: bool
    extender: str = ""
    """The extender's name."""

    @property
    def named_reason(self) -> str:
        """The reason, and the extender that gave it."""
        named = self.extender in self.reason
        return self.reason if named else f"extender {self.extender}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that all filter extenders passed, and why each other node that they got failed.

    `rows` are those of the nodes that passed, if they are known.
    """

    passed: tuple[str, ...]
    failed: Mapping[str, NodeFailure]
    rows: RowsAsOf | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ExtenderAnswers:
    """What the extenders have answered in one attempt of a pod.

    `preempts`: an extender with a preempt verb cares for the pod. `nominee` is the nominated node
    that the filter extenders were called with alone, and `passes_nominee` their answer. `filtered`
    is their answer to the call `asked`. `scores` has the weighted scores by extender: int64, in the
    order of `filtered.passed`. `processed` is what the preempt extenders made of the candidates.
    `ignored` are the extenders, with the verb, whose failure was ignored in the last call.
    """

    preempts: bool = False
    nominee: str | None = None
    passes_nominee: bool = False
    filtered: Filtered | None = None
    asked: FilterCall | None = None
    evaluated_nodes: int = 0
    scores: Mapping[str, IntArray] = field(default_factory=dict)
    processed: ProcessedCandidates | None = None
    ignored: frozenset[tuple[Extender, str]] = frozenset()


def interested(pipeline: Pipeline, pod: Pod) -> tuple[Extender, ...]:
    """Return the profile's extenders that care for the pod, in their order (IsInterested).

    An extender without managed resources cares for every pod; the others for pods that request one
    of theirs. kube-scheduler looks at limits too, but the API server sets requests from limits.
    """
    if not pipeline.extenders:
        return ()
    requested = pod.spec.demand.resources
    return tuple(
        extender
        for extender in pipeline.extenders
        if not extender.managed_resources
        or any(resource.name in requested for resource in extender.managed_resources)
    )
