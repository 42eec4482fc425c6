"""Estimates the cost of interpreting an expression once.

A unit is about 0.1 us. An estimate depends only on the text of the expression, so that the validity
of a profile depends on no clock.
"""

from typing import Final

from mooring.cel.regular_expressions import compile_pattern
from mooring.cel.tree import Comprehension, Expression, FunctionCall, ListOf, Literal

CALL: Final = 50
"""The time of passing values to a call and taking the result, in units of 0.1 µs."""
_ITEMS: Final = 16
"""The number of items that a list or map of unknown size is assumed to have."""
_PATTERN: Final = 50
_PATTERN_SIZE: Final = 5
"""The time of one instruction of a regular expression, in units of 0.1 µs."""


def cost(expression: Expression) -> int:
    """Return the estimated time of an evaluation in units of 0.1 µs, without the time `CALL`."""
    match expression:
        case Comprehension():
            items, *body = expression.parts()
            times = len(items.elements) if isinstance(items, ListOf) else _ITEMS
            return cost(items) + times * sum(map(cost, body))
        case FunctionCall(function="matches", args=[*_, Literal(value=str(pattern))]):
            own = _PATTERN + _PATTERN_SIZE * compile_pattern(pattern).size
        case _:
            own = 1
    return own + sum(map(cost, expression.parts()))
