"""Estimates what one evaluation of an expression by the CEL library costs.

A unit is about 0.1 us. An estimate depends on the text of the expression alone,
so that whether a profile is valid depends on no clock.
"""

import re
from typing import Final

from mooring.policy.rules.expressions import Call, Comprehension, Constant, Expression, ListOf

__all__ = ["CALL", "cost"]

CALL: Final = 50
"""Handing values to the library and taking the result."""
_ITEMS: Final = 16
"""Items of a list or map whose size the expression does not tell, such as node.taints."""
_PATTERN: Final = 50
_PATTERN_SIZE: Final = 10
"""For each instruction of a regular expression: the library compiles it in each evaluation."""
_TOKEN: Final = re.compile(
    r"(?P<unicode>\\[pP](?:\{[^}]*+\}?|.))|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*+\]?)"
    r"|\{(?P<least>\d{1,4})(?P<more>,)?(?P<most>\d{0,4})\}"
    r"|(?P<open>\()|(?P<close>\))|(?P<other>.)",
    re.DOTALL,
)
_UNICODE_SIZE: Final = 900
_SET_SIZE: Final = 8


def cost(expression: Expression) -> int:
    """Return the units of one evaluation, without CALL."""
    match expression:
        case Comprehension(parts=(items, *body)):
            times = len(items.parts) if isinstance(items, ListOf) else _ITEMS
            return cost(items) + times * sum(map(cost, body))
        case Call(function="matches", parts=(*_, Constant(value=str(pattern)))):
            own = _PATTERN + _PATTERN_SIZE * _size(pattern)
        case _:
            own = 1
    return own + sum(map(cost, expression.parts))


def _size(pattern: str) -> int:
    """Return about how many instructions a regular expression has: `(ab){3}` counts as six."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        if token["open"]:
            groups.append(0)
            continue
        if token["least"]:
            times = max(int(token["least"] or 0), int(token["most"] or 0))
            size, last = last * (times - 1), last * times
        elif token["close"]:
            size = last = groups.pop() if len(groups) > 1 else 0
        elif token["unicode"]:
            size = last = _UNICODE_SIZE
        else:
            size = last = 1 if token["other"] and token["other"] != "." else _SET_SIZE
        groups[-1] += size
    return sum(groups)
