"""The extender protocol's JSON (kube-scheduler/extender/v1/types.go, pkg/scheduler/extender.go).

Go sends the names of struct fields, which are capitalised, and reads keys in any case. Some
extenders answer with the lower-case keys of older versions, so every key is read in any case here
too. An answer of the wrong type is an error, as in Go; unknown keys are ignored.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import orjson

from mooring.framework.post_filter import PreemptionCandidate
from mooring.model.pod import Pod

__all__ = [
    "AnswerError",
    "FilterAnswer",
    "Json",
    "MetaVictims",
    "binding_request",
    "decode_binding",
    "decode_filter",
    "decode_preemption",
    "decode_priorities",
    "nodes_request",
    "preemption_request",
]

_MOST_REASON: Final = 1024
"""Characters of an extender's text that are kept."""
_INT64: Final = 2**63

Json = bytes
"""A value that is JSON already, such as a pod as the API server sent it."""


class AnswerError(Exception):
    """The extender reports an error, or its answer cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The nodes that passed, without repeats, and the reasons of nodes that failed."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """The uids of the victims on one node, and how many violate a disruption budget."""

    uids: tuple[str, ...]
    violations: int


def nodes_request(pod: Json, names: Iterable[str], nodes: Iterable[Json] | None) -> bytes:
    """Return the ExtenderArgs of filter and prioritize; without node objects, names are sent."""
    items = None if nodes is None else [orjson.Fragment(node) for node in nodes]
    return orjson.dumps(
        {
            "Pod": orjson.Fragment(pod),
            "Nodes": None if items is None else {"metadata": {}, "items": items},
            "NodeNames": list(names) if items is None else None,
        }
    )


def preemption_request(
    pod: Json, candidates: Iterable[PreemptionCandidate], pods: Mapping[str, Json] | None
) -> bytes:
    """Return the ExtenderPreemptionArgs; `pods` are all victims by uid, None to send uids."""
    victims = {
        candidate.node: {
            "Pods": [
                {"UID": victim.uid} if pods is None else orjson.Fragment(pods[victim.uid])
                for victim in candidate.victims
                if pods is None or victim.uid in pods
            ],
            "NumPDBViolations": candidate.violations,
        }
        for candidate in candidates
    }
    return orjson.dumps(
        {
            "Pod": orjson.Fragment(pod),
            "NodeNameToVictims": None if pods is None else victims,
            "NodeNameToMetaVictims": victims if pods is None else None,
        }
    )


def binding_request(pod: Pod, node: str) -> bytes:
    """Return the ExtenderBindingArgs."""
    return orjson.dumps(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    )


def decode_filter(body: bytes, sent: Collection[str], *, by_name: bool) -> FilterAnswer:
    """Return the ExtenderFilterResult; `by_name` for an extender that has a cache of nodes.

    Failed nodes that were not sent are left out.

    Raises:
        AnswerError: for an answer of the wrong form, with an `Error`, or with an unknown node.
    """
    result = _object(_loaded(body), "the answer")
    _raise_reported(result)
    names, nodes = _get(result, "NodeNames"), _get(result, "Nodes")
    passed: list[Any] = []
    if by_name and names is not None:
        passed = _list(names, "NodeNames")
    elif nodes is not None:
        items = _get(_object(nodes, "Nodes"), "items")
        for item in _list(items, "Nodes.items") if items is not None else ():
            metadata = _get(_object(item, "Nodes.items"), "metadata")
            name = _get(_object(metadata, "Nodes.items.metadata"), "name")
            passed.append(_text(name, "Nodes.items.metadata.name"))
    left = tuple(sent)
    if tuple(passed) != left:
        known = frozenset(sent)
        for name in passed:
            if _text(name, "NodeNames") not in known:
                text = f'claims a filtered node "{_short(name)}" which is not found in the input'
                raise AnswerError(f"{text} node list")
        left = tuple(dict.fromkeys(passed))
    failed, unresolvable = (
        _of_nodes(sent, _reasons(result, key))
        for key in ("FailedNodes", "FailedAndUnresolvableNodes")
    )
    return FilterAnswer(left, failed, unresolvable)


def decode_priorities(body: bytes, nodes: tuple[str, ...]) -> list[int] | None:
    """Return the scores of the nodes in a HostPriorityList, in the order of `nodes`.

    A node that is listed twice gets the sum, one that is not listed 0. Other nodes are left out.
    None for an empty list.

    Raises:
        AnswerError: for an answer of the wrong form.
    """
    priorities = _loaded(body)
    if (plain := _plain_priorities(priorities, nodes)) is not None:
        return plain
    scores: dict[str, int] = {}
    for item in _list(priorities, "the answer") if priorities is not None else ():
        priority = _object(item, "a priority")
        host = _get(priority, "Host")
        score = _get(priority, "Score")
        name = "" if host is None else _text(host, "Host")
        scores[name] = scores.get(name, 0) + _integer(score, "Score")
    return [scores.get(node, 0) for node in nodes] if scores else None


def _plain_priorities(priorities: Any, nodes: tuple[str, ...]) -> list[int] | None:
    """Return the scores if all have Go's own keys, right types and different hosts; else None.

    An extender answers with one for each node, so this is what costs time. Most answer in the order
    in which the nodes were sent; then nothing has to be looked up.
    """
    found: dict[str, int] | None = None
    try:
        pairs = zip(nodes, priorities, strict=False)
        scores = [item["Score"] for node, item in pairs if item["Host"] == node]
        if not len(scores) == len(nodes) == len(priorities):
            found = {item["Host"]: item["Score"] for item in priorities}
            scores = [*found.values()]
            if {*map(type, found)} != {str} or len(found) < len(priorities):
                return None
    except (KeyError, TypeError):
        return None
    if not scores or {*map(type, scores)} != {int}:
        return None
    if not -_INT64 <= min(scores) <= max(scores) < _INT64:
        return None
    return scores if found is None else [*map(found.get, nodes, repeat(0))]


def decode_preemption(body: bytes) -> dict[str, MetaVictims]:
    """Return the ExtenderPreemptionResult: victims by node.

    Raises:
        AnswerError: for an answer of the wrong form.
    """
    victims: dict[str, MetaVictims] = {}
    key = "NodeNameToMetaVictims"
    by_node = _get(_object(_loaded(body), "the answer"), key)
    for node, found in (_object(by_node, key) if by_node is not None else {}).items():
        on_node = _object(found, f"{key}.{_short(node)}")
        pods = _get(on_node, "Pods")
        uids = tuple(
            _text(_get(_object(pod, "Pods"), "UID"), "Pods.UID")
            for pod in (_list(pods, "Pods") if pods is not None else ())
        )
        violations = _integer(_get(on_node, "NumPDBViolations"), "NumPDBViolations")
        victims[node] = MetaVictims(tuple(dict.fromkeys(uids)), violations)
    return victims


def decode_binding(body: bytes) -> None:
    """Return if the ExtenderBindingResult reports success.

    Raises:
        AnswerError: for an answer of the wrong form, or with an `Error`.
    """
    _raise_reported(_object(_loaded(body), "the answer"))


def _loaded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        reason = "it is empty" if not body.strip() else str(error)
        raise AnswerError(f"the answer is not JSON: {reason}") from None


def _raise_reported(result: Mapping[str, Any]) -> None:
    """Raise AnswerError with the text of a non-empty `Error`."""
    error = _get(result, "Error")
    if error is not None and _text(error, "Error"):
        raise AnswerError(_short(error))


def _get(value: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key in any case, None without one; that of Go's own name is first."""
    if name in value:
        return value[name]
    lower = name.lower()
    return next((item for key, item in value.items() if key.lower() == lower), None)


def _reasons(result: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a map of nodes to reasons; empty if it is absent."""
    found = _get(result, name)
    if found is None:
        return {}
    return {
        node: "" if reason is None else _short(_text(reason, name))
        for node, reason in _object(found, name).items()
    }


def _of_nodes(nodes: Collection[str], reasons: Mapping[str, str]) -> Mapping[str, str]:
    """Return the reasons of these nodes."""
    known = frozenset(nodes) if reasons else ()
    return {node: reason for node, reason in reasons.items() if node in known}


def _object(value: object, where: str) -> dict[str, Any]:
    """Return the value, which must be an object; null counts as an empty one, as in Go."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)
    return value


def _integer(value: object, where: str) -> int:
    """Return the value, which must be an integer of 64 bits; null counts as 0, as in Go."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT64 <= value < _INT64:
        raise _wrong(where, "an integer", value)
    return value


def _wrong(where: str, expected: str, value: object) -> AnswerError:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    found = "null" if value is None else kinds.get(type(value), "a number")
    return AnswerError(f"{where} must be {expected}, and is {found}")


def _short(text: str) -> str:
    """Return the text as one line of limited length."""
    return " ".join(text[:_MOST_REASON].split())
