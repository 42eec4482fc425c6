"""Turns a checked syntax tree into functions that evaluate it.

Source: cel-go's `interpreter/planner.go`, `decorators.go` and `interpretable.go`. As in cel-go,
constants are computed in advance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.cel.attributes import Evaluate, Frame, go_type, step
from mooring.cel.cel_errors import CompileError
from mooring.cel.function_calls import Binding, binding_of, is_conversion
from mooring.cel.tree import (
    AND,
    CONDITIONAL,
    EQUALS,
    INDEX,
    OPTIONAL_INDEX,
    OPTIONAL_SELECT,
    OR,
    Comprehension,
    Expression,
    FunctionCall,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Select,
    UInt,
)
from mooring.cel.values import (
    MOST_WORK,
    NO_OVERLOAD,
    Duration,
    EvaluationCrash,
    Failure,
    MapValue,
    Opaque,
    Optional,
    Timestamp,
    equal,
    is_list,
    iterate,
    size_of,
    text_of,
    work,
)

Value = Any
_PER_NODE: Final = 1_024
"""The estimated bytes of memory for each node of an expression's syntax tree."""
_NOT_SET: Final = object()
_MISTAKES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_TEXTS: Final = frozenset((str, bytes))
_LISTED: Final = {"distinct": 0, "sort": 0, "@sortByAssociatedKeys": 1}
_WITH_ADD: Final = frozenset((str, bytes, int, UInt, float, Duration, Timestamp))
_HASHED: Final = frozenset((bool, int, UInt, float, str))


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled expression, which may be evaluated many times."""

    _evaluate: Evaluate
    _loops: int
    """The number of loop variables; each has an index in the `Frame`."""
    _size: int

    @property
    def memory(self) -> int:
        """Estimated bytes, from the number of nodes."""
        return _PER_NODE * self._size

    def run(self, variables: Sequence[Value], most_work: int = MOST_WORK) -> Value:
        """Return the expression's value, or a Failure; do at most `most_work` units of work."""
        work.begin(most_work)
        try:
            work.spend(self._size)
            return self._evaluate([*variables, *[_NOT_SET] * self._loops])
        except EvaluationCrash as crash:
            return Failure(str(crash))
        except _MISTAKES as error:
            # As cel-go, which recovers from its own mistakes: the loop that schedules must go on.
            return Failure(f"internal error: {error}")


@dataclass(slots=True, eq=False)
class _Planned:
    """The function that evaluates a node, and the value of a constant node."""

    evaluate: Evaluate
    is_constant: bool = False
    constant: Value = None


def plan(
    root: Expression, variables: Sequence[str], *, newer: bool, lenient: bool = False
) -> Program:
    """Return the program for a checked tree that reads these variables.

    `newer` selects the functions of Kubernetes 1.37. `lenient` selects CEL's own rules for
    conversions of constants and for NaN. Raises CompileError if an operation on constants fails.
    """
    planner = _Planner(variables, newer, lenient)
    try:
        planned = planner.plan(root)
    except EvaluationCrash as crash:
        raise CompileError(f"program instantiation failed: {crash}") from None
    return Program(planned.evaluate, planner.slots - len(variables), root.size)


def _constant(value: Value) -> _Planned:
    return _Planned(lambda _frame: value, True, value)


