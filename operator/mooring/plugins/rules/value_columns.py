"""Values of an expression for many nodes at once, and CEL's operators on such values.

A value is the same for every node, or a column. A column of numbers or booleans is an array. A
column of texts has codes into a table, so that an operation runs once per distinct text. Each node
also has the number of an error (see `Errors`); 0 is no error. The value of a node with an error has
no meaning.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.cel.values import Failure
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

_LOWEST: Final = -(2**63)
Array = npt.NDArray[Any]
AnyCodes = npt.NDArray[np.signedinteger[Any]]


class Errors:
    """Gives each text of an error a number, beginning with 1."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def number(self, text: str) -> int:
        """Return the number of the text; a new text gets the next number."""
        return self._texts.setdefault(text, len(self._texts) + 1)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, sorted by their numbers."""
        return tuple(self._texts)


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """A text for each node: `table[code]`, where the code -1 stands for the last item.

    `code_of`, if it is fast, returns the code of a text, or -2 if no node has this text.
    """

    codes: AnyCodes
    table: Sequence[Any]
    code_of: Callable[[str], int] | None = None

    def compact(self) -> "Codes":
        """Return an equal column whose table has at most about four items per node."""
        if 4 * len(self.codes) >= len(self.table):
            return self
        used, codes = np.unique(self.codes, return_inverse=True)
        return Codes(codes, [self.table[code] for code in used.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value for each node: `data` is one Python object, an array or Codes.

    `errors` is one number for all nodes or an array with a number for each; 0 is no error.
    """

    data: Any
    errors: Any = 0

    @property
    def is_scalar(self) -> bool:
        """Whether the value and its error are the same for every node."""
        return not isinstance(self.data, np.ndarray | Codes) and isinstance(self.errors, int)


def coded(value: Value, texts: Callable[[Any], Any], errors: Errors, kind: str) -> Value:
    """Return a column with the results of the function `texts` for the texts of a column.

    A result may be a Failure. `kind` is the CEL type of the other results.
    """
    # The function is called once per distinct text.
    column: Codes = value.data.compact()
    return gathered(
        column.codes, [texts(text) for text in column.table], value.errors, errors, kind
    )


def gathered(
    codes: npt.NDArray[np.signedinteger[Any]],
    results: Sequence[Any],
    former: Any,
    errors: Errors,
    kind: str,
) -> Value:
    """Return `results[code]` of each node as a column; a node's error in `former` stays."""
    failed = [errors.number(r.text) if isinstance(r, Failure) else 0 for r in results]
    found = _first(former, np.array(failed)[codes]) if any(failed) else former
    if kind == "string":
        return Value(Codes(codes, ["" if isinstance(r, Failure) else r for r in results]), found)
    empty = {"bool": False, "int": 0, "double": 0.0}[kind]
    dtype = {"bool": np.bool_, "int": np.int64, "double": np.float64}[kind]
    by_code: Array = np.array([empty if isinstance(r, Failure) else r for r in results], dtype)
    return Value(by_code[codes], found)


def _first(former: Any, later: Any) -> Any:
    """Combine the error numbers of two operands: 0 is no error, an error of `former` wins."""
    if isinstance(former, int) and isinstance(later, int):
        return former or later
    if isinstance(former, int) and not former:
        return later
    if isinstance(later, int) and not later:
        return former
    return np.where(former, former, later)


def logical(function: str, left: Value, right: Value) -> Value:
    """Compute `&&` or `||`; if one operand decides the result, ignore an error of the other."""
    decisive = function == "_||_"
    operation = np.logical_or if decisive else np.logical_and
    data = operation(left.data, right.data)
    if _clean(left) and _clean(right):
        return Value(data)
    errors = _first(left.errors, right.errors)
    decided = _has(left, decisive) | _has(right, decisive)
    return Value(data, np.where(decided, 0, errors))


def _clean(value: Value) -> bool:
    return isinstance(value.errors, int) and not value.errors


def _has(operand: Value, value: int) -> Any:
    return np.equal(operand.data, value) & np.equal(operand.errors, 0)


def negation(operand: Value) -> Value:
    """Compute `!` of a boolean."""
    return Value(np.logical_not(operand.data), operand.errors)


def selected(condition: Value, yes: Value, no: Value) -> Value:
    """Compute `condition ? yes : no`; ignore errors of the operand that is not chosen."""
    chosen = condition.data
    errors: Any = 0
    if not (_clean(yes) and _clean(no)):
        errors = np.where(chosen, yes.errors, no.errors)
    errors = _first(condition.errors, errors)
    if isinstance(yes.data, Codes | str):
        first, second = _as_codes(yes.data), _as_codes(no.data)
        shifted = second.codes % len(second.table) + len(first.table)
        codes = np.where(chosen, first.codes % len(first.table), shifted)
        return Value(Codes(codes, [*first.table, *second.table]), errors)
    return Value(np.where(chosen, yes.data, no.data), errors)


def _as_codes(data: Any) -> Codes:
    return data.compact() if isinstance(data, Codes) else Codes(np.zeros(1, np.int64), [data])


