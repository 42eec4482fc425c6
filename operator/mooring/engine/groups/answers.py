"""What extenders have answered about the members of a group, and what it means on each row.

Extenders are called for each member, also for equal ones: an extender may answer by name, or set
devices aside for the pod as it filters. A group may have ten thousand members and a cluster
thousands of nodes, so equal answers are kept once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.engine.extenders.answers import (
    DID_NOT_FIT,
    ExtenderAnswers,
    Filtered,
    NodeFailure,
    interested,
)
from mooring.framework.diagnosis import EXTENDER, RejectedNodes
from mooring.framework.pipeline import Pipeline
from mooring.framework.verdicts import Explanation
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

__all__ = ["MOST_DIFFERENT", "ExtenderResults", "GroupAnswers", "is_filtered_or_scored"]

MOST_DIFFERENT: Final = 500
"""Different answers about members of one group; members with different answers are different."""
_MOST_REASONS: Final = 1_000
"""Different reasons that are kept for one group; the others are replaced by the extender's URL."""
_Codes: TypeAlias = npt.NDArray[np.int16]

_PASSED: Final = 0
_NOT_SENT: Final = -1


def is_filtered_or_scored(pipeline: Pipeline, pod: Pod) -> bool:
    """Return whether an extender that is interested in the pod filters or scores nodes."""
    found = interested(pipeline, pod)
    return any(extender.filter_verb or extender.prioritize_verb for extender in found)


@dataclass(frozen=True, slots=True, eq=False)
class ExtenderResults:
    """What extenders say about each row; members with equal answers have the same object.

    `passed` is bool[rows]. `scores` (int64[rows]) has the weighted scores of all extenders
    together, None if there are none. `reasons` are texts, and `reason_at` (int16[rows]) is 0 for a
    node that passed, -1 for one that was not sent, else 1 and the position of its reason.
    """

    passed: BoolArray
    scores: IntArray | None
    reasons: Sequence[str]
    reason_at: _Codes

    def rejected(self, rows: IntArray) -> tuple[RejectedNodes, ...]:
        """Return which of these rows (int64) did not pass, and why; preemption is of no help."""
        rows = rows[~self.passed[rows]]
        if not len(rows):
            return ()
        codes = self.reason_at[rows]
        names = {
            code: self.reasons[code - 1] if code > 0 else DID_NOT_FIT
            for code in np.unique(codes).tolist()
        }
        masks = ((reason, codes == code) for code, reason in names.items())
        unresolvable = np.zeros(len(rows), np.bool_)
        why = Explanation.from_masks(masks, resolvable=unresolvable)
        return (RejectedNodes(EXTENDER, rows, why),)


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """By number of the node: the code of its reason (int16), and its score (int64) if it passed."""

    codes: _Codes
    scores: IntArray | None


