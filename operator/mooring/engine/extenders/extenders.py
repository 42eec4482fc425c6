"""Calls the extenders of a profile, in kube-scheduler's order, and combines their answers."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from mooring.engine.extenders.answers import (
    ExtenderAnswers,
    FilterCall,
    Filtered,
    NodeFailure,
    PreemptCall,
)
from mooring.engine.extenders.client import (
    ExtenderClient,
    ExtenderError,
    NotLeading,
    tls_context,
)
from mooring.engine.extenders.protocol import (
    AnswerError,
    FilterAnswer,
    Json,
    MetaVictims,
    binding_request,
    decode_binding,
    decode_filter,
    decode_preemption,
    decode_priorities,
    nodes_request,
    preemption_request,
)
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.model.pod import Pod
from mooring.policy.extender import Extender
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

__all__ = ["ExtenderObjects", "Extenders", "PodGone", "tls_problem"]

logger = logging.getLogger(__name__)

_SCALE: Final = 10
"""100, the highest score of a plugin, over 10, the highest of an extender (MaxExtenderPriority)."""
_MOST_SCORE: Final = 2**53
"""A weighted score beyond this is an error: sums must fit into 64 bits."""
_MOST_CLIENTS: Final = 64
"""Extenders with kept connections; changed profiles would else add more and more."""
_MOST_IN_ALL: Final = 1024
"""Calls in flight to all extenders, because each has a connection of its own."""
_NO_REASON: Final = "node(s) were filtered out by extender {}"


class PodGone(Exception):  # noqa: N818 - says what happened
    """There is no such pod any more, so nothing has to be decided."""


class ExtenderObjects(Protocol):
    """Reads the objects that extenders get, as JSON."""

    async def pod(self, pod: Pod) -> Json:
        """Return the pod. Raise PodGone, or ExtenderError if it cannot be read."""

    async def nodes(self, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the nodes by name; one that is not known is left out."""


