"""Calls the extenders of a profile in kube-scheduler's order, and combines their answers."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, Protocol

import numpy as np

from mooring.extenders.http_client import (
    ExtenderClient,
    NotLeading,
    changed_at,
    tls_context,
)
from mooring.extenders.protocol import (
    AnswerError,
    Json,
    binding_request,
    decode_binding,
    decode_filter,
    decode_preemption,
    decode_priorities,
    nodes_request,
    preemption_request,
)
from mooring.extenders.verdicts import (
    ExtenderError,
    ExtenderResults,
    Needed,
    NodeFailure,
    interested,
)
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.model.pod import Pod
from mooring.policy.extender import Extender
from mooring.process.turn import Turn
from mooring.runtime.pipeline import Pipeline
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

logger = logging.getLogger(__name__)

_SCALE: Final = 10
"""The factor between the scores of extenders (0-10, MaxExtenderPriority) and of plugins (0-100)."""
_MOST_SCORE: Final = 2**53
"""The largest weighted score of an extender. A larger score is an error, because sums of scores
must fit into 64 bits."""
_MOST_AT_ONCE: Final = 16
"""The most members of a group for which extenders are called at the same time; others wait."""
_MOST_CLIENTS: Final = 64
"""The most clients that are kept, one for each extender and version of its certificates. The oldest
clients are dropped first."""
_GONE: Final = NodeFailure("the pod does not exist any more", resolvable=False)


class ExtenderObjects(Protocol):
    """Reads the objects to send to extenders, as JSON."""

    async def pod(self, pod: Pod) -> Json | None:
        """Return the pod; None if it was deleted. Raises ExtenderError if it cannot be read."""

    async def nodes(self, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the nodes with these names, by name; unknown nodes are left out."""


