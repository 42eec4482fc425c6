"""Plans how an expression is evaluated for all nodes at once.

Operations on numbers, booleans and labels become operations on columns. Other parts are interpreted
once per distinct value that they read of nodes. Amounts and counts of pods may differ on every
node, so they may only be in operations on columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.cel.interpreter import Program
from mooring.cel.regular_expressions import PatternError, compile_pattern
from mooring.cel.tree import (
    Comprehension,
    Expression,
    FunctionCall,
    Ident,
    ListOf,
    MapOf,
    Select,
    walk,
)
from mooring.cel.tree import Literal as Constant
from mooring.cel.types import STRING
from mooring.cel.values import EvaluationCrash, work
from mooring.model.bounded_cache import cached
from mooring.model.selectors import LabelSelector, Requirement, selector_from_labels
from mooring.policy.name_syntax import is_object_name, label_value, qualified_name
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.rules.cost import CALL, cost
from mooring.policy.rules.expressions import Checked, check
from mooring.policy.rules.selector_text import parse_selector

_MOST_PARTS: Final = 256
"""The maximum number of operators, calls, names and constants in an expression; more are a
mistake."""
_MOST_ITEMS: Final = 64
"""The maximum number of items of a list in an expression; more are a mistake."""
_MOST_COST: Final = 10_000
"""The longest estimated time of one evaluation in units of 0.1 µs: 1 ms; a longer time is a
mistake."""
_MOST_WORK: Final = 100_000
"""The maximum units of work for compiling the regular expressions of an expression; more are a
mistake."""
_MOST_OF_WHOLE: Final = 500
"""The longest estimated time, in units of 0.1 µs, of an expression that may be evaluated for one
node at a time (`RulePlan.whole`); a longer one is always evaluated in columns."""

_MOST_COUNTS: Final = 8
"""The maximum number of different counts of pods in one expression; more are a mistake."""

_COUNTED_PODS: Final = "node.pods"
"""The variable of a `Read` that counts pods. Its `key` is the domain's label, or None for pods on
the node itself."""
_COUNTS: Final = ("pods", _COUNTED_PODS)

_AMOUNTS: Final = ("node.allocatable", "node.requested")
_KEYED: Final = ("node.labels", *_AMOUNTS)
"""The maps of a node from which expressions can read only single values."""

_NAMED: Final[Mapping[str, str]] = {
    "node.labels": "label",
    _COUNTED_PODS: "label",
    **dict.fromkeys(_AMOUNTS, "resource"),
}
_OF_PODS_ON_NODES: Final = frozenset(("node.requested", _COUNTED_PODS))

_FIELDS: Final = ("node.name", "node.zone", "node.region", "node.unschedulable")
_SETS: Final = ("node.taints", "node.conditions")
"""The variables of a node that expressions read as a whole; they have few different values."""
_NUMBERS: Final = ("int", "double")
_KNOWN: Final = ("bool", *_NUMBERS, "string")
_OPERANDS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("_&&_", "_||_", "!_"), ("bool",)),
    **dict.fromkeys(("_==_", "_!=_"), _KNOWN),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_", "_+_"), (*_NUMBERS, "string")),
    **dict.fromkeys(("_-_", "_*_", "_/_", "-_"), _NUMBERS),
    **dict.fromkeys(("_%_", "double"), ("int",)),
    "int": ("double",),
    **dict.fromkeys(("startsWith", "endsWith", "contains"), ("string",)),
}
"""The types that all operands of an operation on columns may have, by function."""


@dataclass(frozen=True, slots=True)
class Read:
    """A variable that an expression reads; with a `key`, only the value of this key is read.

    For the key of a count of pods see `_COUNTED_PODS`.
    """

    variable: str
    key: str | None = None

    @property
    def kind(self) -> str | None:
        """The kind of name in `key`: "label", "resource", or None for any other key."""
        return _NAMED.get(self.variable)


@dataclass(frozen=True, slots=True, eq=False)
class ConstantValue:
    """A value that is written in the expression."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class NodeField:
    """A node's own field: node.name, node.zone, node.region or node.unschedulable."""

    variable: str