def computed(function: str, operands: Sequence[Value], errors: Errors) -> Value:
    """Compute an operation of `rules.rule_plan` other than `&&`, `||`, `!` and `?:`."""
    if any(isinstance(operand.data, Codes) for operand in operands):
        return _of_texts(function, *operands, errors=errors)
    if function in ("int", "double", "-_"):
        return _converted(function, *operands, errors=errors)
    left, right = operands
    found = _first(left.errors, right.errors)
    if isinstance(left.data, str):
        return Value(_OF_TEXTS[function](left.data, right.data), found)
    if function in _COMPARISONS:
        return Value(_COMPARISONS[function](left.data, right.data), found)
    a, b = np.asarray(left.data), np.asarray(right.data)
    if a.dtype == np.float64:
        with np.errstate(all="ignore"):
            return Value(_OF_DOUBLES[function](a, b), found)
    result, *failures = _OF_INTS[function](np.atleast_1d(a), b)
    return Value(result, _with_failures(found, failures, errors))


def _with_failures(former: Any, failures: Iterable[tuple[str, BoolArray]], errors: Errors) -> Any:
    for why, failed in failures:
        if failed.any():
            former = _first(former, np.where(failed, errors.number(why), 0))
    return former


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "_==_": np.equal,
    "_!=_": np.not_equal,
    "_<_": np.less,
    "_<=_": np.less_equal,
    "_>_": np.greater,
    "_>=_": np.greater_equal,
}
_OF_DOUBLES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "_+_": np.add,
    "_-_": np.subtract,
    "_*_": np.multiply,
    "_/_": np.divide,
}

_OVERFLOW: Final = "integer overflow"
_Failure = tuple[str, BoolArray]
_Ints = tuple[IntArray, *tuple[_Failure, ...]]


def _sum(a: IntArray, b: IntArray) -> _Ints:
    result = a + b
    return result, (_OVERFLOW, ((a ^ result) & (b ^ result)) < 0)


def _difference(a: IntArray, b: IntArray) -> _Ints:
    result = a - b
    return result, (_OVERFLOW, ((a ^ b) & (a ^ result)) < 0)


def _product(a: IntArray, b: IntArray) -> _Ints:
    result = a * b
    near = np.abs(a.astype(np.float64) * b) > 9e18
    if near.any():  # a double does not tell which of these overflow
        exact = a.astype(object) * b.astype(object)
        near = np.array((exact < _LOWEST) | (exact >= 2**63), np.bool_)
    return result, (_OVERFLOW, near)


def _quotient(a: IntArray, b: IntArray) -> _Ints:
    # Truncated towards zero, as in C++.
    zero, overflow = b == 0, (a == _LOWEST) & (b == -1)
    divisor = np.where(zero | overflow, 1, b)
    result = a // divisor
    result += (result * divisor != a) & ((a < 0) != (divisor < 0))
    return result, ("division by zero", zero), (_OVERFLOW, overflow)


def _remainder(a: IntArray, b: IntArray) -> _Ints:
    zero, overflow = b == 0, (a == _LOWEST) & (b == -1)
    result = np.fmod(a, np.where(zero | overflow, 1, b))
    return result, ("modulus by zero", zero), (_OVERFLOW, overflow)


_OF_INTS: Final[Mapping[str, Callable[[IntArray, IntArray], _Ints]]] = {
    "_+_": _sum,
    "_-_": _difference,
    "_*_": _product,
    "_/_": _quotient,
    "_%_": _remainder,
}


def _converted(function: str, operand: Value, *, errors: Errors) -> Value:
    data, found = np.atleast_1d(operand.data), operand.errors
    if function == "double":
        return Value(data.astype(np.float64), found)
    if function == "-_" and data.dtype == np.float64:
        return Value(-data, found)
    if function == "-_":
        failed, why = data == _LOWEST, _OVERFLOW
        result = -data
    else:
        failed, why = ~((data > -(2.0**63)) & (data < 2.0**63)), _OVERFLOW
        result = np.where(failed, 0.0, data).astype(np.int64)
    return Value(result, _with_failures(found, [(why, failed)], errors))


_OF_TEXTS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "_==_": lambda a, b: a == b,
    "_!=_": lambda a, b: a != b,
    "_<_": lambda a, b: a < b,
    "_<=_": lambda a, b: a <= b,
    "_>_": lambda a, b: a > b,
    "_>=_": lambda a, b: a >= b,
    "_+_": lambda a, b: a + b,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda a, b: b in a,
    "@in": lambda a, b: a in b,
}


def _of_texts(function: str, left: Value, right: Value, *, errors: Errors) -> Value:
    operation, found = _OF_TEXTS[function], _first(left.errors, right.errors)
    kind = "string" if function == "_+_" else "bool"
    a, b = left.data, right.data
    if function in ("_==_", "_!=_") and (quick := _compared(function, a, b)) is not None:
        return Value(quick, found)
    if not isinstance(b, Codes):
        return coded(Value(a, found), lambda text: operation(text, b), errors, kind)
    if not isinstance(a, Codes):
        return coded(Value(b, found), lambda text: operation(a, text), errors, kind)
    a, b = a.compact(), b.compact()
    size = len(b.table)
    pairs, codes = np.unique(a.codes % len(a.table) * size + b.codes % size, return_inverse=True)
    results = [operation(a.table[p // size], b.table[p % size]) for p in pairs.tolist()]
    return gathered(codes, results, found, errors, kind)


def _compared(function: str, a: Any, b: Any) -> BoolArray | None:
    column, text = (a, b) if isinstance(a, Codes) else (b, a)
    if isinstance(text, Codes) or column.code_of is None:
        return None
    same: BoolArray = np.equal(column.codes, column.code_of(text))
    return same if function == "_==_" else ~same
