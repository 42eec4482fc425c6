"""Where Mooring's answers for a case differ from those of kube-scheduler's allocator."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dra.asking import ask
from dra.objects import Case
from dra.oracle import Answer
from mooring.cel import device_selector
from mooring.plugins.dynamic_resources.selectors import (
    DeviceView,
    Selector,
    SelectorCompileError,
    SelectorError,
)

__all__ = ["differences", "ours"]

_WITHOUT_ANSWER: Final = frozenset(("timedOut", "panic"))


@dataclass(frozen=True)
class _Selector:
    """A compiled expression of `mooring.cel`, as the allocator calls it."""

    compiled: device_selector.DeviceSelector

    def matches(self, device: DeviceView) -> bool:
        """Return whether it selects the device; SelectorError if it fails."""
        view = device_selector.DeviceView(
            device.driver, device.attributes, device.capacity, device.allow_multiple_allocations
        )
        try:
            return self.compiled.matches(view)
        except device_selector.SelectorError as error:
            raise SelectorError(str(error)) from None


def _compiler(minor: str) -> Callable[[str], Selector]:
    def compile_selector(expression: str) -> Selector:
        compiled = device_selector.compile_selector(
            expression, attributes_may_be_lists=minor != "1.36"
        )
        if isinstance(compiled, device_selector.CompileError):
            raise SelectorCompileError(str(compiled))
        return _Selector(compiled)

    return compile_selector


def ours(case: Case, minor: str) -> list[Answer]:
    """Return what Mooring answers by the rules of this version."""
    return ask(case, minor, _compiler(minor))


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