@dataclass(frozen=True, slots=True, eq=False)
class NodeLabelValue:
    """The value of a node's label; the expression fails on a node without the label."""

    key: "Step"


@dataclass(frozen=True, slots=True, eq=False)
class HasLabel:
    """A test whether the node has the label."""

    key: "Step"


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """An amount in node.allocatable or node.requested: 0 if the node does not have the resource."""

    variable: str
    resource: "Step"


@dataclass(frozen=True, slots=True, eq=False)
class SelectedLabels:
    """The labels that counted pods must have: literal conditions, and values read from the pod."""

    written: LabelSelector
    read: tuple[tuple[str, "Step"], ...] = ()

    def selector(self, values: Iterable[str]) -> LabelSelector:
        """Return the selector; `values` are the values of `read`, in the same order."""
        keys = (key for key, _ in self.read)
        return self.written.narrowed(
            *(Requirement(k, "In", (v,)) for k, v in zip(keys, values, strict=True))
        )


@dataclass(frozen=True, slots=True, eq=False)
class PodCount:
    """The number of selected pods on the node, or in its domain if `key` is a node's label.

    The pods are in `namespaces`, or in the namespaces that `namespace_labels` selects. If both are
    None, they are in the namespace of the pod to be scheduled.
    """

    key: str | None
    pods: SelectedLabels
    namespaces: frozenset[str] | None = None
    namespace_labels: SelectedLabels | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Interpreted:
    """A part of an expression that is interpreted; `type` is the type of its result (`kind_of`).

    `of_node` are the variables that differ between nodes. `cost` has the unit of
    `mooring.policy.rules.cost`.
    """

    program: Program
    type: str
    cost: int
    of_node: tuple[Read, ...]
    of_pod: tuple[Read, ...]

    @property
    def reads(self) -> tuple[Read, ...]:
        """All variables that this part reads."""
        return (*self.of_node, *self.of_pod)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation on columns, by its CEL name; `type` is its last operand's type (`kind_of`)."""

    function: str
    operands: tuple["Step", ...]
    type: str


Step = (
    ConstantValue
    | NodeField
    | NodeLabelValue
    | HasLabel
    | Amount
    | PodCount
    | Interpreted
    | Operation
)


