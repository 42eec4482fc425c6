"""The calls of extenders that a decision needs, and the results so far.

If results are missing, a decision about a pod or a group ends early and returns the calls that it
needs. Other attempts go on during the calls. Then the attempt decides anew with the results, on the
cluster's state at that time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.framework.diagnosis import EXTENDER, RejectedNodes
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.framework.verdicts import Explanation
from mooring.model.pod import Pod, Uid
from mooring.policy.extender import Extender
from mooring.runtime.pipeline import Pipeline
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

MOST_ROUNDS: Final = 5
"""The most rounds of filter calls in an attempt. A new round is needed if other pods took the nodes
that passed. After the last round, the attempt fails."""
_MOST_DIFFERENT: Final = 500
"""The most different answers about one group that are kept with scores. The same number of further
answers is kept without scores. If there are more answers, the attempt fails."""
_MOST_REASONS: Final = 1_000
"""The most different reasons that an attempt keeps. One text per extender replaces all others."""
ALWAYS_TAKEN: Final = (
    "the nodes that extenders passed were taken by other pods each time they were called"
)
_DID_NOT_FIT: Final = "node(s) did not fit when the extenders were called"
"""The reason against a node that fits now but did not fit when the extenders were called."""
_PASSED: Final = 0
_NOT_SENT: Final = -1
_Codes: TypeAlias = npt.NDArray[np.int16]


class ExtenderError(Exception):
    """Raised if a call of an extender failed or its answers cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The next calls of extenders that a decision about a pod needs.

    Attributes:
        nodes: The names of the nodes to filter and score.
        rows: The rows (int64) of the nodes, in version `node_set_version` of the node set.
        evaluated_nodes: The number of nodes that the search examined.
        is_sample: Whether more nodes fit than `nodes` has.
        nominated: Whether `nodes` has only the pod's nominated node.
        candidates: For a preemption: the candidates that extenders may reject.
    """

    pod: Pod = field(compare=False)
    nodes: tuple[str, ...] = ()
    rows: IntArray | None = field(default=None, compare=False)
    node_set_version: int = field(default=0, compare=False)
    evaluated_nodes: int = 0
    is_sample: bool = False
    nominated: bool = False
    candidates: tuple[PreemptionCandidate, ...] | None = None

    def rows_in(self, cluster: ClusterView) -> IntArray:
        """Return the nodes' rows (int64) in the present cluster; -1 for a deleted node."""
        if self.rows is not None and self.node_set_version == cluster.node_set_version:
            return self.rows
        return cluster.rows(self.nodes)


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Why an extender rejected a node, and whether preemption could help on the node."""

    reason: str
    resolvable: bool
    extender: str = ""
    """The extender's name; "" if the pod is gone."""

    @property
    def named_reason(self) -> str:
        """The reason, beginning with the extender's name unless it contains the name."""
        named = self.extender in self.reason
        return self.reason if named else f"extender {self.extender}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class OnRows:
    """The results of extenders for the nodes of all rows; pods with equal results share one object.

    Attributes:
        passed: bool[rows]: Whether the node passed.
        scores: The weighted scores by extender (int64[rows]).
        codes: int16[rows]: 0: passed; -1: not sent; n: rejected, see `failures[n - 1]`.
    """

    passed: BoolArray
    scores: Mapping[str, IntArray]
    codes: _Codes
    failures: Sequence[NodeFailure]

    def rejected(self, rows: IntArray, *, named: bool = False) -> tuple[RejectedNodes, ...]:
        """Return which of the nodes on `rows` did not pass, and why; () if all passed.

        `named` adds the extender's name to the reasons.
        """
        rows = rows[~self.passed[rows]]
        if not len(rows):
            return ()
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        # Nodes that were not sent have no failure. The event that makes one suitable causes a new
        # attempt.
        failures = [self.failures[code - 1] if code > 0 else None for code in used.tolist()]
        reasons = [_reason(failure, named=named) for failure in failures]
        resolvable = np.array([f is not None and f.resolvable for f in failures], np.bool_)
        why = Explanation.from_codes(reasons, codes, resolvable=resolvable[codes])
        return (RejectedNodes(EXTENDER, rows, why),)


def _reason(failure: NodeFailure | None, *, named: bool) -> str:
    if failure is None:
        return _DID_NOT_FIT
    return failure.named_reason if named else failure.reason


@dataclass(frozen=True, slots=True, eq=False)
class NodesAnswer:
    """The results for the nodes of `asked`, with `codes` and `scores` by node (see `OnRows`)."""

    asked: Needed
    codes: _Codes
    scores: Mapping[str, IntArray]
    failures: Sequence[NodeFailure]

    def on(self, cluster: ClusterView, *, not_sent: bool = False) -> OnRows:
        """Return the results by row; with `not_sent`, nodes not sent to extenders pass, too."""
        rows, length = self.asked.rows_in(cluster), len(cluster.nodes)
        known = rows >= 0
        codes = np.full(length, _NOT_SENT, np.int16)
        codes[rows[known]] = self.codes[known]
        passed = codes <= _PASSED if not_sent else codes == _PASSED
        scores = {name: np.zeros(length, np.int64) for name in self.scores}
        for name, column in self.scores.items():
            scores[name][rows[known]] = column[known]
        return OnRows(passed, scores, codes, self.failures)


