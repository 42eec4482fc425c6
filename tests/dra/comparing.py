"""Where Mooring's answers for a case differ from those of kube-scheduler's allocator."""

import json
from collections.abc import Sequence
from typing import Final

from dra.objects import Case
from dra.oracle import Answer

_WITHOUT_ANSWER: Final = frozenset(("timedOut", "panic"))


def differences(
    case: Case, expected: Sequence[Sequence[Answer]], found: Sequence[Answer]
) -> list[str]:
    """Return two lines for each node with an answer that kube-scheduler's allocator does not give.

    `expected` has its distinct answers by node. Where it has none, because it gives up or panics,
    every answer without devices is right.
    """
    lines = []
    for node, answers, answer in zip(case["nodes"], expected, found, strict=True):
        if any(each.keys() & _WITHOUT_ANSWER for each in answers):
            if "allocations" not in answer:
                continue
        elif _compact(answer) in map(_compact, answers):
            continue
        name = node["metadata"]["name"]
        lines.append(f"{name}: kube-scheduler {' or '.join(map(_compact, answers))}")
        lines.append(f"{' ' * len(name)}  Mooring        {_compact(answer)}")
    return lines


def _compact(answer: object) -> str:
    """Return JSON without empty fields, which are as good as absent."""
    return json.dumps(_without_empty(answer), sort_keys=True)


def _without_empty(value: object) -> object:
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {key: _without_empty(each) for key, each in value.items()}
    return {key: each for key, each in fields.items() if each not in ([], {})}