class _Planner:
    """Makes a function for each node of a tree."""

    def __init__(self, variables: Sequence[str], newer: bool, lenient: bool) -> None:
        self.slots = len(variables)
        self._newer, self._lenient = newer, lenient
        self._scopes: list[Mapping[str, Evaluate]] = [
            {variable: _read(slot) for slot, variable in enumerate(variables)}
        ]

    def plan(self, node: Expression) -> _Planned:
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case FunctionCall():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Comprehension():
                return self._loop(node)
        raise TypeError(node)

    def _ident(self, node: Ident) -> _Planned:
        if node.is_type is not None:
            return _constant(node.is_type)
        return self._variable(node.name)

    def _variable(self, name: str) -> _Planned:
        for scope in reversed(self._scopes):
            if name in scope:
                return _Planned(scope[name])
        raise CompileError(f"program instantiation failed: no such attribute(s): {name}")

    def _select(self, node: Select) -> _Planned:
        if node.type_name is not None:
            return _constant(node.type_name)
        if node.variable:
            return self._variable(node.variable)
        operand, field = self.plan(node.operand).evaluate, node.field
        return _Planned(step(operand, lambda _frame: field, optional=False, tests=node.tests))

    def _index(self, node: FunctionCall, optional: bool) -> _Planned:
        operand, key = node.args
        value, planned = self.plan(operand).evaluate, self.plan(key)
        if planned.is_constant and type(planned.constant) not in _HASHED:
            kind = go_type(planned.constant)
            raise EvaluationCrash(f"invalid qualifier type: {kind}")
        return _Planned(step(value, planned.evaluate, optional=optional, tests=False))

    def _call(self, node: FunctionCall) -> _Planned:
        if node.function in {INDEX, OPTIONAL_INDEX, OPTIONAL_SELECT}:
            return self._index(node, optional=node.function != INDEX)
        parts = [*([node.target] if node.target is not None else []), *node.args]
        args = [self.plan(each) for each in parts]
        steps = [arg.evaluate for arg in args]
        if node.function == CONDITIONAL:
            return _Planned(_conditional(*steps))
        if node.function in {AND, OR}:
            return _Planned(_logical(node.function == OR, *steps))
        if node.function in {EQUALS, "_!=_"}:
            return _Planned(_equality(node.function, *steps))
        if node.overloads in (["optional_or_optional"], ["optional_orValue_value"]):
            return _Planned(_or_other(node.function == "orValue", self._newer, *steps))
        return self._function(node, args)

    def _function(self, node: FunctionCall, args: Sequence[_Planned]) -> _Planned:
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if (
            overload == "in_list"
            and args[1].is_constant
            and (args[1].constant or not self._lenient)
        ):
            # A constant list after `in` becomes a set.
            members = _members(args[1].constant)
            if members is not None:
                return _membership(args[0].evaluate, members)
        constants = [arg.constant if arg.is_constant else None for arg in args]
        binding = binding_of(node.function, overload, constants, self._newer, self._lenient)
        if is_conversion(node.function) and len(args) == 1 and args[0].is_constant:
            # The conversion of a constant is computed at once.
            value = binding.call(args[0].constant)
            if not isinstance(value, Failure):
                return _constant(value)
            if not self._lenient:
                raise EvaluationCrash(value.text)
        listed = _LISTED.get(node.function) if overload else None
        return _Planned(_invocation(binding, [arg.evaluate for arg in args], listed))

    def _list(self, node: ListOf) -> _Planned:
        parts = [self.plan(each) for each in node.elements]
        if all(part.is_constant for part in parts) and not node.optional:
            return _constant(tuple(part.constant for part in parts))
        steps = [(part.evaluate, i in node.optional) for i, part in enumerate(parts)]
        return _Planned(lambda frame: _made_list(frame, steps))

    def _map(self, node: MapOf) -> _Planned:
        planned = [(self.plan(k), self.plan(v), optional) for k, v, optional in node.entries]
        steps = [(key.evaluate, value.evaluate, optional) for key, value, optional in planned]
        if all(key.is_constant and value.is_constant for key, value, _optional in planned):
            made = _made_map([], steps)
            if isinstance(made, Failure):
                raise EvaluationCrash(made.text)
            return _constant(made)
        return _Planned(lambda frame: _made_map(frame, steps))

    def _loop(self, node: Comprehension) -> _Planned:
        start, items = self.plan(node.start).evaluate, self.plan(node.items).evaluate
        slot, names = self.slots, node.variables
        self.slots += 1 + len(names)

        def collected(frame: Frame) -> Value:
            value = frame[slot]
            if value is _NOT_SET:
                value = frame[slot] = _growing(start(frame))
            return value

        self._scopes.append({node.collects: collected})
        self._scopes.append({name: _read(slot + 1 + i) for i, name in enumerate(names)})
        condition, each = self.plan(node.condition).evaluate, self.plan(node.step).evaluate
        self._scopes.pop()
        result = self.plan(node.result).evaluate
        self._scopes.pop()
        size = node.condition.size + node.step.size
        run = _run_loop(slot, len(names), condition, each, size)

        def evaluate(frame: Frame) -> Value:
            frame[slot] = _NOT_SET
            over = items(frame)
            if isinstance(over, Failure):
                return over
            if not is_list(over) and type(over) is not MapValue:
                return _not_iterable(over, len(names))
            run(frame, over)
            return _finished(result(frame))

        return _Planned(evaluate)


def _read(slot: int) -> Evaluate:
    return lambda frame: frame[slot]


def _growing(value: Value) -> Value:
    # The loop may add to the empty list or map with which it starts.
    if is_list(value) and not size_of(value):
        return []
    if type(value) is MapValue and not len(value):
        return MapValue(is_building=True)
    return value


def _finished(value: Value) -> Value:
    if type(value) is list:
        return tuple(value)
    if type(value) is MapValue and value.is_building:
        value.is_building = False
    return value


def _not_iterable(value: Value, variables: int) -> Failure:
    if variables == 2:
        return Failure(f"unsupported comprehension range type: {go_type(value)}")
    return Failure(f"got '{go_type(value)}', expected iterable type")


def _run_loop(
    slot: int, variables: int, condition: Evaluate, step: Evaluate, size: int
) -> Callable[[Frame, Value], None]:
    # The result is at index `slot` of the frame, and the loop's variables follow.
    def run(values: Frame, over: Value) -> None:
        pairs = over.items() if type(over) is MapValue else enumerate(iterate(over))
        for key, item in pairs:
            if variables == 2:
                values[slot + 1], values[slot + 2] = key, item
            else:
                values[slot + 1] = key if type(over) is MapValue else item
            work.spend(size)
            go_on = condition(values)
            if go_on is False:
                return
            values[slot] = step(values)

    return run