@dataclass(slots=True, eq=False)
class PodExtenderResults:
    """The results of extenders about one pod in one attempt.

    Attributes:
        preempts: Whether an extender with a preempt verb is responsible for the pod.
        rounds: How often extenders were asked to filter all nodes that fit.
        nominee: The nominated node, if extenders were asked about it alone.
        passes_nominee: Whether the nominated node passed.
        nodes: The results of the last round; None before the first round.
        processed: The preemption candidates that the extenders kept.
    """

    pod: Pod
    preempts: bool = False
    rounds: int = 0
    nominee: str | None = None
    passes_nominee: bool = False
    nodes: NodesAnswer | None = None
    processed: ProcessedCandidates | None = None


class ExtenderResults:
    """The results of extenders in one attempt, about a pod or about the members of a group.

    Extenders are asked about each member, even if members are equal: an extender may answer by
    name, or reserve devices for the pod. Equal results are stored once.
    """

    def __init__(self) -> None:
        self.failure = ""
        """Why the attempt must end: the text of a failed call; "" if no call failed."""
        self.ignored = set[tuple[Extender, str]]()
        """The pairs of an ignorable extender and a verb whose call failed; such calls are not
        repeated."""
        self._pods: dict[Uid, PodExtenderResults] = {}
        self._kept: dict[tuple[tuple[str, ...], bytes], NodesAnswer] = {}
        self._codes: dict[NodeFailure, int] = {}
        self._failures: list[NodeFailure] = []

    def about(self, pod: Pod, *, preempts: bool = False) -> PodExtenderResults:
        """Return the results about the pod; the first call adds empty results."""
        return self._pods.setdefault(pod.uid, PodExtenderResults(pod, preempts))

    def lack(self, pod: Pod) -> bool:
        """Return whether extenders must filter nodes for the pod's present spec and labels."""
        known = self._pods.get(pod.uid)
        if known is None or known.nodes is None:
            return True
        return known.pod.spec is not pod.spec or known.pod.labels != pod.labels

    def put(
        self,
        asked: Needed,
        passed: Sequence[str],
        failed: Mapping[str, NodeFailure],
        scores: Mapping[str, IntArray],
    ) -> None:
        """Store the nodes that passed, their scores (int64), and why the other nodes failed.

        Raises ExtenderError if too many members of a group have different results.
        """
        codes = np.zeros(len(asked.nodes), np.int16)
        if failed or passed is not asked.nodes:
            place = {name: number for number, name in enumerate(asked.nodes)}
            codes[:] = _NOT_SENT
            at = np.array([place[name] for name in passed], np.int64)
            codes[at] = _PASSED
            for name, failure in failed.items():
                codes[place[name]] = self._code(failure)
            scores = {name: _spread(column, at, len(codes)) for name, column in scores.items()}
        known = self.about(asked.pod)
        known.nodes = self._shared(NodesAnswer(asked, codes, scores, self._failures))
        known.pod, known.rounds = asked.pod, known.rounds + 1

    def on(self, cluster: ClusterView, *, not_sent: bool = False) -> Mapping[Uid, OnRows]:
        """Return each pod's results for all rows of the cluster, by the pod's uid.

        With `not_sent`, nodes that were not sent to extenders pass: preemption may make room there.
        """
        answers = {uid: pod.nodes for uid, pod in self._pods.items() if pod.nodes is not None}
        found = {answer: answer.on(cluster, not_sent=not_sent) for answer in {*answers.values()}}
        return {uid: found[answer] for uid, answer in answers.items()}

    def _code(self, failure: NodeFailure) -> int:
        if failure not in self._codes:
            if len(self._failures) >= _MOST_REASONS:
                # One text per extender replaces further reasons.
                other = f"other reasons of extender {failure.extender}"
                failure = NodeFailure(other, failure.resolvable, failure.extender)
            if failure not in self._codes:
                self._failures.append(failure)
                self._codes[failure] = len(self._failures)
        return self._codes[failure]

    def _shared(self, answer: NodesAnswer) -> NodesAnswer:
        if len(self._kept) >= _MOST_DIFFERENT:
            answer = NodesAnswer(answer.asked, answer.codes, {}, answer.failures)
        # Reasons are not compared, because they may name the pod.
        digest = blake2b((answer.codes == _PASSED).tobytes(), digest_size=16)
        for column in answer.scores.values():
            digest.update(column.tobytes())
        key = answer.asked.nodes, digest.digest()
        if len(self._kept) >= 2 * _MOST_DIFFERENT and key not in self._kept:
            text = f"extenders answer in more than {2 * _MOST_DIFFERENT} different ways about its"
            raise ExtenderError(f"{text} members, which cannot be placed together")
        return self._kept.setdefault(key, answer)


def _spread(column: IntArray, at: IntArray, length: int) -> IntArray:
    spread = np.zeros(length, np.int64)
    spread[at] = column
    return spread


def interested(pipeline: Pipeline, pod: Pod) -> tuple[Extender, ...]:
    """Return the profile's extenders that are responsible for the pod, in order (IsInterested)."""
    if not pipeline.extenders:
        return ()
    # kube-scheduler also reads limits, but the API server copies limits to requests.
    requested = pod.spec.demand.resources
    return tuple(
        extender
        for extender in pipeline.extenders
        if not extender.managed_resources
        or any(resource.name in requested for resource in extender.managed_resources)
    )
