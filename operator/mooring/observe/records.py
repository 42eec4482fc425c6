"""The decision record: its JSON, and a bounded memory of recent ones.

`mooring simulate` prints whole decisions with `to_json`. A running scheduler keeps the last few
in a `DecisionLog`, whose memory does not grow with the cluster: it bounds the attempts in all,
the attempts per pod and the nodes per attempt.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nlargest
from itertools import chain, islice
from typing import Any, Final

from mooring.framework.decision import Decision, NodeScore, Rejection

__all__ = ["LATEST", "DecisionLog", "to_json"]

LATEST: Final = 100
"""Pods whose records one answer shows: bounds how long the event loop writes JSON."""


def to_json(decision: Decision) -> dict[str, Any]:
    """The record as a program reads it; the same in the simulator and in the operator."""
    scores = decision.scores
    return {
        "pod": decision.pod,
        "profile": decision.profile,
        "profileGeneration": decision.profile_generation,
        "node": decision.node,
        "nominatedNode": decision.nominated_node,
        "victims": list(decision.victims),
        "scores": None
        if scores is None
        else {
            node: {"plugins": dict(score.plugins), "total": score.total}
            for node, score in scores.items()
        },
        "rejections": {
            node: {
                "plugin": rejection.plugin,
                "reasons": list(rejection.reasons),
                "resolvable": rejection.resolvable,
            }
            for node, rejection in decision.rejections.items()
        },
        "message": decision.message,
    }


@dataclass(frozen=True, slots=True)
class _Record:
    """A shortened decision, when it was taken, and how many nodes each table had before."""

    decision: Decision
    time: float
    scored: int
    rejected: int

    def to_json(self) -> dict[str, Any]:
        decision = self.decision
        view = to_json(decision)
        view["time"] = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        truncated = {}
        if self.scored > len(decision.scores or ()):
            truncated["scores"] = self.scored
        if self.rejected > len(decision.rejections):
            truncated["rejections"] = self.rejected
        return view | {"truncated": truncated} if truncated else view


class DecisionLog:
    """The last attempts of the pods decided last.

    Args:
        attempts: How many attempts are kept in all. When full, the pod whose latest attempt is
            the oldest loses its first.
        attempts_per_pod: How many attempts are kept of one pod.
        nodes: How many nodes are kept in each table of an attempt: the best scores, the chosen
            node among them, and rejections of as many different kinds as there are.
    """

    def __init__(self, *, attempts: int = 1000, attempts_per_pod: int = 5, nodes: int = 10) -> None:
        self._capacity = attempts
        self._attempts_per_pod = attempts_per_pod
        self._nodes = nodes
        self._by_pod: OrderedDict[str, deque[_Record]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        decision: Decision,
        *,
        time: float,
        scored: int | None = None,
        rejected: int | None = None,
    ) -> None:
        """An attempt has been decided at `time` (seconds since the epoch).

        A caller that already left nodes out of `decision` says how many there were with `scored`
        and `rejected`.
        """
        if scored is None:
            scored = len(decision.scores or ())
        if rejected is None:
            rejected = len(decision.rejections)
        kept = replace(
            decision,
            scores=_best(decision.scores, decision.node, self._nodes),
            rejections=_witnesses(decision.rejections, self._nodes),
        )
        records = self._by_pod.setdefault(decision.pod, deque())
        self._by_pod.move_to_end(decision.pod)
        records.append(_Record(kept, time, scored, rejected))
        self._count += 1
        if len(records) > self._attempts_per_pod:
            self._forget_first(decision.pod)
        elif self._count > self._capacity:
            self._forget_first(next(iter(self._by_pod)))

    def _forget_first(self, pod: str) -> None:
        records = self._by_pod[pod]
        records.popleft()
        self._count -= 1
        if not records:
            del self._by_pod[pod]

    def of(self, pod: str) -> list[dict[str, Any]]:
        """What is kept of the pod "namespace/name", newest first, empty if nothing is.

        Beside the record's own fields each has `time` (ISO 8601) and, where nodes were left out,
        `truncated`: the full size of each table that was shortened.
        """
        return [record.to_json() for record in reversed(self._by_pod.get(pod, ()))]

    def latest(self, namespace: str = "") -> list[dict[str, Any]]:
        """The latest record of each of the pods decided last, newest first, at most 100.

        Args:
            namespace: Whose pods; empty for all.
        """
        prefix = f"{namespace}/" if namespace else ""
        found = (
            records[-1] for pod, records in reversed(self._by_pod.items()) if pod.startswith(prefix)
        )
        return [record.to_json() for record in islice(found, LATEST)]


def _best(
    scores: Mapping[str, NodeScore] | None, chosen: str | None, limit: int
) -> Mapping[str, NodeScore] | None:
    if scores is None or len(scores) <= limit:
        return scores
    return dict(
        nlargest(limit, scores.items(), key=lambda item: (item[0] == chosen, item[1].total))
    )


def _witnesses(rejections: Mapping[str, Rejection], limit: int) -> Mapping[str, Rejection]:
    """At most `limit` rejections, one of each kind before a second of any."""
    if len(rejections) <= limit:
        return rejections
    first_of_kind: dict[Rejection, str] = {}
    for node, rejection in rejections.items():
        first_of_kind.setdefault(rejection, node)
    first = dict.fromkeys(first_of_kind.values())
    others = (node for node in rejections if node not in first)
    return {node: rejections[node] for node in islice(chain(first, others), limit)}