def _conditional(condition: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
    def evaluate(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        return value if isinstance(value, Failure) else NO_OVERLOAD

    return evaluate


def _logical(stops_at: bool, first: Evaluate, second: Evaluate) -> Evaluate:
    """Return a function that evaluates `||` if `stops_at` is True, else `&&`."""

    def evaluate(frame: Frame) -> Value:
        failed: Failure | None = None
        for term in (first, second):
            value = term(frame)
            if value is stops_at:
                return stops_at
            # Only an error if the other operand does not decide the result.
            if type(value) is not bool and failed is None:
                failed = value if isinstance(value, Failure) else NO_OVERLOAD
        return not stops_at if failed is None else failed

    return evaluate


def _equality(function: str, first: Evaluate, second: Evaluate) -> Evaluate:
    negated = function != EQUALS

    def evaluate(frame: Frame) -> Value:
        left, right = first(frame), second(frame)
        if isinstance(left, Failure):
            return left
        if isinstance(right, Failure):
            return right
        same = equal(left, right)
        return same is not True if negated else same

    return evaluate


def _or_other(unwraps: bool, newer: bool, first: Evaluate, second: Evaluate) -> Evaluate:
    """Return a function that evaluates `orValue` if `unwraps` is True, else `or`."""

    def evaluate(frame: Frame) -> Value:
        value = first(frame)
        if isinstance(value, Optional):
            if not value.present:
                return second(frame)
            return value.value if unwraps else value
        # Before Kubernetes 1.37, an operand that is not optional is returned.
        return NO_OVERLOAD if newer and not isinstance(value, Failure) else value

    return evaluate


def _invocation(binding: Binding, args: Sequence[Evaluate], listed: int | None) -> Evaluate:
    def evaluate(frame: Frame) -> Value:
        values = list[Value]()
        failed: Failure | None = None
        for arg in args:
            value = arg(frame)
            values.append(value)
            if type(value) in _TEXTS:
                work.spend_on_text(len(value))
            if isinstance(value, Failure) and failed is None and binding.is_strict:
                failed = value
                if binding.stops_early:
                    break
        if listed is not None and len(values) == len(args) and not is_list(values[listed]):
            missing = "Contains" if type(values[listed]) in _WITH_ADD else "Add"
            raise EvaluationCrash(
                f"internal error: interface conversion: {go_type(values[listed])} is not"
                f" traits.Lister: missing method {missing}"
            )
        return binding.call(*values) if failed is None else failed

    return evaluate


def _made_list(frame: Frame, steps: Sequence[tuple[Evaluate, bool]]) -> Value:
    made = list[Value]()
    for each, optional in steps:
        value = each(frame)
        if isinstance(value, Failure):
            return value
        if optional:
            if not isinstance(value, Optional):
                shown = text_of(value)
                return Failure(
                    f"cannot initialize optional list element from non-optional value {shown}"
                )
            if not value.present:
                continue
            value = value.value
        made.append(value)
    return tuple(made)


def _made_map(frame: Frame, steps: Sequence[tuple[Evaluate, Evaluate, bool]]) -> Value:
    made = MapValue()
    for key_step, value_step, optional in steps:
        key = key_step(frame)
        if isinstance(key, Failure):
            return key
        value = value_step(frame)
        if isinstance(value, Failure):
            return value
        if optional:
            if not isinstance(value, Optional):
                return Failure(
                    f"cannot initialize optional entry '{text_of(key)}' from non-optional value"
                    f" {text_of(value)}"
                )
            if not value.present:
                made.remove(key)
                continue
            value = value.value
        made.put(key, value)
    return made


def _members(items: Sequence[Value]) -> frozenset[tuple[type, Value]] | None:
    """Return all pairs of type and value that equal an item; None if one cannot be hashed."""
    found = set[tuple[type, Value]]()
    for item in items:
        kind = type(item)
        if kind not in _HASHED:
            return None
        found.add((kind, item))
        # An equal number of another type is found, too.
        if kind in {int, UInt}:
            found.add((float, float(item)))
        whole = item if kind in {int, UInt} else None
        if kind is float and abs(item) < 2**64 and int(item) == item:
            whole = int(item)
        if whole is not None and -(2**63) <= whole < 2**63:
            found.add((int, int(whole)))
        if whole is not None and 0 <= whole < 2**64:
            found.add((UInt, int(whole)))
    return frozenset(found)


def _membership(value: Evaluate, members: frozenset[tuple[type, Value]]) -> _Planned:
    if not members:
        return _constant(False)

    def evaluate(frame: Frame) -> Value:
        found = value(frame)
        kind = type(found)
        if isinstance(found, Failure):
            return found
        if kind is bytes or (isinstance(found, Opaque) and not found.hashable):
            name = go_type(found)
            raise EvaluationCrash(f"internal error: runtime error: hash of unhashable type {name}")
        return kind in _HASHED and (kind, found) in members

    return _Planned(evaluate)
