"""Writes and reads the JSON of extenders (kube-scheduler/extender/v1/types.go, extender.go).

Go sends the capitalised names of struct fields, and reads keys in any case. So does this module,
because some extenders answer with the lower-case keys of older versions. A value of a wrong type is
an error, as in Go; unknown keys are ignored.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import orjson

from mooring.extenders.verdicts import NodeFailure
from mooring.framework.post_filter import PreemptionCandidate
from mooring.model.pod import Pod
from mooring.policy.extender import Extender

_MOST_REASON: Final = 1024
"""The most characters of a text in an extender's answer; the rest is cut off."""
_INT64: Final = 2**63
_KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {dict: "an object", list: "a list", str: "a text", int: "an integer", bool: "a boolean"}
)
_Kind = TypeVar("_Kind", dict[str, Any], list[Any], str, int)

Json = bytes
"""An object as JSON; it is sent unchanged."""


class AnswerError(Exception):
    """Raised if an extender reports an error or its answer is unusable; the text has the reason."""


def nodes_request(pod: Json, names: Iterable[str], nodes: Iterable[Json] | None) -> bytes:
    """Return the ExtenderArgs to filter or prioritize; without `nodes`, only names are sent."""
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
    """Return the ExtenderPreemptionArgs, with the victims from `pods` (by uid).

    If `pods` is None, only the victims' uids are sent.
    """
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
    """Return the ExtenderBindingArgs to bind the pod to the node."""
    return orjson.dumps(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    )


def decode_filter(
    body: bytes, sent: tuple[str, ...], extender: Extender
) -> tuple[tuple[str, ...], dict[str, NodeFailure]]:
    """Return the passed nodes of an ExtenderFilterResult, and why each other node failed.

    Raises AnswerError if the answer is malformed, has an `Error`, or names an unknown node.
    """
    result = _read(_loaded(body), dict, "the answer")
    _raise_reported(result)
    passed = _get(result, "NodeNames") if extender.node_cache_capable else None
    if passed is None:
        nodes = _read(_get(result, "Nodes"), dict, "Nodes")
        passed = [*map(_name, _read(_get(nodes, "items"), list, "Nodes.items"))]
    if tuple(_read(passed, list, "NodeNames")) == sent:
        return sent, {}
    no_reason = f"node(s) were filtered out by extender {extender.name}"
    omitted = NodeFailure(no_reason, resolvable=False, extender=extender.name)
    failed, left = dict.fromkeys(sent, omitted), dict[str, object]()
    for name in passed:
        if _read(name, str, "NodeNames") not in failed and name not in left:
            text = f'claims a filtered node "{_short(name or "")}" which is not found in the input'
            raise AnswerError(f"{text} node list")
        left[name] = failed.pop(name, None)
    for key, resolvable in (("FailedNodes", True), ("FailedAndUnresolvableNodes", False)):
        for node, given in _read(_get(result, key), dict, key).items():
            reason = _short(_read(given, str, key))
            if node in failed:
                failed[node] = NodeFailure(reason, resolvable, extender.name)
    return tuple(left), failed


def _name(node: object) -> Any:
    where = "Nodes.items.metadata"
    return _get(_read(_get(_read(node, dict, "Nodes.items"), "metadata"), dict, where), "name")


def decode_priorities(body: bytes, nodes: tuple[str, ...]) -> list[int] | None:
    """Return the scores in a HostPriorityList, in the order of `nodes`; None if it is empty.

    A missing node gets 0. Raises AnswerError for a malformed answer.
    """
    scores: dict[str, int] = {}
    for item in _read(_loaded(body), list, "the answer"):
        host, score = (item.get("Host"), item.get("Score")) if type(item) is dict else (None, None)
        if type(host) is not str or type(score) is not int:  # most answer as Go writes it
            priority = _read(item, dict, "a priority")
            host = _read(_get(priority, "Host"), str, "Host")
            score = _read(_get(priority, "Score"), int, "Score")
        # A node that is listed twice gets the sum.
        scores[host] = scores.get(host, 0) + score
    return [scores.get(node, 0) for node in nodes] if scores else None


def decode_preemption(body: bytes) -> dict[str, tuple[list[str], int]]:
    """Return the uids of victims and the number of violated budgets, for each node.

    Raises AnswerError if the answer is malformed.
    """
    key, found = "NodeNameToMetaVictims", dict[str, tuple[list[str], int]]()
    by_node = _read(_get(_read(_loaded(body), dict, "the answer"), key), dict, key)
    for node, given in by_node.items():
        victims = _read(given, dict, f"{key}.{_short(node)}")
        pods = _read(_get(victims, "Pods"), list, "Pods")
        uids = (_read(_get(_read(pod, dict, "Pods"), "UID"), str, "Pods.UID") for pod in pods)
        violations = _read(_get(victims, "NumPDBViolations"), int, "NumPDBViolations")
        found[node] = [*dict.fromkeys(uids)], violations
    return found


def decode_binding(body: bytes) -> None:
    """Raise AnswerError unless the ExtenderBindingResult reports success."""
    _raise_reported(_read(_loaded(body), dict, "the answer"))


def _loaded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        reason = "it is empty" if not body.strip() else str(error)
        raise AnswerError(f"the answer is not JSON: {reason}") from None


def _raise_reported(result: Mapping[str, Any]) -> None:
    if error := _read(_get(result, "Error"), str, "Error"):
        raise AnswerError(_short(error))


def _get(value: Mapping[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    lower = name.lower()
    return next((item for key, item in value.items() if key.lower() == lower), None)


def _read(value: object, kind: type[_Kind], where: str) -> _Kind:
    if value is None:
        return kind()
    if type(value) is kind and (kind is not int or -_INT64 <= value < _INT64):
        return value
    found = "a number" if type(value) is int else _KINDS.get(type(value), "a number")
    raise AnswerError(f"{where} must be {_KINDS[kind]}, and is {found}")


def _short(text: str) -> str:
    return " ".join(text[:_MOST_REASON].split())
