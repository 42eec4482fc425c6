"""Runs a plugin's methods and checks what they return (framework/runtime/framework.go).

Each call checks the type, shape and dtype of its result: numpy would silently stretch an array of
the wrong length, and the scheduler could choose a rejected node.

An exception or a wrong result is recorded in the pipeline's `failures` and becomes `PluginFailed`.
SystemExit is handled like any exception; KeyboardInterrupt is raised again. The methods from
`pre_filter` to `score` run too often to be timed here: `mooring.runtime.slow_decisions` finds slow
methods.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from enum import EnumMeta
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np

from mooring.framework.hints import QueueingHint
from mooring.framework.placements import Placement, PodGroupAssignments
from mooring.framework.plugin import (
    DeviceReadingPlugin,
    EnqueueExtensions,
    FilterPlugin,
    KeyedFilterPlugin,
    KeyedScorePlugin,
    Normalize,
    PermitPlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Plugin,
    PodGroupPostFilterPlugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ResourceFilterPlugin,
    ScorePlugin,
)
from mooring.framework.plugin_failures import ExtensionPoint, PluginFailed, one_line
from mooring.framework.post_filter import (
    Candidates,
    GroupNomination,
    GroupPreemption,
    Nomination,
    NotEligible,
    PodGroupPostFilterState,
    PostFilterResult,
    PostFilterState,
)
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import (
    SKIP,
    Explanation,
    PreFilterResult,
    Skip,
    Unschedulable,
    Wait,
)
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod
from mooring.pausing import Interrupted, timed
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.plugin_metrics import FILTER, PRE_FILTER, PRE_SCORE, SCORE, Status
from mooring.runtime.queued_pod import QueuedPod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "NOT_A_FILTER_STATE",
    "check_async",
    "first_gate",
    "run_devices_version",
    "run_explain",
    "run_filter",
    "run_filter_key",
    "run_generate_placements",
    "run_permit",
    "run_pod_group_post_filter",
    "run_post_filter",
    "run_pre_filter",
    "run_pre_score",
    "run_queueing_hint",
    "run_reserve",
    "run_resource_requests",
    "run_score",
    "run_score_key",
    "run_score_placement",
    "run_sort_key",
    "run_unreserve",
    "status_of",
    "wrong_explanation",
    "wrong_mask",
    "wrong_scores",
]

_Answer = TypeVar("_Answer")

_LONGEST_REASON: Final = 1024
"""The maximum number of characters of a plugin's reason; a longer reason is a failure of the
plugin."""
_MOST_AMOUNT: Final = 2**63
_BOOL: Final = np.dtype(np.bool_)
_INT64: Final = np.dtype(np.int64)
_UINT64: Final = np.dtype(np.uint64)
_max: Final = np.maximum.reduce
_NOT_MEASURED: Final = frozenset((ExtensionPoint.QUEUE_SORT, ExtensionPoint.QUEUEING_HINT))
"""The extension points whose duration is not measured: hints have their own metric, and
kube-scheduler does not measure QueueSort."""
_HIGHEST_RAW: Final = (2**63 - 1) // MAX_SCORE
"""The largest valid raw score; a larger score would overflow when scores are normalized."""

_MISTAKES: Final = frozenset(
    {type, EnumMeta, CoroutineType, Explanation, Nomination, NotEligible, QueueingHint, Wait}
)
"""The types that are never a state; a plugin that returns one of them as its state is wrong."""
NOT_A_FILTER_STATE: Final = _MISTAKES | {PreFilterResult, Unschedulable}
"""If `pre_filter` returns an object of one of these types, it is not the state for `filter`."""


def run_pre_enqueue(pipeline: Pipeline, plugin: PreEnqueuePlugin, pod: Pod) -> Unschedulable | None:
    """Run `pre_enqueue`; raise PluginFailed unless it returns None or Unschedulable."""
    point = ExtensionPoint.PRE_ENQUEUE
    answer = _timed(pipeline, plugin, point, plugin.pre_enqueue, pod)
    if problem := _wrong_verdict(answer, Unschedulable):
        raise _error(pipeline, plugin, point, f"pre_enqueue {problem}")
    return answer


def first_gate(pipeline: Pipeline, pod: Pod, only: str = "") -> tuple[str, Unschedulable] | None:
    """Return the name and result of the first PreEnqueue plugin that rejects the pod, or None.

    `only` is the name of the plugin to run; "" runs all plugins. Raises PluginFailed if a plugin
    fails.
    """
    for plugin in pipeline.pre_enqueue:
        if only in ("", plugin.name):
            answer = run_pre_enqueue(pipeline, plugin, pod)
            if answer is not None:
                return plugin.name, answer
    return None


def run_sort_key(
    pipeline: Pipeline, plugin: QueueSortPlugin, queued: QueuedPod
) -> tuple[int | float | str, ...]:
    """Run `sort_key`; raise PluginFailed unless it returns a tuple of numbers and texts."""
    point = ExtensionPoint.QUEUE_SORT
    key = _timed(pipeline, plugin, point, plugin.sort_key, queued)
    if not _is_sort_key(key):
        problem = f"sort_key {_instead(key, 'a tuple of numbers and texts')}"
        raise _error(pipeline, plugin, point, problem)
    return key


def run_queueing_hint(
    pipeline: Pipeline,
    plugin: EnqueueExtensions,
    pod: Pod,
    event: ClusterEvent,
    cluster: ClusterView,
) -> QueueingHint:
    """Run `queueing_hint` and check its result; return SKIP if the event is not registered."""
    point = ExtensionPoint.QUEUEING_HINT
    if (event.kind, event.action) not in plugin.events_to_register:
        return QueueingHint.SKIP
    metrics, result = pipeline.metrics, "Error"
    began = metrics.clock()
    try:
        hint = _timed(pipeline, plugin, point, plugin.queueing_hint, pod, event, cluster)
        if not isinstance(hint, QueueingHint):
            raise _error(
                pipeline, plugin, point, f"queueing_hint {_instead(hint, 'a QueueingHint')}"
            )
        result = hint.value
        return hint
    finally:
        metrics.queueing_hint_ran(plugin.name, event, result, metrics.clock() - began)


def run_pre_filter(
    pipeline: Pipeline, plugin: PreFilterPlugin, pod: Pod, cluster: ClusterView
) -> Any | Skip | PreFilterResult | Unschedulable:
    """Run `pre_filter`; raise PluginFailed for a result that only other methods may return."""
    point = PRE_FILTER
    if pipeline.metrics.sampled:
        answer = _measured(pipeline, plugin, point, plugin.pre_filter, pod, cluster)
    else:
        try:
            answer = plugin.pre_filter(pod, cluster)
        except BaseException as error:
            raise _failed(pipeline, plugin, point, error) from error
    if type(answer) in NOT_A_FILTER_STATE and (problem := _wrong_pre_filter(answer)):
        raise _error(pipeline, plugin, point, f"pre_filter {problem}")
    return answer


def run_filter(
    pipeline: Pipeline, plugin: FilterPlugin, pod: Pod, nodes: NodeView, state: Any
) -> BoolArray:
    """Run `filter`; raise PluginFailed unless it returns bool[nodes]."""
    if pipeline.metrics.sampled:
        mask = _measured(pipeline, plugin, FILTER, plugin.filter, pod, nodes, state)
    else:
        try:
            mask = plugin.filter(pod, nodes, state)
        except BaseException as error:
            raise _failed(pipeline, plugin, FILTER, error) from error
    if not _is_array(mask, _BOOL, len(nodes)):
        problem = wrong_mask(mask, len(nodes))
        raise _error(pipeline, plugin, FILTER, f"filter {problem}")
    return mask


def run_explain(
    pipeline: Pipeline, plugin: FilterPlugin, pod: Pod, nodes: NodeView, state: Any
) -> Explanation:
    """Run `explain` for rejected nodes; raise PluginFailed unless it returns an Explanation."""
    why = _measured(pipeline, plugin, FILTER, plugin.explain, pod, nodes, state)
    if problem := wrong_explanation(why, len(nodes)):
        raise _error(pipeline, plugin, FILTER, f"explain {problem}")
    return why


def run_resource_requests(
    pipeline: Pipeline, plugin: ResourceFilterPlugin, state: Any
) -> Mapping[str, int]:
    """Run `resource_requests`; raise PluginFailed unless it maps resources to amounts >= 0."""
    point = FILTER
    amounts = _measured(pipeline, plugin, point, plugin.resource_requests, state)
    if not _are_amounts(amounts):
        expected = "a mapping of resources to amounts from 0 on"
        problem = f"resource_requests {_instead(amounts, expected)}"
        raise _error(pipeline, plugin, point, problem)
    return amounts


def run_devices_version(pipeline: Pipeline, plugin: DeviceReadingPlugin, pod: Pod) -> Hashable:
    """Return the result of `devices_version`, which is not checked."""
    try:
        return plugin.devices_version(pod)
    except BaseException as error:
        raise _failed(pipeline, plugin, FILTER, error) from error


def run_filter_key(pipeline: Pipeline, plugin: KeyedFilterPlugin, pod: Pod) -> Hashable:
    """Run `filter_key`; raise PluginFailed if its result cannot be hashed."""
    return _called(pipeline, plugin, FILTER, _hashed, plugin.filter_key, pod)


def run_score_key(pipeline: Pipeline, plugin: KeyedScorePlugin, pod: Pod) -> Hashable:
    """Run `score_key`; raise PluginFailed if its result cannot be hashed."""
    return _called(pipeline, plugin, SCORE, _hashed, plugin.score_key, pod)


def _hashed(method: Callable[[Pod], Hashable], pod: Pod) -> Hashable:
    key = method(pod)
    hash(key)
    return key


def run_post_filter(
    pipeline: Pipeline, plugin: PostFilterPlugin, state: PostFilterState
) -> PostFilterResult:
    """Run `post_filter`; raise PluginFailed unless its nodes exist and its victims are on them.

    If a group is evicted as a whole, or if the pod is in a Queue, victims may be on other nodes.
    """
    point = ExtensionPoint.POST_FILTER
    answer = _measured(pipeline, plugin, point, plugin.post_filter, state)
    if problem := _wrong_post_filter(answer, state):
        raise _error(pipeline, plugin, point, f"post_filter {problem}")
    return answer


def run_pod_group_post_filter(
    pipeline: Pipeline, plugin: PodGroupPostFilterPlugin, state: PodGroupPostFilterState
) -> GroupPreemption:
    """Run `pod_group_post_filter`; raise PluginFailed unless all nodes and victims exist."""
    point, failures = ExtensionPoint.POST_FILTER, pipeline.failures
    call = partial(_measured, pipeline, plugin, point, plugin.pod_group_post_filter, state)
    answer, seconds = timed(call, failures.clock)
    if seconds > failures.slow_seconds:
        failures.slow(pipeline.blamed(plugin.name, point), seconds)
    if problem := _wrong_group_nomination(answer, state):
        raise _error(pipeline, plugin, point, f"pod_group_post_filter {problem}")
    return answer


def run_pre_score(
    pipeline: Pipeline, plugin: PreScorePlugin, pod: Pod, nodes: NodeView, cluster: ClusterView
) -> Any | Skip:
    """Run `pre_score`; raise PluginFailed if it returns a verdict other than SKIP."""
    point = PRE_SCORE
    if pipeline.metrics.sampled:
        answer = _measured(pipeline, plugin, point, plugin.pre_score, pod, nodes, cluster)
    else:
        try:
            answer = plugin.pre_score(pod, nodes, cluster)
        except BaseException as error:
            raise _failed(pipeline, plugin, point, error) from error
    if type(answer) in NOT_A_FILTER_STATE:
        problem = f"pre_score {_instead(answer, 'a state for score or SKIP')}"
        raise _error(pipeline, plugin, point, problem)
    return answer


def run_score(
    pipeline: Pipeline, plugin: ScorePlugin, pod: Pod, nodes: NodeView, state: Any
) -> IntArray:
    """Run `score`; raise PluginFailed unless it returns int64[nodes] in the allowed range."""
    if pipeline.metrics.sampled:
        raw = _measured(pipeline, plugin, SCORE, plugin.score, pod, nodes, state)
    else:
        try:
            raw = plugin.score(pod, nodes, state)
        except BaseException as error:
            raise _failed(pipeline, plugin, SCORE, error) from error
    if problem := wrong_scores(raw, len(nodes), plugin.normalize):
        raise _error(pipeline, plugin, SCORE, f"score {problem}")
    return raw


def run_generate_placements(
    pipeline: Pipeline,
    plugin: PlacementGeneratePlugin,
    group: PodGroupState,
    parent: Placement,
    cluster: ClusterView,
) -> tuple[Placement, ...] | Unschedulable:
    """Run `generate_placements`; raise PluginFailed for placements with rows outside the parent."""
    point = ExtensionPoint.PLACEMENT_GENERATE
    answer = _timed(pipeline, plugin, point, plugin.generate_placements, group, parent, cluster)
    if problem := _wrong_placements(answer, parent):
        raise _error(pipeline, plugin, point, f"generate_placements {problem}")
    return answer


def run_score_placement(
    pipeline: Pipeline,
    plugin: PlacementScorePlugin,
    group: PodGroupState,
    assignments: PodGroupAssignments,
    cluster: ClusterView,
) -> int:
    """Run `score_placement`; raise PluginFailed unless it returns an int in the allowed range."""
    point = ExtensionPoint.PLACEMENT_SCORE
    scored = _timed(pipeline, plugin, point, plugin.score_placement, group, assignments, cluster)
    highest = MAX_SCORE if plugin.normalize is Normalize.NONE else _HIGHEST_RAW
    if not isinstance(scored, int) or not 0 <= scored <= highest:
        expected = f"a number from 0 to {highest}"
        raise _error(pipeline, plugin, point, f"score_placement {_instead(scored, expected)}")
    return scored


def run_reserve(
    pipeline: Pipeline, plugin: ReservePlugin, pod: Pod, node: str
) -> Unschedulable | None:
    """Run `reserve`; raise PluginFailed unless it returns None or Unschedulable."""
    point = ExtensionPoint.RESERVE
    answer = _timed(pipeline, plugin, point, plugin.reserve, pod, node)
    if problem := _wrong_verdict(answer, Unschedulable):
        raise _error(pipeline, plugin, point, f"reserve {problem}")
    return answer


def run_unreserve(pipeline: Pipeline, plugin: ReservePlugin, pod: Pod, node: str) -> None:
    """Run `unreserve`; record its exception, so that the other plugins still run."""
    with suppress(PluginFailed):
        _timed(pipeline, plugin, ExtensionPoint.UNRESERVE, plugin.unreserve, pod, node)


def run_permit(
    pipeline: Pipeline, plugin: PermitPlugin, pod: Pod, node: str
) -> Wait | Unschedulable | None:
    """Run `permit`; raise PluginFailed for a wrong result, for example a Wait of less than 0 s."""
    point = ExtensionPoint.PERMIT
    answer = _timed(pipeline, plugin, point, plugin.permit, pod, node)
    if problem := _wrong_verdict(answer, Unschedulable, Wait):
        raise _error(pipeline, plugin, point, f"permit {problem}")
    return answer


def check_async(pipeline: Pipeline, plugin: Plugin, point: ExtensionPoint, answer: object) -> None:
    """Raise PluginFailed unless `answer` is None; `bind` may also return SKIP."""
    if answer is None or (point is ExtensionPoint.BIND and answer is SKIP):
        return
    expected = "None or SKIP" if point is ExtensionPoint.BIND else "None"
    method = "bind" if point is ExtensionPoint.BIND else "pre_bind"
    raise _error(pipeline, plugin, point, f"{method} {_instead(answer, expected)}")


def wrong_mask(mask: object, nodes: int) -> str:
    """Return why the result of `filter` is wrong; "" if it is not."""
    return "" if _is_array(mask, _BOOL, nodes) else _instead(mask, _array(_BOOL, (nodes,)))


def wrong_scores(raw: object, nodes: int, normalize: Normalize) -> str:
    """Return why the result of `score` is wrong; "" if it is not."""
    if not _is_array(raw, _INT64, nodes):
        return _instead(raw, _array(_INT64, (nodes,)))
    highest = MAX_SCORE if normalize is Normalize.NONE else _HIGHEST_RAW
    # As unsigned numbers the negative ones are the largest, so one comparison finds both.
    if not nodes or int(_max(raw.view(_UINT64))) <= highest:
        return ""
    found = f"returned numbers from {raw.min()} to {raw.max()}"
    if normalize is Normalize.NONE:
        return f"{found}; they must be from 0 to {MAX_SCORE}"
    return f"{found}; they must not be negative, nor larger than {_HIGHEST_RAW}"


def wrong_explanation(why: object, nodes: int) -> str:
    """Return why the result of `explain` is wrong; "" if it is not."""
    if not isinstance(why, Explanation):
        return _instead(why, "an Explanation")
    bits, resolvable, words = why.bits, why.resolvable, -(-len(why.reasons) // 64)
    shape = (nodes,) if words <= 1 else (nodes, words)
    if not (isinstance(bits, np.ndarray) and bits.dtype == _UINT64 and bits.shape == shape):
        expected = _array(_UINT64, shape)
        return f"returned bits that are {_described(bits)}; they must be {expected}"
    if wrong_mask(resolvable, nodes):
        found, expected = _described(resolvable), _array(_BOOL, (nodes,))
        return f"returned resolvable that is {found}; it must be {expected}"
    if not (_are_texts(why.reasons, tuple) and _are_texts(why.details, tuple)):
        return "returned reasons or details that are no tuple of texts"
    if why.details and len(why.details) != len(why.reasons):
        return f"returned {len(why.details)} details for {len(why.reasons)} reasons"
    return next((problem for reason in why.reasons if (problem := _wrong_reason(reason))), "")


def _wrong_pre_filter(answer: object) -> str:
    if isinstance(answer, Unschedulable):
        return _wrong_reason(answer.reason)
    if not isinstance(answer, PreFilterResult):
        return _instead(answer, "a state for filter, SKIP, PreFilterResult or Unschedulable")
    if not _are_texts(answer.node_names, frozenset):
        return "returned a PreFilterResult whose node_names are no frozenset of texts"
    return ""


def _wrong_post_filter(answer: object, state: PostFilterState) -> str:
    if isinstance(answer, Candidates):
        if not state.preempt_extenders or state.processed is not None:
            return "returned Candidates, which no extender is to be called with"
        found = ((c.node, c.victims) for c in answer.candidates)
        return next(filter(None, (_wrong_victims(*c, state.cluster) for c in found)), "")
    if isinstance(answer, Unschedulable | NotEligible):
        # Its length is not limited: preemption may have to list a reason for every node.
        return _wrong_reason(answer.reason, most=None)
    if not isinstance(answer, Nomination):
        return _instead(answer, "Nomination, Unschedulable or NotEligible")
    in_queue = state.cluster.queues.of(state.pod) is not None
    return _wrong_victims(answer.node, answer.victims, state.cluster, in_queue=in_queue)


def _wrong_victims(
    node: object, victims: object, cluster: ClusterView, *, in_queue: bool = False
) -> str:
    row = cluster.row(node) if isinstance(node, str) else None
    if row is None or cluster.node(row) is None:
        return f"nominated the node {one_line(node)!r}, which does not exist"
    if not isinstance(victims, tuple) or not all(isinstance(v, Pod) for v in victims):
        return "returned victims that are no tuple of pods"
    uids, on_node = {v.uid for v in victims}, {placed.pod.uid for placed in cluster.pods_on(row)}
    if in_queue and all(map(cluster.is_placed, victims)):
        return ""
    if len(victims) > len(uids) or not (
        uids <= on_node or uids <= cluster.disrupted_with(row).keys()
    ):
        return "returned victims that are not on the nominated node"
    return ""


def _wrong_group_nomination(answer: object, state: PodGroupPostFilterState) -> str:
    if isinstance(answer, Unschedulable | NotEligible):
        return _wrong_reason(answer.reason, most=None)
    if not isinstance(answer, GroupNomination):
        return _instead(answer, "GroupNomination, Unschedulable or NotEligible")
    cluster, nodes = state.cluster, answer.nodes
    if not isinstance(nodes, Mapping) or {pod.uid for pod in state.members} != {*nodes}:
        return "returned nodes that are not one for each member"
    rows = [cluster.row(node) if isinstance(node, str) else None for node in nodes.values()]
    if any(row is None or cluster.node(row) is None for row in rows):
        return "nominated a node that does not exist"
    victims: object = answer.victims
    are_pods = isinstance(victims, tuple) and all(isinstance(v, Pod) for v in victims)
    if not are_pods or any(not cluster.is_placed(v) for v in answer.victims):
        return "returned victims that are no tuple of pods on nodes"
    return ""


def _wrong_placements(answer: object, parent: Placement) -> str:
    if isinstance(answer, Unschedulable):
        return _wrong_reason(answer.reason)
    if not isinstance(answer, tuple) or not all(isinstance(p, Placement) for p in answer):
        return _instead(answer, "a tuple of Placements or Unschedulable")
    for placement in answer:
        rows = placement.rows
        if not isinstance(rows, np.ndarray) or rows.dtype != _INT64 or rows.ndim != 1:
            return f"returned rows that are {_described(rows)}; they must be an array int64"
        if placement is not parent and not np.isin(rows, parent.rows).all():
            return "returned rows that are not among those of the parent placement"
        if not _are_texts((placement.key, placement.value), tuple):
            return "returned a placement whose key or value is no text"
    return ""


def _wrong_verdict(answer: object, *types: type) -> str:
    if answer is None:
        return ""
    if not isinstance(answer, types):
        return _instead(answer, " or ".join(("None", *(expected.__name__ for expected in types))))
    if isinstance(answer, Unschedulable):
        return _wrong_reason(answer.reason)
    seconds = answer.seconds if isinstance(answer, Wait) else 0.0
    # A comparison with NaN is False.
    if not (isinstance(seconds, int | float | np.integer | np.floating) and seconds >= 0):
        return f"returned a Wait of {one_line(seconds)} seconds; they must be a number from 0 on"
    return ""


def _wrong_reason(reason: object, most: int | None = _LONGEST_REASON) -> str:
    if not isinstance(reason, str):
        return f"returned a reason that is {_described(reason)}; it must be a text"
    if most is not None and len(reason) > most:
        return f"returned a reason of {len(reason)} characters; it may have {most}"
    if not reason.isascii():
        try:
            reason.encode()
        except UnicodeEncodeError:
            return "returned a reason that is not valid Unicode"
    return ""


def _are_amounts(amounts: object) -> bool:
    return isinstance(amounts, Mapping) and all(
        isinstance(name, str) and isinstance(amount, int) and 0 <= amount < _MOST_AMOUNT
        for name, amount in amounts.items()
    )


def _is_sort_key(key: object) -> bool:
    return isinstance(key, tuple) and all(
        isinstance(item, int | float | str) and item == item  # noqa: PLR0124 - NaN is not
        for item in key
    )


def _called(
    pipeline: Pipeline,
    plugin: Plugin,
    point: ExtensionPoint,
    method: Callable[..., _Answer],
    *arguments: Any,
) -> _Answer:
    try:
        return method(*arguments)
    except BaseException as error:
        raise _failed(pipeline, plugin, point, error) from error


def _measured(
    pipeline: Pipeline,
    plugin: Plugin,
    point: ExtensionPoint,
    method: Callable[..., _Answer],
    *arguments: Any,
) -> _Answer:
    metrics = pipeline.metrics
    if not metrics.sampled or point in _NOT_MEASURED:
        return _called(pipeline, plugin, point, method, *arguments)
    began, status = metrics.clock(), Status.ERROR
    try:
        answer = _called(pipeline, plugin, point, method, *arguments)
        status = status_of(answer)
        return answer
    finally:
        seconds = metrics.clock() - began
        metrics.plugin_ran(plugin.name, point, status, seconds)


def status_of(answer: object) -> Status:
    """Return kube-scheduler's code for a result; a filter's mask is a success if a node fits."""
    if answer is SKIP:
        return Status.SKIP
    if isinstance(answer, np.ndarray) and answer.dtype == _BOOL:
        return Status.SUCCESS if answer.any() else Status.UNSCHEDULABLE
    if isinstance(answer, Unschedulable) and not answer.resolvable:
        return Status.UNRESOLVABLE
    if isinstance(answer, Unschedulable | NotEligible):
        return Status.UNSCHEDULABLE
    return Status.WAIT if isinstance(answer, Wait) else Status.SUCCESS


def _timed(
    pipeline: Pipeline,
    plugin: Plugin,
    point: ExtensionPoint,
    method: Callable[..., _Answer],
    *arguments: Any,
) -> _Answer:
    failures = pipeline.failures
    began = failures.clock()
    try:
        return _measured(pipeline, plugin, point, method, *arguments)
    finally:
        if (seconds := failures.clock() - began) > failures.slow_seconds:
            failures.slow(pipeline.blamed(plugin.name, point), seconds)


def _is_array(found: object, dtype: np.dtype[Any], length: int) -> TypeGuard[np.ndarray[Any, Any]]:
    return isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == (length,)


def _are_texts(texts: object, container: type[tuple[Any, ...] | frozenset[Any]]) -> bool:
    return isinstance(texts, container) and all(isinstance(text, str) for text in texts)


def _instead(found: object, expected: str) -> str:
    return f"returned {_described(found)}; it must return {expected}"


def _described(found: object) -> str:
    if isinstance(found, np.ndarray):
        return _array(found.dtype, found.shape)
    if found is None:
        return "None"
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return type(found).__name__


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"an array {dtype}[{','.join(map(str, shape))}]"


def _error(pipeline: Pipeline, plugin: Plugin, point: ExtensionPoint, problem: str) -> PluginFailed:
    pipeline.metrics.failed(point)
    return pipeline.failures.invalid(pipeline.blamed(plugin.name, point), problem)


def _failed(
    pipeline: Pipeline, plugin: Plugin, point: ExtensionPoint, error: BaseException
) -> PluginFailed:
    if isinstance(error, Interrupted):
        raise error
    pipeline.metrics.failed(point)
    return pipeline.failures.error(pipeline.blamed(plugin.name, point), error)