class Extenders:
    """Calls extenders with what `objects` reads, over connections that are kept.

    `observe` is called after each call with the extender, the verb, the result and the seconds.
    `may_write` tells whether this replica leads: without that no pod may be bound. `bound_node`
    reads the node of a pod from the API server; it waits until the server answers.
    """

    def __init__(
        self,
        objects: ExtenderObjects,
        *,
        observe: Callable[[str, str, str, float], None] = lambda *_observed: None,
        may_write: Callable[[], bool] = lambda: True,
        bound_node: Callable[[Pod], Awaitable[str | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._observe = observe
        self._may_write = may_write
        self._bound_node = bound_node
        self._clock = clock
        self._clients = OrderedDict[Extender, ExtenderClient]()
        self._in_all = asyncio.Semaphore(_MOST_IN_ALL)
        self._closing: set[asyncio.Task[None]] = set()

    async def answer(
        self,
        call: FilterCall | PreemptCall,
        extenders: Sequence[Extender],
        pod: Pod,
        answers: ExtenderAnswers,
        cluster: ClusterView,
    ) -> ExtenderAnswers:
        """Return the answers so far, and that to the call.

        Raises:
            ExtenderError: if an extender that may not be ignored fails to filter.
            PodGone: if the pod does not exist any more.
        """
        raw = await self._objects.pod(pod)
        if isinstance(call, PreemptCall):
            processed = await self._preempt(call, extenders, pod, raw, cluster)
            return replace(answers, processed=processed)
        ignored = set[tuple[Extender, str]]()
        try:
            filtered = await self._filter(call, extenders, raw, ignored)
        except ExtenderError as error:
            if not call.nominated:
                raise
            # kube-scheduler logs it and looks at all nodes (evaluateNominatedNode).
            logger.warning("pod %s, evaluating its nominated node: %s", pod.key, error)
            return replace(answers, nominee=call.nodes[0], passes_nominee=False)
        if call.nominated:
            passes = bool(filtered.passed)
            return replace(answers, nominee=call.nodes[0], passes_nominee=passes)
        scores: Mapping[str, IntArray] = {}
        if len(filtered.passed) > 1:
            scoring = [e for e in extenders if (e, "prioritize") not in call.without]
            scores = await self._prioritize(
                scoring, filtered.passed, raw, ignored, for_group=call.for_group
            )
        return replace(
            answers,
            filtered=filtered,
            asked=call,
            evaluated_nodes=call.evaluated_nodes,
            scores=scores,
            ignored=frozenset(ignored),
        )

    async def bind(self, extenders: Iterable[Extender], pod: Pod, node: str) -> bool:
        """Have the first extender that binds bind the pod; return whether there is one.

        An extender that is ignorable and fails is passed over, as in kube-scheduler. When an
        extender fails, the pod may be bound all the same: the API server knows.

        Raises:
            ExtenderError: if the extender fails, and the pod is not bound to the node.
        """
        for extender in extenders:
            if not extender.bind_verb:
                continue
            body = binding_request(pod.namespace, pod.name, pod.uid, node)
            client = self._client(extender)
            try:
                answer = await client.call("bind", extender.bind_verb, body, self._may_write)
                try:
                    decode_binding(answer)
                except AnswerError as error:
                    raise client.wrong("bind", error) from None
            except NotLeading:
                raise
            except ExtenderError as error:
                if self._bound_node is not None and await self._bound_node(pod) == node:
                    return True
                if not extender.ignorable:
                    raise
                client.ignored(error)
                continue
            return True
        return False

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def _filter(
        self,
        call: FilterCall,
        extenders: Iterable[Extender],
        raw: Json,
        ignored: set[tuple[Extender, str]],
    ) -> Filtered:
        """Give each extender the nodes that the one before passed (findNodesThatPassExtenders).

        Extenders that fail and are ignored are added to `ignored`.

        Raises:
            ExtenderError: if an extender that may not be ignored fails.
        """
        passed, failed = call.nodes, dict[str, NodeFailure]()
        for extender in extenders:
            if not extender.filter_verb or (extender, "filter") in call.without:
                continue
            if not passed:
                break
            client = self._client(extender)
            try:
                body = await self._nodes_request(extender, raw, passed)
                result = await client.call(
                    "filter", extender.filter_verb, body, for_group=call.for_group
                )
                try:
                    answer = decode_filter(result, passed, by_name=extender.node_cache_capable)
                except AnswerError as error:
                    raise client.wrong("filter", error) from None
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                client.ignored(error)
                ignored.add((extender, "filter"))
                continue
            failed.update(_failures(answer, passed, extender.name))
            passed = answer.passed
        return Filtered(passed, failed, call.rows if passed is call.nodes else None)

    async def _prioritize(
        self,
        extenders: Iterable[Extender],
        nodes: tuple[str, ...],
        raw: Json,
        ignored: set[tuple[Extender, str]],
        *,
        for_group: bool,
    ) -> dict[str, IntArray]:
        """Return the weighted scores of the nodes by extender; add one that fails to `ignored`.

        Of extenders with the same name, such as two verbs of one service, it is their sum.
        """
        scoring = [extender for extender in extenders if extender.prioritize_verb]
        calls = [self._scores(e, nodes, raw, ignored, for_group=for_group) for e in scoring]
        # Most often there is one; it needs no task of its own.
        found = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
        total = dict[str, IntArray]()
        for extender, scores in zip(scoring, found, strict=True):
            if scores is not None:
                total[extender.name] = total.get(extender.name, 0) + scores
        return total

    async def _scores(
        self,
        extender: Extender,
        nodes: tuple[str, ...],
        raw: Json,
        ignored: set[tuple[Extender, str]],
        *,
        for_group: bool,
    ) -> IntArray | None:
        client = self._client(extender)
        try:
            body = await self._nodes_request(extender, raw, nodes)
            result = await client.call(
                "prioritize", extender.prioritize_verb, body, for_group=for_group
            )
            try:
                scores = _weighted(decode_priorities(result, nodes), extender.weight)
            except AnswerError as error:
                raise client.wrong("prioritize", error) from None
        except ExtenderError as error:
            client.ignored(error)
            ignored.add((extender, "prioritize"))
            return None
        return scores

    async def _preempt(
        self,
        call: PreemptCall,
        extenders: Iterable[Extender],
        pod: Pod,
        raw: Json,
        cluster: ClusterView,
    ) -> ProcessedCandidates:
        """Give each extender the candidates that the one before it left (callExtenders).

        An empty answer ends the preemption.
        """
        candidates = call.candidates
        for extender in extenders:
            if not extender.preempt_verb:
                continue
            try:
                candidates = await self._process(extender, candidates, pod, raw, cluster)
            except ExtenderError as error:
                if not extender.ignorable:
                    return ProcessedCandidates((), str(error))
                self._client(extender).ignored(error)
                continue
            if not candidates:
                break
        return ProcessedCandidates(candidates)

    async def _process(
        self,
        extender: Extender,
        candidates: Sequence[PreemptionCandidate],
        pod: Pod,
        raw: Json,
        cluster: ClusterView,
    ) -> tuple[PreemptionCandidate, ...]:
        """Return what one extender leaves of the candidates (ProcessPreemption).

        Raises:
            ExtenderError: if it fails, or names a pod that may not be a victim.
        """
        client = self._client(extender)
        victims = {
            candidate.node: MetaVictims(
                tuple(victim.uid for victim in candidate.victims), candidate.violations
            )
            for candidate in candidates
        }
        pods = None
        if not extender.node_cache_capable:
            pods = await self._pods(v for candidate in candidates for v in candidate.victims)
        body = preemption_request(raw, victims, pods)
        result = await client.call("preempt", extender.preempt_verb, body)
        try:
            answer = decode_preemption(result)
            left = [_chosen(node, meta, pod, cluster) for node, meta in answer.items()]
        except AnswerError as error:
            raise client.wrong("preempt", error) from None
        without = [candidate.node for candidate in left if not candidate.victims]
        if without and not extender.ignorable:
            problem = AnswerError(f'expected at least one victim pod on node "{without[0]}"')
            raise client.wrong("preempt", problem)
        return tuple(candidate for candidate in left if candidate.victims)

    async def _pods(self, pods: Iterable[Pod]) -> dict[str, Json]:
        """Return the pods as JSON by uid; those that have gone are left out."""
        found: dict[str, Json] = {}

        async def read(pod: Pod) -> None:
            try:
                found[pod.uid] = await self._objects.pod(pod)
            except PodGone:
                return

        await asyncio.gather(*(read(pod) for pod in pods))
        return found

    async def _nodes_request(self, extender: Extender, pod: Json, names: Sequence[str]) -> bytes:
        if extender.node_cache_capable:
            return nodes_request(pod, names, None)
        nodes = await self._objects.nodes(names)
        return nodes_request(pod, names, [nodes[name] for name in names if name in nodes])

    def _client(self, extender: Extender) -> ExtenderClient:
        """Return the client of the extender; of too many, close the one used longest ago."""
        client = self._clients.get(extender)
        if client is None:
            if len(self._clients) >= _MOST_CLIENTS:
                self._close_unused()
            client = ExtenderClient(extender, self._observe, self._in_all, clock=self._clock)
            self._clients[extender] = client
        self._clients.move_to_end(extender)
        return client

    def _close_unused(self) -> None:
        """Close the client that was not used for longest, if one has no call in flight."""
        unused = next((key for key, client in self._clients.items() if not client.in_use), None)
        if unused is not None:
            task = asyncio.get_running_loop().create_task(self._clients.pop(unused).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def tls_problem(extender: Extender, *, files: bool = True) -> str | None:
    """Return why the certificates of the extender cannot be used; None if they can.

    Without `files`, only the certificates that the profile itself contains are looked at.
    """
    if not files and extender.tls_config is not None:
        tls = extender.tls_config.without_files()
        extender = extender.model_copy(update={"tls_config": tls})
    try:
        tls_context(extender)
    except ValueError as error:
        return str(error)
    return None


def _failures(
    answer: FilterAnswer, sent: Collection[str], extender: str
) -> Iterator[tuple[str, NodeFailure]]:
    """Return each node that was sent and did not pass, and why."""
    if len(answer.passed) == len(sent):
        return
    omitted = NodeFailure(_NO_REASON.format(extender), resolvable=False, extender=extender)
    for node in set(sent).difference(answer.passed):
        if (reason := answer.unresolvable.get(node)) is not None:
            yield node, NodeFailure(reason, resolvable=False, extender=extender)
        elif (reason := answer.failed.get(node)) is not None:
            yield node, NodeFailure(reason, resolvable=True, extender=extender)
        else:
            yield node, omitted


def _weighted(scores: Sequence[int] | None, weight: int) -> IntArray | None:
    """Return the scores (int64) on the scale of plugins, times the weight; None without any.

    Raises:
        AnswerError: if a score is too large to be added to others.
    """
    if scores is None:
        return None
    factor = weight * _SCALE
    if max(scores) * factor > _MOST_SCORE or -min(scores) * factor > _MOST_SCORE:
        raise AnswerError("a Score is too large; the highest is 10")
    return np.array(scores, np.int64) * factor


def _chosen(
    node: str, victims: MetaVictims, preemptor: Pod, cluster: ClusterView
) -> PreemptionCandidate:
    """Return the candidate that an extender answered with (convertToVictims).

    Raises:
        AnswerError: if there is no such node, or a victim is neither on it nor a member of a group
            that is disrupted with a pod on it, or has too high a priority.
    """
    row = cluster.row(node)
    if row is None or cluster.node(row) is None:
        raise AnswerError(f'claims to preempt on node "{node[:253]}", which is not found')
    there: dict[str, Pod] = {pod.uid: pod for pod in cluster.disrupted_with(row).values()}
    pods: list[Pod] = []
    for uid in victims.uids:
        pod = there.get(uid)
        if pod is None:
            raise AnswerError(
                f"claims to preempt pod (UID: {uid[:64]}) on node: {node}, but the pod is not "
                "found on that node"
            )
        if pod.spec.priority >= preemptor.spec.priority:
            raise AnswerError(f"claims to preempt pod {pod.key}, whose priority is not lower")
        pods.append(pod)
    return PreemptionCandidate(node, tuple(pods), victims.violations)
