"""Runs a plugin's deciding methods and checks what they return (framework/runtime/framework.go).

numpy would stretch an array of the wrong length silently, and a node that is rejected could be
chosen. So the type, shape and dtype of every result are checked, once per call. What is wrong is a
`PluginError` of one line that names the plugin and the distribution it comes from.
"""

from enum import EnumMeta
from types import CoroutineType
from typing import Any, Final, TypeGuard

import numpy as np

from mooring.framework.hints import QueueingHint
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import (
    FilterPlugin,
    Normalize,
    Plugin,
    PostFilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from mooring.framework.post_filter import Nomination, NotEligible, PostFilterState
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import (
    Explanation,
    PluginError,
    PreFilterResult,
    Skip,
    Unschedulable,
    Wait,
)
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "NOT_A_FILTER_STATE",
    "check_pre_filter",
    "run_explain",
    "run_filter",
    "run_post_filter",
    "run_pre_filter",
    "run_pre_score",
    "run_score",
    "wrong_explanation",
    "wrong_mask",
    "wrong_scores",
]

_BOOL: Final = np.dtype(np.bool_)
_INT64: Final = np.dtype(np.int64)
_UINT64: Final = np.dtype(np.uint64)
_max: Final = np.maximum.reduce
_HIGHEST_RAW: Final = (2**63 - 1) // MAX_SCORE
"""Larger raw scores would overflow when they are normalized."""

_MISTAKES: Final = frozenset(
    {type, EnumMeta, CoroutineType, Explanation, Nomination, NotEligible, QueueingHint, Wait}
)
"""Types of what is a mistake where a state is expected: verdicts of other methods, classes."""
_POST_FILTER_REJECTIONS: Final = frozenset({Unschedulable, NotEligible})
NOT_A_FILTER_STATE: Final = _MISTAKES | {PreFilterResult, Unschedulable}
"""Types of all results of `pre_filter` that are not simply a state for `filter`."""


def run_pre_filter(
    pipeline: Pipeline, plugin: PreFilterPlugin, pod: Pod, cluster: Snapshot
) -> Any | Skip | PreFilterResult | Unschedulable:
    """What `pre_filter` returns."""
    answer = plugin.pre_filter(pod, cluster)
    if type(answer) in NOT_A_FILTER_STATE:
        check_pre_filter(pipeline, plugin, answer)
    return answer


def check_pre_filter(pipeline: Pipeline, plugin: PreFilterPlugin, answer: object) -> None:
    """Raises PluginError if `pre_filter` may not return this."""
    if type(answer) in _MISTAKES:
        expected = "a state for filter, SKIP, PreFilterResult or Unschedulable"
        raise _error(pipeline, plugin, f"pre_filter {_instead(answer, expected)}")
    if isinstance(answer, PreFilterResult) and not _are_texts(answer.node_names, frozenset):
        problem = "returned a PreFilterResult whose node_names are no frozenset of texts"
        raise _error(pipeline, plugin, f"pre_filter {problem}")


def run_filter(
    pipeline: Pipeline, plugin: FilterPlugin, pod: Pod, nodes: NodeView, state: Any
) -> BoolArray:
    """What `filter` returns: bool[nodes]."""
    mask = plugin.filter(pod, nodes, state)
    if not _is_array(mask, _BOOL, len(nodes)):
        raise _error(pipeline, plugin, f"filter {wrong_mask(mask, len(nodes))}")
    return mask


def run_explain(
    pipeline: Pipeline, plugin: FilterPlugin, pod: Pod, nodes: NodeView, state: Any
) -> Explanation:
    """What `explain` returns, for nodes that `filter` rejected."""
    why = plugin.explain(pod, nodes, state)
    if problem := wrong_explanation(why, len(nodes)):
        raise _error(pipeline, plugin, f"explain {problem}")
    return why


def run_post_filter(
    pipeline: Pipeline, plugin: PostFilterPlugin, state: PostFilterState
) -> Nomination | Unschedulable | NotEligible:
    """What `post_filter` returns; a nominated node exists."""
    answer = plugin.post_filter(state)
    problem = _wrong_post_filter(answer, state.cluster)
    if problem:
        raise _error(pipeline, plugin, f"post_filter {problem}")
    return answer


def run_pre_score(
    pipeline: Pipeline, plugin: PreScorePlugin, pod: Pod, nodes: NodeView, cluster: Snapshot
) -> Any | Skip:
    """What `pre_score` returns."""
    answer = plugin.pre_score(pod, nodes, cluster)
    if type(answer) in NOT_A_FILTER_STATE:
        expected = "a state for score or SKIP"
        raise _error(pipeline, plugin, f"pre_score {_instead(answer, expected)}")
    return answer


def run_score(
    pipeline: Pipeline, plugin: ScorePlugin, pod: Pod, nodes: NodeView, state: Any
) -> IntArray:
    """What `score` returns: int64[nodes], from 0 on, up to 100 where it is not normalized."""
    raw = plugin.score(pod, nodes, state)
    if problem := wrong_scores(raw, len(nodes), plugin.normalize):
        raise _error(pipeline, plugin, f"score {problem}")
    return raw


def wrong_mask(mask: object, nodes: int) -> str:
    """What is wrong with the result of `filter`; "" if nothing is."""
    return "" if _is_array(mask, _BOOL, nodes) else _instead(mask, _array(_BOOL, (nodes,)))


def wrong_scores(raw: object, nodes: int, normalize: Normalize) -> str:
    """What is wrong with the result of `score`; "" if nothing is."""
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
    """What is wrong with the result of `explain`; "" if nothing is."""
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
    if not _are_texts(why.reasons, tuple):
        return "returned reasons that are no tuple of texts"
    return ""


def _wrong_post_filter(answer: object, cluster: Snapshot) -> str:
    if type(answer) in _POST_FILTER_REJECTIONS:
        return ""
    if not isinstance(answer, Nomination):
        return _instead(answer, "Nomination, Unschedulable or NotEligible")
    row = cluster.row(answer.node) if isinstance(answer.node, str) else None
    if row is None or cluster.node(row) is None:
        return f"nominated the node {answer.node!r}, which does not exist"
    victims: object = answer.victims
    if not isinstance(victims, tuple) or not all(isinstance(v, Pod) for v in victims):
        return "returned victims that are no tuple of pods"
    return ""


def _is_array(found: object, dtype: np.dtype[Any], length: int) -> TypeGuard[np.ndarray[Any, Any]]:
    return isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == (length,)


def _are_texts(texts: object, container: type[tuple[Any, ...] | frozenset[Any]]) -> bool:
    return isinstance(texts, container) and all(isinstance(text, str) for text in texts)


def _instead(found: object, expected: str) -> str:
    return f"returned {_described(found)}; it must return {expected}"


def _described(found: object) -> str:
    """What was found, in few words: never its contents, which may be long."""
    if isinstance(found, np.ndarray):
        return _array(found.dtype, found.shape)
    if found is None:
        return "None"
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return type(found).__name__


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"an array {dtype}[{','.join(map(str, shape))}]"


def _error(pipeline: Pipeline, plugin: Plugin, problem: str) -> PluginError:
    source = pipeline.distributions.get(plugin.name, "an unknown distribution")
    return PluginError(f"plugin {plugin.name} of {source}: {problem}")