@dataclass(frozen=True, slots=True, eq=False)
class RulePlan:
    """How to evaluate an expression for many nodes, and the variables that it reads.

    `whole` interprets the expression for one node at a time, which is quicker for a few nodes. It
    is None if that is impossible or too expensive.
    """

    step: Step
    reads: frozenset[Read]
    whole: Interpreted | None
    counts: tuple[PodCount, ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """The names of the variables that the expression reads."""
        return frozenset(read.variable for read in self.reads)

    @property
    def reads_pods_on_nodes(self) -> bool:
        """Whether the result depends on pods on nodes, so that an eviction may change it."""
        return not self.variables.isdisjoint(_OF_PODS_ON_NODES)


@cached(16 * 2**20)
def plan_filter(source: str) -> RulePlan:
    """Return the plan of a boolean expression.

    Raises ProfileInvalid with the positions of mistakes in the expression, but without paths.
    """
    return _plan(source, ("bool",), "must be true or false")


@cached(16 * 2**20)
def plan_score(source: str) -> RulePlan:
    """Return the plan of a numeric expression.

    Raises ProfileInvalid with the positions of mistakes in the expression, but without paths.
    """
    return _plan(source, _NUMBERS, "must be a number (an int or a double)")


def _plan(source: str, types: tuple[str, ...], expected: str) -> RulePlan:
    checked = check(source)
    root = checked.root
    if kind_of(root) not in types:
        shown = root.type.shown if root.type is not None else "unknown"
        raise ProfileInvalid([FieldError("", f"{expected}, is of type {shown}")])
    work.begin(_MOST_WORK)
    try:
        mistakes = [*_too_costly(checked)] or [*_too_costly_as_a_whole(checked.root)]
    except EvaluationCrash:
        mistakes = [FieldError("", "its regular expressions are too large: repeat less in them")]
    if mistakes:
        raise ProfileInvalid(mistakes)
    planner = _Planner(checked)
    step = planner.step(root)
    if planner.mistakes:
        raise ProfileInvalid(planner.mistakes)
    reads = frozenset(_reads(root))
    computed = any(read.key is None and read.variable in _KEYED for read in reads)
    is_cheap = not (computed or planner.counts) and cost(root) <= _MOST_OF_WHOLE
    whole = _interpreted(checked, root, reads) if is_cheap else None
    return RulePlan(step, reads, whole, tuple(planner.counts))


def _interpreted(checked: Checked, part: Expression, reads: Iterable[Read]) -> Interpreted:
    in_order = _in_order(reads)
    of_node = tuple(read for read in in_order if _of_node([read]))
    of_pod = tuple(read for read in in_order if read not in of_node)
    variables = [*dict.fromkeys(read.variable for read in (*of_node, *of_pod))]
    program = checked.program(part, variables)
    return Interpreted(program, kind_of(part), CALL + cost(part), of_node, of_pod)


def kind_of(part: Expression) -> str:
    """Return the CEL type of the part without type arguments, such as "list" for list(string)."""
    return "" if part.type is None else part.type.kind


def _too_costly(checked: Checked) -> Iterator[FieldError]:
    everything = [*walk(checked.root)]
    if len(everything) > _MOST_PARTS:
        message = f"must have {_MOST_PARTS} or fewer parts, has {len(everything)}"
        yield FieldError("", message)
    for part in everything:
        match part:
            case Comprehension():
                yield from _costly_comprehension(checked, part)
            case ListOf() if len(part.elements) > _MOST_ITEMS:
                message = f"a list must have {_MOST_ITEMS} or fewer items, has {len(part.elements)}"
                yield checked.mistake(part, message)
            case FunctionCall(function="matches"):
                yield from _wrong_pattern(checked, part)
            case _ if _asks_presence(part) and (keyed := _keyed(part)):
                if keyed[0] in (*_AMOUNTS, "pod.requests"):
                    message = f"{keyed[0]} has 0 for no amount: compare with 0"
                    yield checked.mistake(part, message)
            case _:
                pass


def _too_costly_as_a_whole(root: Expression) -> Iterator[FieldError]:
    if (units := cost(root)) > _MOST_COST:
        yield FieldError(
            "", f"costs about {units} units for one node, must cost {_MOST_COST} or fewer"
        )


def _costly_comprehension(checked: Checked, part: Comprehension) -> Iterator[FieldError]:
    items, *body = part.parts()
    reads, variable = [read for inner in body for read in _reads(inner)], _variable(items)
    if any(isinstance(inner, Comprehension) for outer in part.parts() for inner in walk(outer)):
        yield checked.mistake(part, "a macro (all, exists, ...) must not contain another one")
    elif not (variable or isinstance(items, Ident | ListOf)):
        message = "a macro (all, exists, ...) must go through a list or a name"
        yield checked.mistake(part, message)
    elif variable.startswith("pod.") and _of_node(reads):
        message = f"a macro that goes through {variable} must not read the node"
        yield checked.mistake(part, message)


def _wrong_pattern(checked: Checked, call: FunctionCall) -> Iterator[FieldError]:
    pattern = call.args[-1]
    if not isinstance(pattern, Constant):
        yield checked.mistake(pattern, "a regular expression must be a text as it is written")
        return
    try:
        compile_pattern(str(pattern.value))
    except PatternError as error:
        yield checked.mistake(pattern, str(error))


def _variable(part: Expression) -> str:
    return part.variable if isinstance(part, Select) else ""


def _reads(expression: Expression) -> Iterator[Read]:
    keyed = _keyed(expression)
    if keyed is not None and isinstance(keyed[1], Constant):
        yield Read(keyed[0], str(keyed[1].value))
        return
    if variable := _variable(expression):
        yield Read(variable)
    if _is_count(expression):
        yield Read(_COUNTED_PODS, _domain_of(expression))
    for part in expression.parts():
        yield from _reads(part)


def _keyed(expression: Expression) -> tuple[str, Expression] | None:
    """Return the map and key of `map.key`, `map["key"]`, `has(map.key)` or `"key" in map`."""
    match expression:
        case Select(variable="", operand=container, field=field):
            key: Expression = _text(expression.at, field)
        case FunctionCall(function="_[_]", args=[container, key]):
            pass
        case FunctionCall(function="@in", args=[key, container]):
            pass
        case _:
            return None
    variable = _variable(container)
    return (variable, key) if variable else None


def _text(at: int, value: str) -> Constant:
    made = Constant(at, value)
    made.type = STRING
    return made


def _is_count(expression: Expression) -> bool:
    return isinstance(expression, FunctionCall) and expression.function in _COUNTS


def _domain_of(count: Expression) -> str | None:
    # `domain("label").pods(...)` has a label, `node.pods(...)` has none.
    match count:
        case FunctionCall(target=FunctionCall(function="domain", args=[Constant(value=str(key))])):
            return key
    return None


def _in_order(reads: Iterable[Read]) -> tuple[Read, ...]:
    # A variable that is read as a whole needs no Reads of its keys.
    whole = {read.variable for read in reads if read.key is None} | {*_SETS}
    needed = {Read(r.variable) if r.variable in whole else r for r in reads}
    return tuple(sorted(needed, key=lambda read: (read.variable, read.key or "")))


def _of_node(reads: Iterable[Read]) -> bool:
    return any(read.variable.startswith("node.") for read in reads)


class _Planner:
    """Plans how to evaluate one expression, and collects its mistakes and counts."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self.mistakes: list[FieldError] = []
        self.counts: list[PodCount] = []

    def step(self, expression: Expression) -> Step:
        """Return the step that evaluates the expression, by the interpreter only if necessary."""
        if isinstance(expression, Constant) and kind_of(expression) in _KNOWN:
            return ConstantValue(expression.value)
        if not _of_node(_reads(expression)):
            return self._interpreted(expression)
        if (variable := _variable(expression)) in _FIELDS:
            return NodeField(variable)
        keyed = _keyed(expression)
        if keyed is not None and keyed[0] in _KEYED:
            return self._column(expression, *keyed)
        return (
            self._call(expression)
            if isinstance(expression, FunctionCall)
            else self._interpreted(expression)
        )

    def _call(self, call: FunctionCall) -> Step:
        if _is_count(call):
            return self._count(call)
        if _is_operation(call):
            parts = [*call.parts()]
            return Operation(call.function, tuple(map(self.step, parts)), kind_of(parts[-1]))
        return self._interpreted(call)

    def _column(self, expression: Expression, variable: str, key: Expression) -> Step:
        if _of_node(_reads(key)):
            message = f"the key of {variable} must not depend on the node"
            self._wrong(key, message)
            return ConstantValue(None)
        step = self.step(key)
        if _asks_presence(expression):
            return HasLabel(step)
        return NodeLabelValue(step) if variable == "node.labels" else Amount(variable, step)

    def _count(self, count: FunctionCall) -> Step:
        before, key = len(self.mistakes), _domain_of(count)
        arguments = [*count.parts()]
        if count.function != _COUNTED_PODS:
            of = arguments.pop(0)
            if key is None:
                self._wrong(of, 'write the node label out, as in domain("rack").pods(...)')
            else:
                self._checked_text(of, key, qualified_name)
        pods = self._selected(arguments[0])
        namespaces, namespace_labels = None, None
        if len(arguments) > 1 and isinstance(arguments[1], ListOf):
            namespaces = self._namespaces(arguments[1])
        elif len(arguments) > 1:
            namespace_labels = self._selected(arguments[1])
        if len(self.mistakes) > before:
            return ConstantValue(None)
        self.counts.append(PodCount(key, pods, namespaces, namespace_labels))
        if len(self.counts) == _MOST_COUNTS + 1:
            self._wrong(count, f"pods must not be counted more than {_MOST_COUNTS} times")
        return self.counts[-1]

    def _selected(self, labels: Expression) -> SelectedLabels:
        if isinstance(labels, Constant):
            try:
                return SelectedLabels(parse_selector(str(labels.value)))
            except ValueError as error:
                self._wrong(labels, str(error))
        elif isinstance(labels, MapOf):
            return self._mapped(labels)
        else:
            self._wrong(labels, 'write the labels out, as in {"app": "db"}')
        return SelectedLabels(LabelSelector())

    def _mapped(self, labels: MapOf) -> SelectedLabels:
        written, read = dict[str, str](), dict[str, Step]()
        for key, value, _ in labels.entries:
            if not isinstance(key, Constant):
                self._wrong(key, "the label must be written out, only its value may be read")
                continue
            name = self._checked_text(key, str(key.value), qualified_name)
            if name in written or name in read:
                self._wrong(key, f'the label "{name}" is there twice')
            if isinstance(value, Constant):
                written[name] = self._checked_text(value, str(value.value), label_value)
            elif _of_node(_reads(value)):
                self._wrong(value, "which pods are counted must not depend on the node")
            elif kind_of(value) != "string":
                self._wrong(value, "the value of a label must be a string")
            else:
                read[name] = self._interpreted(value)
        return SelectedLabels(selector_from_labels(written), tuple(read.items()))

    def _namespaces(self, names: ListOf) -> frozenset[str]:
        found = set[str]()
        for name in names.elements:
            if isinstance(name, Constant) and is_object_name(str(name.value)):
                found.add(str(name.value))
            else:
                self._wrong(name, "must be the name of a namespace, as it is written")
        if not names.elements:
            self._wrong(names, "must name a namespace; {} stands for all namespaces")
        return frozenset(found)

    def _checked_text(self, part: Expression, text: str, check: Callable[[str], str]) -> str:
        try:
            check(text)
        except ValueError as error:
            self._wrong(part, str(error))
        return text

    def _wrong(self, part: Expression, message: str) -> None:
        one_line = " ".join(message.split())  # a text in an expression may have several
        self.mistakes.append(self._checked.mistake(part, one_line))

    def _interpreted(self, expression: Expression) -> Step:
        reads = frozenset(_reads(expression))
        before = len(self.mistakes)
        if Read("node.name") in reads and not all(_of_node([read]) for read in reads):
            self._wrong(
                expression, "node.name and the pod can only be compared: ==, startsWith, ..."
            )
        for read in sorted(reads, key=lambda read: read.variable):
            if read.variable in _AMOUNTS:
                message = f"{read.variable} can only be compared and used in arithmetic"
            elif read.variable == _COUNTED_PODS:
                message = "a count of pods can only be compared and used in arithmetic"
            elif read.key is None and read.variable in ("node.labels", "pod.requests"):
                message = f"{read.variable} can only be read by a key that is written out"
            else:
                continue
            self._wrong(expression, message)
        if any(isinstance(p, FunctionCall) and p.function == "domain" for p in walk(expression)):
            message = 'domain("label") must be followed by .pods(...)'
            if not any(read.variable == _COUNTED_PODS for read in reads):
                self._wrong(expression, message)
        if len(self.mistakes) > before:
            return ConstantValue(None)
        return _interpreted(self._checked, expression, reads)


def _asks_presence(expression: Expression) -> bool:
    match expression:
        case Select(tests=asks):
            return asks
        case FunctionCall(function=function):
            return function == "@in"
        case _:
            return False


def _is_operation(call: FunctionCall) -> bool:
    if call.function == "_?_:_":
        return kind_of(call) in _KNOWN
    if call.function == "@in":
        member, container = call.args
        return kind_of(member) == "string" and not _of_node(_reads(container))
    types = {*map(kind_of, call.parts())}
    return len(types) == 1 and types <= {*_OPERANDS.get(call.function, ())}