class Extenders:
    """Calls extenders, over connections that stay open.

    Args:
        objects: Reads the objects to send.
        observe: Gets the extender, the verb, the result and the seconds of each call.
        may_write: Returns whether this replica leads; only a leader lets extenders bind.
        bound_node: Reads a pod's node from the API server, and waits for the answer.
    """

    def __init__(
        self,
        objects: ExtenderObjects,
        *,
        observe: Callable[[str, str, str, float], None] = lambda *_observed: None,
        may_write: Callable[[], bool] = lambda: True,
        bound_node: Callable[[Pod], Awaitable[str | None]] | None = None,
        turn: Turn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._observe = observe
        self._may_write = may_write
        self._bound_node = bound_node
        self._turn = turn if turn is not None else Turn(clock)
        self._clock = clock
        self._clients: dict[tuple[Extender, tuple[int, ...]], ExtenderClient] = {}

    async def answer(
        self,
        needed: Sequence[Needed],
        pipeline: Pipeline,
        answers: ExtenderResults,
        cluster: ClusterView,
    ) -> None:
        """Make the calls in `needed` for several pods at a time; add the results to `answers`.

        Raises ExtenderError if an extender fails that is not ignorable, if an object cannot be
        read, or if too many members of a group get different answers.
        """
        remaining = deque(needed)

        async def answer_each() -> None:
            while remaining:
                await self._answer(remaining.popleft(), pipeline, answers, cluster)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(len(needed), _MOST_AT_ONCE)):
                    tasks.create_task(self._turn.between(answer_each))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def bind(self, extenders: Iterable[Extender], pod: Pod, node: str) -> bool:
        """Let the first extender with a bind verb bind the pod; return whether it is bound.

        An ignorable extender that fails is skipped, as in kube-scheduler. Raises ExtenderError if
        another extender fails, and NotLeading if this replica no longer leads.
        """
        for extender in extenders:
            if not extender.bind_verb:
                continue
            body, client = binding_request(pod, node), self._client(extender)
            try:
                await client.call("bind", extender.bind_verb, body, decode_binding, self._may_write)
            except NotLeading:
                raise
            except ExtenderError as error:
                # An extender that fails may still have bound the pod.
                if self._bound_node is not None and await self._bound_node(pod) == node:
                    return True
                if not extender.ignorable:
                    raise
                client.ignored(error)
                continue
            return True
        return False

    async def close(self) -> None:
        """Close the connections to all extenders."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def _answer(
        self, asked: Needed, pipeline: Pipeline, answers: ExtenderResults, cluster: ClusterView
    ) -> None:
        known, extenders = answers.about(asked.pod), interested(pipeline, asked.pod)
        raw = await self._objects.pod(asked.pod) if asked.nodes or asked.candidates else None
        if asked.candidates is not None:
            known.processed = ProcessedCandidates(())
            if raw is not None:
                known.processed = await self._preempt(asked, extenders, raw, cluster)
        elif asked.nominated:
            known.nominee, known.passes_nominee = asked.nodes[0], False
            try:
                if raw is not None:
                    passed, _ = await self._filter(asked, extenders, raw, answers)
                    known.passes_nominee = bool(passed)
            except ExtenderError as error:
                # kube-scheduler logs it and looks at all nodes (evaluateNominatedNode).
                logger.warning("pod %s, evaluating its nominated node: %s", asked.pod.key, error)
        elif raw is None:
            answers.put(asked, (), dict.fromkeys(asked.nodes, _GONE), {})
        else:
            passed, failed = await self._filter(asked, extenders, raw, answers)
            scores: Mapping[str, IntArray] = {}
            if len(passed) > 1:
                scores = await self._prioritize(extenders, passed, raw, answers)
            answers.put(asked, passed, failed, scores)

    async def _filter(
        self, asked: Needed, extenders: Iterable[Extender], raw: Json, answers: ExtenderResults
    ) -> tuple[tuple[str, ...], dict[str, NodeFailure]]:
        passed, failed = asked.nodes, dict[str, NodeFailure]()
        for extender in extenders:
            if not extender.filter_verb or (extender, "filter") in answers.ignored:
                continue
            if not passed:
                break
            # Each extender gets the nodes that passed the one before (findNodesThatPassExtenders).
            client = self._client(extender)
            decode = partial(decode_filter, sent=passed, extender=extender)
            try:
                body = await self._nodes_request(extender, raw, passed)
                passed, why = await client.call("filter", extender.filter_verb, body, decode)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                client.ignored(error)
                answers.ignored.add((extender, "filter"))
                continue
            failed.update(why)
        return passed, failed

    async def _prioritize(
        self,
        extenders: Iterable[Extender],
        nodes: tuple[str, ...],
        raw: Json,
        answers: ExtenderResults,
    ) -> dict[str, IntArray]:
        scoring = [
            extender
            for extender in extenders
            if extender.prioritize_verb and (extender, "prioritize") not in answers.ignored
        ]
        total = dict[str, IntArray]()
        found = await asyncio.gather(*(self._scores(e, nodes, raw, answers) for e in scoring))
        for extender, scores in zip(scoring, found, strict=True):
            if scores is not None:
                # Extenders for two verbs of one service may have the same name.
                total[extender.name] = total.get(extender.name, 0) + scores
        return total

    async def _scores(
        self, extender: Extender, nodes: tuple[str, ...], raw: Json, answers: ExtenderResults
    ) -> IntArray | None:
        client = self._client(extender)
        decode = partial(_weighted, nodes=nodes, weight=extender.weight)
        try:
            body = await self._nodes_request(extender, raw, nodes)
            return await client.call("prioritize", extender.prioritize_verb, body, decode)
        except ExtenderError as error:
            client.ignored(error)
            answers.ignored.add((extender, "prioritize"))
            return None

    async def _preempt(
        self, asked: Needed, extenders: Iterable[Extender], raw: Json, cluster: ClusterView
    ) -> ProcessedCandidates:
        candidates = asked.candidates or ()
        # As callExtenders in kube-scheduler.
        for extender in extenders:
            if not extender.preempt_verb:
                continue
            client = self._client(extender)
            without = frozenset(found.node for found in candidates if not found.victims)
            decode = partial(_left, extender, without, preemptor=asked.pod, cluster=cluster)
            try:
                victims = None
                if not extender.node_cache_capable:
                    victims = await self._pods(v for found in candidates for v in found.victims)
                body = preemption_request(raw, candidates, victims)
                candidates = await client.call("preempt", extender.preempt_verb, body, decode)
            except ExtenderError as error:
                if not extender.ignorable:
                    return ProcessedCandidates((), str(error))
                client.ignored(error)
            if not candidates:
                break
        return ProcessedCandidates(tuple(found for found in candidates if found.victims))

    async def _pods(self, pods: Iterable[Pod]) -> dict[str, Json]:
        wanted = [*pods]
        found = await asyncio.gather(*map(self._objects.pod, wanted))
        return {pod.uid: raw for pod, raw in zip(wanted, found, strict=True) if raw is not None}

    async def _nodes_request(self, extender: Extender, pod: Json, names: Sequence[str]) -> bytes:
        if extender.node_cache_capable:
            return nodes_request(pod, names, None)
        nodes = await self._objects.nodes(names)
        return nodes_request(pod, names, [nodes[name] for name in names if name in nodes])

    def _client(self, extender: Extender) -> ExtenderClient:
        key = extender, changed_at(extender)
        if key not in self._clients:
            if len(self._clients) >= _MOST_CLIENTS:
                del self._clients[next(iter(self._clients))]
            self._clients[key] = ExtenderClient(extender, self._observe, clock=self._clock)
        return self._clients[key]


def tls_problem(extender: Extender, *, files: bool = True) -> str | None:
    """Return the mistake in the extender's certificates; None without a mistake.

    If `files` is False, only certificates inside the profile are checked.
    """
    if not files and extender.tls_config is not None:
        tls = extender.tls_config.without_files()
        extender = extender.model_copy(update={"tls_config": tls})
    try:
        tls_context(extender)
    except ValueError as error:
        return str(error)
    return None


def _weighted(answer: bytes, *, nodes: tuple[str, ...], weight: int) -> IntArray | None:
    scores = decode_priorities(answer, nodes)
    if scores is None:
        return None
    factor = weight * _SCALE
    if max(scores) * factor > _MOST_SCORE or -min(scores) * factor > _MOST_SCORE:
        raise AnswerError("a Score is too large; the highest is 10")
    return np.array(scores, np.int64) * factor


def _left(
    extender: Extender,
    without_victims: AbstractSet[str],
    answer: bytes,
    *,
    preemptor: Pod,
    cluster: ClusterView,
) -> tuple[PreemptionCandidate, ...]:
    victims = decode_preemption(answer).items()
    left = [_chosen(node, uids, number, preemptor, cluster) for node, (uids, number) in victims]
    # Each candidate must have victims, unless it was sent without victims.
    wrong = [
        found.node for found in left if not found.victims and found.node not in without_victims
    ]
    if wrong and not extender.ignorable:
        raise AnswerError(f'expected at least one victim pod on node "{min(wrong)}"')
    return tuple(found for found in left if found.node not in wrong)


def _chosen(
    node: str, uids: Iterable[str], violations: int, preemptor: Pod, cluster: ClusterView
) -> PreemptionCandidate:
    # As convertToVictims in kube-scheduler.
    row = cluster.row(node)
    if row is None or cluster.node(row) is None:
        raise AnswerError(f'claims to preempt on node "{node[:253]}", which is not found')
    # Members of a group that is disrupted as a whole may be on other nodes.
    there: dict[str, Pod] = {pod.uid: pod for pod in cluster.disrupted_with(row).values()}
    pods: list[Pod] = []
    for uid in uids:
        pod = there.get(uid)
        if pod is None:
            raise AnswerError(
                f"claims to preempt pod (UID: {uid[:64]}) on node: {node}, but the pod is not "
                "found on that node"
            )
        if pod.spec.priority >= preemptor.spec.priority:
            raise AnswerError(f"claims to preempt pod {pod.key}, whose priority is not lower")
        pods.append(pod)
    return PreemptionCandidate(node, tuple(pods), violations)
