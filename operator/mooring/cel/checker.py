"""Checks the types of an expression, and finds the suitable overloads of each call.

The rules and the messages are those of cel-go's `checker`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from mooring.cel.cel_errors import ExpressionMistake
from mooring.cel.declarations import Overload
from mooring.cel.tree import (
    AND,
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
from mooring.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    NAMED,
    STRING,
    Substitutions,
    Type,
    has_any_type,
    is_dynamic,
    list_of,
    map_of,
    most_general,
    optional_of,
    parameter,
    type_of,
    unwrapped,
)

_LITERALS: Final = {
    bool: NAMED["bool"],
    int: INT,
    UInt: NAMED["uint"],
    float: NAMED["double"],
    str: STRING,
    bytes: NAMED["bytes"],
    type(None): NAMED["null_type"],
}
_TYPE_NAMES: Final[Mapping[str, Type]] = {
    each.name: each
    for each in (
        *(NAMED[n] for n in ("bool", "bytes", "double", "duration", "int", "null_type", "string")),
        *(NAMED[n] for n in ("timestamp", "type", "uint", "IP", "CIDR")),
        list_of(parameter("A")),
        map_of(parameter("A"), parameter("B")),
        optional_of(DYN),
    )
}
"""Names of types that an expression may use, as in `type(1) == int`."""


class Checker:
    """Finds type mistakes in one expression, and sets the types of its parts.

    `variables` has types by name, which may have dots. `fields` has, for each object type, the
    types of its fields.
    """

    def __init__(
        self,
        variables: Mapping[str, Type],
        fields: Mapping[str, Mapping[str, Type]],
        functions: Mapping[str, Sequence[Overload]],
    ) -> None:
        self.mistakes: list[ExpressionMistake] = []
        self._scopes: list[Mapping[str, Type]] = [variables]
        self._fields = fields
        self._known = Substitutions()
        self._functions = functions
        self._checked = list[Expression]()

    def check(self, root: Expression) -> Type:
        """Set the types of all nodes, and return the type of the whole expression."""
        self._check(root)
        for node in self._checked:
            if node.type is not None:
                node.type = self._known.resolved(node.type, free=DYN)
        return root.type or ERROR

    def _report(self, node: Expression, text: str) -> None:
        self.mistakes.append(ExpressionMistake(node.at, text))

    def _mismatch(self, node: Expression, expected: Type, found: Type) -> None:
        self._report(node, f"expected type '{expected.shown}' but found '{found.shown}'")

    def _check(self, node: Expression) -> Type:
        if node.type is None:
            match node:
                case Literal():
                    found = _LITERALS[type(node.value)]
                case Ident():
                    found = self._ident(node)
                case Select():
                    found = self._select(node)
                case FunctionCall():
                    found = self._call(node)
                case ListOf():
                    found = self._list(node)
                case MapOf():
                    found = self._map(node)
                case Comprehension():
                    found = self._comprehension(node)
                case _:
                    raise TypeError(node)
            node.type = found
            self._checked.append(node)
        return node.type

    def _lookup(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _ident(self, node: Ident) -> Type:
        name = node.name.removeprefix(".")
        found = self._lookup(name)
        if found is None and name in _TYPE_NAMES:
            node.is_type = _TYPE_NAMES[name]
            return type_of(node.is_type)
        if found is None:
            self._undeclared(node, node.name)
            return ERROR
        node.name = name
        return found

    def _undeclared(self, node: Expression, name: str) -> None:
        self._report(node, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select) -> Type:
        qualified = _qualified(node)
        if qualified in _TYPE_NAMES:
            node.type_name = _TYPE_NAMES[qualified]
            return type_of(_TYPE_NAMES[qualified])
        name = qualified.removeprefix(".")
        variable = self._scopes[0].get(name)
        if variable is not None and self._lookup(qualified.split(".")[0]) is None:
            node.variable = name
            return variable
        found = self._field(node, node.operand, node.field, optional=False)
        return BOOL if node.tests else self._known.resolved(found)

    def _field(self, node: Expression, operand: Expression, field: str, optional: bool) -> Type:
        target, is_optional = unwrapped(self._known.resolved(self._check(operand)))
        result = ERROR
        match target.kind:
            case "map":
                result = target.parameters[1]
            case "struct":
                fields = self._fields.get(target.name)
                if fields is None:
                    self._report(node, f"unexpected failed resolution of '{target.name}'")
                elif field in fields:
                    result = fields[field]
                else:
                    self._report(node, f"undefined field '{field}'")
            case "param":
                self._known.assign(DYN, target)
                result = DYN
            case _:
                if not has_any_type(target):
                    self._report(node, f"type '{target.shown}' does not support field selection")
                result = DYN
        return optional_of(result) if is_optional or optional else result

    def _call(self, node: FunctionCall) -> Type:
        if node.function == OPTIONAL_SELECT and OPTIONAL_SELECT in self._functions:
            operand, name = node.args[0], cast("Literal", node.args[1]).value
            node.overloads = ["select_optional_field"]
            return self._known.resolved(self._field(node, operand, name, optional=True))
        for arg in node.args:
            self._check(arg)
        known = self._functions
        name = node.function.removeprefix(".")
        if node.target is not None:
            prefix = _qualified(node.target)
            if prefix and f"{prefix}.{name}".removeprefix(".") in known:
                node.function = name = f"{prefix}.{name}".removeprefix(".")
                node.target = None
            else:
                self._check(node.target)
        if name not in known:
            self._undeclared(node, node.function)
            return ERROR
        node.function = name
        return self._resolved(node, known[name])

    def _resolved(self, node: FunctionCall, overloads: Sequence[Overload]) -> Type:
        """Return the type of a call, and store the names of its suitable overloads in the node."""
        if node.function in {AND, OR}:
            return self._logical(node, overloads[0].name)
        parts = [*([node.target] if node.target is not None else []), *node.args]
        given = [each.type or ERROR for each in parts]
        result: Type | None = None
        for overload in overloads:
            if overload.is_method is not (node.target is not None):
                continue
            wanted, gives = self._instance(overload)
            if not self._known.assign_all(given, wanted):
                continue
            node.overloads.append(overload.name)
            gives = self._known.resolved(gives)
            if result is None:
                result = gives
            elif not is_dynamic(result) and gives != result:
                result = DYN
        if result is None:
            shown = [self._known.resolved(each, free=DYN).shown for each in given]
            target = f"{shown.pop(0)}." if node.target is not None else ""
            applied = f"{target}({', '.join(shown)})"
            self._report(
                node, f"found no matching overload for '{node.function}' applied to '{applied}'"
            )
            return ERROR
        return result

    def _logical(self, node: FunctionCall, overload: str) -> Type:
        wrong = False
        for arg in node.args:
            if not self._known.assign(arg.type or ERROR, BOOL):
                self._mismatch(arg, BOOL, arg.type or ERROR)
                wrong = True
        node.overloads.append(overload)
        return ERROR if wrong else BOOL

    def _instance(self, overload: Overload) -> tuple[Sequence[Type], Type]:
        """Return the types of the overload's parameters and result, with fresh type parameters."""
        if not overload.is_generic:
            return overload.parameters, overload.result
        made = dict[str, Type]()

        def renamed(given: Type) -> Type:
            if given.kind == "param":
                if given.name not in made:
                    made[given.name] = self._known.new_parameter()
                return made[given.name]
            return Type(given.kind, given.name, tuple(map(renamed, given.parameters)))

        return [renamed(each) for each in overload.parameters], renamed(overload.result)

    def _list(self, node: ListOf) -> Type:
        joined: Type | None = None
        for index, each in enumerate(node.elements):
            joined = self._joined(joined, self._element(each, index in node.optional))
        return list_of(joined or self._known.new_parameter())

    def _element(self, node: Expression, optional: bool) -> Type:
        found = self._check(node)
        if optional:
            found, is_optional = unwrapped(found)
            if not is_optional and not is_dynamic(found):
                self._mismatch(node, optional_of(found), found)
        return found

    def _map(self, node: MapOf) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._joined(keys, self._check(key))
            values = self._joined(values, self._element(value, optional))
        return map_of(keys or self._known.new_parameter(), values or self._known.new_parameter())

    def _joined(self, before: Type | None, found: Type) -> Type:
        if before is None:
            return found
        if self._known.assign(before, found):
            return most_general(before, found)
        return DYN

    def _comprehension(self, node: Comprehension) -> Type:
        self._check(node.items)
        start = self._check(node.start)
        bound = self._bound(node, self._known.resolved(node.items.type or ERROR))
        self._scopes.append({node.collects: start})
        self._scopes.append(dict(zip(node.variables, bound, strict=True)))
        for part, wanted in ((node.condition, BOOL), (node.step, start)):
            if not self._known.assign(wanted, self._check(part)):
                self._mismatch(part, wanted, part.type or ERROR)
        self._scopes.pop()
        found = self._check(node.result)
        self._scopes.pop()
        return self._known.resolved(found)

    def _bound(self, node: Comprehension, items: Type) -> Sequence[Type]:
        two = len(node.variables) == 2
        match items.kind:
            case "list":
                return (INT, items.parameters[0]) if two else items.parameters
            case "map":
                return items.parameters if two else items.parameters[:1]
            case "dyn" | "error" | "param":
                self._known.assign(DYN, items)
                return (DYN,) * len(node.variables)
        self._report(
            node.items,
            f"expression of type '{items.shown}' cannot be range of a comprehension"
            " (must be list, map, or dynamic)",
        )
        return (ERROR,) * len(node.variables)


def _qualified(node: Expression) -> str:
    match node:
        case Ident():
            return node.name
        case Select(tests=False):
            before = _qualified(node.operand)
            return f"{before}.{node.field}" if before else ""
    return ""
