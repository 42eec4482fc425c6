"""The syntax tree of a CEL expression, and the names of operators as functions."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from mooring.cel.types import Type

AND: Final = "_&&_"
OR: Final = "_||_"
CONDITIONAL: Final = "_?_:_"
EQUALS: Final = "_==_"
ADD: Final = "_+_"
NOT: Final = "!_"
NEGATE: Final = "-_"
INDEX: Final = "_[_]"
OPTIONAL_INDEX: Final = "_[?_]"
OPTIONAL_SELECT: Final = "_?._"
NOT_STRICTLY_FALSE: Final = "@not_strictly_false"
MAP_INSERT: Final = "cel.@mapInsert"
RESULT: Final = "@result"
"""The variable for the result of a macro; users cannot write this name."""


class UInt(int):
    """A number of CEL's type uint; CEL's int is a Python int."""

    __slots__ = ()


class Expression:
    """A part of an expression; `at` is its position in the source, in characters.

    Attributes:
        depth: The number of levels in this tree, including this node.
        size: The number of nodes in this tree; a shared part counts at each place.
        type: The type of the expression, after the check.
    """

    __slots__ = ("at", "depth", "size", "type")
    at: int
    depth: int
    size: int
    type: Type | None

    def __init__(self, at: int) -> None:
        self.at = at
        self.type = None
        self.depth, self.size = 1, 1
        for part in self.parts():
            self.depth = max(self.depth, part.depth + 1)
            self.size += part.size

    def parts(self) -> Iterator["Expression"]:
        """Yield the children of this node."""
        yield from ()


class Literal(Expression):
    """A constant value in an expression."""

    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        self.value = value
        super().__init__(at)


class Ident(Expression):
    """A name in an expression; `is_type` is the named type, or None if the name is no type."""

    __slots__ = ("is_type", "name")

    def __init__(self, at: int, name: str) -> None:
        self.name = name
        self.is_type: Type | None = None
        super().__init__(at)


class Select(Expression):
    """A field of `operand`; with `tests`, the test whether the operand has the field.

    A name with dots may instead be a variable (`variable`) or a type (`type_name`).
    """

    __slots__ = ("field", "operand", "tests", "type_name", "variable")

    def __init__(self, at: int, operand: Expression, field: str, tests: bool = False) -> None:
        self.operand, self.field, self.tests = operand, field, tests
        self.type_name: Type | None = None
        self.variable = ""
        super().__init__(at)

    def parts(self) -> Iterator[Expression]:
        """Yield the operand, unless the node is a name with dots."""
        if not self.variable:
            yield self.operand


class FunctionCall(Expression):
    """A call of a function or operator; `target` is the object before the dot of a method.

    `overloads` are the ids of the overloads that suit the types of the arguments.
    """

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(
        self, at: int, function: str, args: Sequence[Expression], target: Expression | None = None
    ) -> None:
        self.function, self.args, self.target = function, list(args), target
        self.overloads: list[str] = []
        super().__init__(at)

    def parts(self) -> Iterator[Expression]:
        """Yield the target of a method, and the arguments."""
        if self.target is not None:
            yield self.target
        yield from self.args


class ListOf(Expression):
    """A list in an expression; `optional` are the indexes of elements with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(
        self, at: int, elements: Sequence[Expression], optional: frozenset[int] = frozenset()
    ) -> None:
        self.elements, self.optional = list(elements), optional
        super().__init__(at)

    def parts(self) -> Iterator[Expression]:
        """Yield the elements."""
        yield from self.elements


class MapOf(Expression):
    """A map in an expression: keys, values, and whether an entry has a question mark."""

    __slots__ = ("entries",)

    def __init__(self, at: int, entries: Sequence[tuple[Expression, Expression, bool]]) -> None:
        self.entries = list(entries)
        super().__init__(at)

    def parts(self) -> Iterator[Expression]:
        """Yield each key and its value."""
        for key, value, _optional in self.entries:
            yield key
            yield value


class Comprehension(Expression):
    """A loop over `items` that computes `result`; macros such as `exists` become loops.

    `variables` are the one or two names for an item. The variable `collects` begins with the value
    of `start`; after each item it gets the value of `step`. If `condition` is False, the loop ends.
    """

    __slots__ = ("collects", "condition", "items", "result", "start", "step", "variables")

    def __init__(
        self,
        at: int,
        *,
        items: Expression,
        variables: tuple[str, ...],
        collects: str,
        start: Expression,
        condition: Expression,
        step: Expression,
        result: Expression,
    ) -> None:
        self.items, self.variables, self.collects = items, variables, collects
        self.start, self.condition, self.step, self.result = start, condition, step, result
        super().__init__(at)

    def parts(self) -> Iterator[Expression]:
        """Yield the five expressions of the loop."""
        yield from (self.items, self.start, self.condition, self.step, self.result)


def walk(node: Expression) -> Iterator[Expression]:
    """Yield the node and all nodes below it."""
    yield node
    for part in node.parts():
        yield from walk(part)


def copied(part: Any) -> Any:
    """Return a deep copy of a tree whose types have not been checked yet."""
    if isinstance(part, Expression):
        made = object.__new__(type(part))  # copy() takes twice as long, and macros copy much
        for name in (*Expression.__slots__, *type(part).__slots__):
            setattr(made, name, copied(getattr(part, name)))
        return made
    return type(part)(map(copied, part)) if isinstance(part, list | tuple) else part