class GroupAnswers:
    """The answers about members of one group, by their uid.

    If extenders answer in too many different ways, their scores are dropped, and `too_many` is
    True if that is not enough.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """The number of each node that was sent for any member, by its name."""
        self._reasons: dict[str, int] = {}
        """The code of each reason."""
        self._answers: dict[bytes, _Answer] = {}
        self._members: dict[str, tuple[Pod, bytes]] = {}
        """Each member as it was when its call began, and the key of its answer."""
        self._scored = True
        self.too_many = False

    def put(self, pod: Pod, answers: ExtenderAnswers) -> None:
        """Keep what extenders have answered about the pod, in place of what is known."""
        filtered = answers.filtered or Filtered((), {})
        passed, failed = self._numbered(filtered.passed), self._numbered(filtered.failed)
        codes = np.full(len(self._numbers), _NOT_SENT, np.int16)
        codes[passed] = _PASSED
        codes[failed] = [self._code(failure) for failure in filtered.failed.values()]
        scores = None
        if answers.scores and self._scored:
            scores = np.zeros(len(self._numbers), np.int64)
            scores[passed] = sum(answers.scores.values())
        self._members[pod.uid] = pod, self._keep(_Answer(codes, scores))
        if len(self._answers) > MOST_DIFFERENT:
            self._drop_unused()

    def lacks(self, pod: Pod) -> bool:
        """Return whether no answer is known, or the pod has other requirements or labels now."""
        known = self._members.get(pod.uid)
        if known is None:
            return True
        return known[0].spec is not pod.spec or known[0].labels != pod.labels

    def drop(self, pod: Pod) -> None:
        """Drop the answer about the pod, which is of no use any more."""
        self._members.pop(pod.uid, None)

    def on(self, cluster: ClusterView, *, not_sent: bool = False) -> Mapping[str, ExtenderResults]:
        """Return what is known of each row of the cluster, by the uids of members.

        With `not_sent`, nodes that were not sent count as passed: preemption may make the members
        fit there, and the extenders are called before anything is bound.
        """
        rows, length = cluster.rows(self._numbers), len(cluster.nodes)
        reasons = (*self._reasons,)
        found: dict[bytes, ExtenderResults] = {}
        for key in {key for _, key in self._members.values()}:
            answer = self._answers[key]
            known = np.flatnonzero(rows[: len(answer.codes)] >= 0)
            reason_at = np.full(length, _NOT_SENT, np.int16)
            reason_at[rows[known]] = answer.codes[known]
            passed = reason_at == _PASSED
            if not_sent:
                passed |= reason_at == _NOT_SENT
            scores = None
            if answer.scores is not None:
                scores = np.zeros(length, np.int64)
                scores[rows[known]] = answer.scores[known]
            found[key] = ExtenderResults(passed, scores, reasons, reason_at)
        return {uid: found[key] for uid, (_, key) in self._members.items()}

    def lost(self, pod: Pod, fits: BoolArray, cluster: ClusterView) -> bool:
        """Return whether a node that passed for the member is not in `fits` (bool[rows])."""
        known = self._members.get(pod.uid)
        if known is None:
            return False
        passed = np.flatnonzero(self._answers[known[1]].codes == _PASSED)
        names = [*self._numbers]
        rows = cluster.rows(names[number] for number in passed.tolist())
        return bool((rows < 0).any() or not fits[rows].all())

    def answer_of(self, pod: Pod) -> object:
        """Return the same for members with equal answers; None for one without an answer."""
        known = self._members.get(pod.uid)
        return known[1] if known is not None else None

    def _numbered(self, nodes: Sequence[str] | Mapping[str, object]) -> IntArray:
        numbers = self._numbers
        found = [*map(numbers.get, nodes)]
        if None in found:
            found = [numbers.setdefault(name, len(numbers)) for name in nodes]
        return np.array(found, np.int64)

    def _code(self, failure: NodeFailure) -> int:
        """Return the number of the reason, from 1 on."""
        reason = failure.named_reason
        code = self._reasons.get(reason)
        if code is None:
            if len(self._reasons) >= _MOST_REASONS:
                reason = f"other reasons of extender {failure.extender}"
            code = self._reasons.setdefault(reason, len(self._reasons) + 1)
        return code

    def _keep(self, answer: _Answer) -> bytes:
        """Return the key of the answer; the latest of equal answers is kept.

        Which nodes passed is part of the key, their scores, and whether any failed; reasons are
        not, because they may name the pod. Each member has a key, so it is a short digest.
        """
        passed = answer.codes == _PASSED
        digest = blake2b(b"some " if (answer.codes > _PASSED).any() else b"none ", digest_size=16)
        digest.update(np.flatnonzero(passed).tobytes())
        if answer.scores is not None:
            digest.update(b" ")
            digest.update(answer.scores[passed].tobytes())
        key = digest.digest()
        self._answers[key] = answer
        return key

    def _drop_unused(self) -> None:
        """Drop answers that no member has any more, then all scores, if there are too many."""
        used = {key for _, key in self._members.values()}
        self._answers = {key: self._answers[key] for key in used}
        if len(self._answers) <= MOST_DIFFERENT:
            return
        before, self._answers, self._scored = self._answers, {}, False
        keys = {key: self._keep(_Answer(answer.codes, None)) for key, answer in before.items()}
        self._members = {uid: (pod, keys[key]) for uid, (pod, key) in self._members.items()}
        self.too_many = len(self._answers) > MOST_DIFFERENT
