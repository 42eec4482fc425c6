"""Makes a checked tree into functions that evaluate it, and counts costs as cel-go does.

Source: cel-go's `interpreter/planner.go`, `decorators.go`, `interpretable.go` and `runtimecost.go`.
cel-go computes constants and sets of constants beforehand, which then cost nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.cel.attributes import Attribute, Evaluate, Frame, go_type
from mooring.cel.calls import Binding, binding_of, is_conversion
from mooring.cel.costs import cost_of
from mooring.cel.errors import CompileError
from mooring.cel.tree import (
    AND,
    CONDITIONAL,
    EQUALS,
    INDEX,
    OPTIONAL_INDEX,
    OPTIONAL_SELECT,
    OR,
    Call,
    Comprehension,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
)
from mooring.cel.values import (
    MOST_WORK,
    NO_OVERLOAD,
    EvaluationCrash,
    Failure,
    MapValue,
    Opaque,
    Optional,
    UInt,
    equal,
    is_list,
    iterate,
    size_of,
    text_of,
    work,
)

__all__ = ["Program", "plan"]

Value = Any
_NOT_SET: Final = object()
_MISTAKES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_HASHED: Final = frozenset((bool, int, UInt, float, str))


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """An expression that can be evaluated."""

    _evaluate: Evaluate
    _loops: int
    """Places for the variables of loops."""

    def run(
        self, variables: Sequence[Value], limit: int, most_work: int = MOST_WORK
    ) -> tuple[Value, int]:
        """Return the value of the expression, or a Failure, and what it cost."""
        frame = Frame([*variables, *[_NOT_SET] * self._loops], limit)
        work.begin(most_work)
        try:
            return self._evaluate(frame), frame.cost
        except EvaluationCrash as crash:
            return Failure(str(crash)), frame.cost
        except _MISTAKES as error:
            # As cel-go, which recovers from its own mistakes: the loop that schedules must go on.
            return Failure(f"internal error: {error}"), frame.cost


@dataclass(slots=True, eq=False)
class _Planned:
    """A part of the tree; `attribute` is set if a path can be put behind it."""

    evaluate: Evaluate
    attribute: Attribute | None = None
    is_constant: bool = False
    constant: Value = None


def plan(root: Node, variables: Sequence[str], *, newer: bool, lenient: bool = False) -> Program:
    """Return the program of a checked tree that reads these variables.

    `newer` stands for Kubernetes 1.37, where some functions and costs changed. With `lenient` a
    constant that cannot be converted fails when it is evaluated, and no order with a number that
    is not a number holds, as in CEL's own implementation; in Kubernetes both are errors.

    Raises:
        CompileError: an operation on constants fails.
    """
    planner = _Planner(variables, newer, lenient)
    try:
        planned = planner.plan(root)
    except EvaluationCrash as crash:
        raise CompileError(f"program instantiation failed: {crash}") from None
    return Program(planned.evaluate, planner.slots - len(variables))


def _constant(value: Value) -> _Planned:
    return _Planned(lambda _frame: value, None, True, value)


def _of_attribute(attribute: Attribute) -> _Planned:
    """Return the part that evaluates an attribute, which costs 1 besides its steps."""
    resolve, cost = attribute.resolve, 0 if attribute.is_conditional else 1

    def evaluate(frame: Frame) -> Value:
        value = resolve(frame)
        frame.charge(cost)
        return value

    return _Planned(evaluate, attribute)


class _Planner:
    """Plans a tree; variables get numbers, and loops are the only scopes."""

    def __init__(self, variables: Sequence[str], newer: bool, lenient: bool) -> None:
        self.slots = len(variables)
        self._newer, self._lenient = newer, lenient
        self._scopes: list[Mapping[str, Evaluate]] = [
            {variable: _read(slot) for slot, variable in enumerate(variables)}
        ]

    def plan(self, node: Node) -> _Planned:
        """Return the planned part of the tree."""
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
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
                return _of_attribute(Attribute(scope[name]))
        raise CompileError(f"program instantiation failed: no such attribute(s): {name}")

    def _path(self, operand: Node) -> Attribute:
        """Return the attribute that a select or an index extends."""
        planned = self.plan(operand)
        return planned.attribute or Attribute(planned.evaluate)

    def _select(self, node: Select) -> _Planned:
        if node.type_name is not None:
            return _constant(node.type_name)
        if node.variable:
            return self._variable(node.variable)
        attribute, field = self._path(node.operand), node.field
        attribute.add(lambda _frame: field, constant=True, tests=node.tests)
        if not node.tests:
            return _of_attribute(attribute)

        # cel-go takes back what it has not charged if the operand is a conditional.
        cost = -1 if attribute.is_conditional else 0

        def has(frame: Frame) -> Value:
            value = attribute.resolve(frame)
            frame.charge(cost)
            return value.present if isinstance(value, Optional) else value

        return _Planned(has)

    def _index(self, node: Call, optional: bool) -> _Planned:
        operand, key = node.args
        attribute, planned = self._path(operand), self.plan(key)
        if planned.attribute is not None:
            attribute.add(planned.attribute.resolve, constant=False, optional=optional)
        else:
            if planned.is_constant and type(planned.constant) not in _HASHED:
                kind = go_type(planned.constant)
                raise EvaluationCrash(f"invalid qualifier type: {kind}")
            attribute.add(planned.evaluate, constant=planned.is_constant, optional=optional)
        return _of_attribute(attribute)

    def _call(self, node: Call) -> _Planned:
        if node.function in {INDEX, OPTIONAL_INDEX, OPTIONAL_SELECT}:
            return self._index(node, optional=node.function != INDEX)
        parts = [*([node.target] if node.target is not None else []), *node.args]
        args = [self.plan(each) for each in parts]
        steps = [arg.evaluate for arg in args]
        if node.function == CONDITIONAL:
            yes, no = (each.attribute or Attribute(each.evaluate) for each in args[1:])
            return _of_attribute(Attribute(steps[0], (yes, no)))
        if node.function in {AND, OR}:
            return _Planned(_logical(node.function == OR, *steps))
        if node.function in {EQUALS, "_!=_"}:
            return _Planned(_equality(node.function, *steps))
        if node.overloads in (["optional_or_optional"], ["optional_orValue_value"]):
            return _Planned(_or_other(node.function == "orValue", self._newer, *steps))
        return self._function(node, args)

    def _function(self, node: Call, args: Sequence[_Planned]) -> _Planned:
        """Return the planned call of a function; operations on constants are done at once."""
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if (
            overload == "in_list"
            and args[1].is_constant
            and (args[1].constant or not self._lenient)
        ):
            members = _members(args[1].constant)
            if members is not None:
                return _membership(args[0].evaluate, members)
        constants = [arg.constant if arg.is_constant else None for arg in args]
        binding = binding_of(node.function, overload, constants, self._newer, self._lenient)
        if is_conversion(node.function) and len(args) == 1 and args[0].is_constant:
            value = binding.call(args[0].constant)
            if not isinstance(value, Failure):
                return _constant(value)
            if not self._lenient:
                raise EvaluationCrash(value.text)
        cost = cost_of(node.function, overload, self._newer)
        return _Planned(_invocation(binding, [arg.evaluate for arg in args], cost))

    def _list(self, node: ListOf) -> _Planned:
        parts = [self.plan(each) for each in node.elements]
        if all(part.is_constant for part in parts) and not node.optional:
            return _constant(tuple(part.constant for part in parts))
        steps = [(part.evaluate, i in node.optional) for i, part in enumerate(parts)]

        def evaluate(frame: Frame) -> Value:
            value = _made_list(frame, steps)
            frame.charge(10)
            return value

        return _Planned(evaluate)

    def _map(self, node: MapOf) -> _Planned:
        planned = [(self.plan(k), self.plan(v), optional) for k, v, optional in node.entries]
        steps = [(key.evaluate, value.evaluate, optional) for key, value, optional in planned]
        if all(key.is_constant and value.is_constant for key, value, _optional in planned):
            made = _made_map(Frame([], 0), steps)
            if isinstance(made, Failure):
                raise EvaluationCrash(made.text)
            return _constant(made)

        def evaluate(frame: Frame) -> Value:
            value = _made_map(frame, steps)
            frame.charge(30)
            return value

        return _Planned(evaluate)

    def _loop(self, node: Comprehension) -> _Planned:
        start, items = self.plan(node.start).evaluate, self.plan(node.items).evaluate
        slot, names = self.slots, node.variables
        self.slots += 1 + len(names)

        def collected(frame: Frame) -> Value:
            value = frame.values[slot]
            if value is _NOT_SET:
                value = frame.values[slot] = _growing(start(frame))
            return value

        self._scopes.append({node.collects: collected})
        self._scopes.append({name: _read(slot + 1 + i) for i, name in enumerate(names)})
        condition, step = self.plan(node.condition).evaluate, self.plan(node.step).evaluate
        self._scopes.pop()
        result = self.plan(node.result).evaluate
        self._scopes.pop()
        run = _run_loop(slot, len(names), condition, step)

        def evaluate(frame: Frame) -> Value:
            frame.values[slot] = _NOT_SET
            over = items(frame)
            if isinstance(over, Failure):
                return over
            if not is_list(over) and type(over) is not MapValue:
                return _not_iterable(over, len(names))
            run(frame, over)
            return _finished(result(frame))

        return _Planned(evaluate)


def _read(slot: int) -> Evaluate:
    return lambda frame: frame.values[slot]


def _growing(value: Value) -> Value:
    """Return what a loop starts with; an empty list or map is one that the loop extends."""
    if is_list(value) and not size_of(value):
        return []
    if type(value) is MapValue and not len(value):
        return MapValue(is_building=True)
    return value


def _finished(value: Value) -> Value:
    """Return the result of a loop, which nothing extends any more."""
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
    slot: int, variables: int, condition: Evaluate, step: Evaluate
) -> Callable[[Frame, Value], None]:
    """Return what runs a loop: `variables` is their number, their slots follow the loop's own."""

    def run(frame: Frame, over: Value) -> None:
        values = frame.values
        pairs = over.items() if type(over) is MapValue else enumerate(iterate(over))
        for key, item in pairs:
            if variables == 2:
                values[slot + 1], values[slot + 2] = key, item
            else:
                values[slot + 1] = key if type(over) is MapValue else item
            go_on = condition(frame)
            if go_on is False:
                return
            values[slot] = step(frame)

    return run


def _logical(stops_at: bool, first: Evaluate, second: Evaluate) -> Evaluate:
    """Return `||` if it stops at True, else `&&`; an error counts only if nothing stops it."""

    def evaluate(frame: Frame) -> Value:
        failed: Failure | None = None
        for term in (first, second):
            value = term(frame)
            if value is stops_at:
                return stops_at
            if type(value) is not bool and failed is None:
                failed = value if isinstance(value, Failure) else NO_OVERLOAD
        return not stops_at if failed is None else failed

    return evaluate


def _equality(function: str, first: Evaluate, second: Evaluate) -> Evaluate:
    cost, negated = cost_of(function, "", True), function != EQUALS

    def evaluate(frame: Frame) -> Value:
        left, right = first(frame), second(frame)
        value: Value
        if isinstance(left, Failure):
            value = left
        elif isinstance(right, Failure):
            value = right
        else:
            same = equal(left, right)
            value = same is not True if negated else same
        frame.charge(cost((left, right), value))
        return value

    return evaluate


def _or_other(unwraps: bool, newer: bool, first: Evaluate, second: Evaluate) -> Evaluate:
    """Return `or` or `orValue`, which cost nothing and evaluate the second only if need be.

    Until Kubernetes 1.37 (`newer`) they return what is not optional.
    """

    def evaluate(frame: Frame) -> Value:
        value = first(frame)
        if isinstance(value, Optional):
            if not value.present:
                return second(frame)
            return value.value if unwraps else value
        return NO_OVERLOAD if newer and not isinstance(value, Failure) else value

    return evaluate


def _invocation(
    binding: Binding, args: Sequence[Evaluate], cost: Callable[[Sequence[Value], Value], int]
) -> Evaluate:
    """Return a call. One that stops at the first error is not charged if arguments were left."""

    def evaluate(frame: Frame) -> Value:
        values = list[Value]()
        failed: Failure | None = None
        for arg in args:
            value = arg(frame)
            values.append(value)
            if isinstance(value, Failure) and failed is None and binding.is_strict:
                failed = value
                if binding.stops_early:
                    break
        result = binding.call(*values) if failed is None else failed
        if len(values) == len(args):
            frame.charge(cost(values, result))
        return result

    return evaluate


def _made_list(frame: Frame, steps: Sequence[tuple[Evaluate, bool]]) -> Value:
    made = list[Value]()
    for step, optional in steps:
        value = step(frame)
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
    """Return the members of a constant list as a set; None if that does not speed it up."""
    found = set[tuple[type, Value]]()
    for item in items:
        kind = type(item)
        if kind not in _HASHED:
            return None
        found.add((kind, item))
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
    """Return whether a value is in a constant list, which costs nothing by itself."""
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
