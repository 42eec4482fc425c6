"""The types of CEL in its checker, and whether a type may replace another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type; `kind` is its family, `name` its name in `type()` and in messages."""

    kind: str
    name: str
    parameters: tuple["Type", ...] = ()

    @property
    def shown(self) -> str:
        """The name of the type with its parameters, in the form of messages."""
        if self.kind in _SHOWN:
            return _SHOWN[self.kind]
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(each.shown for each in self.parameters)})"

    def __str__(self) -> str:
        if self.kind == "param":
            return f"<{self.name}>"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


_SHOWN: Final = {
    "any": "any",
    "duration": "duration",
    "error": "!error!",
    "null": "null",
    "timestamp": "timestamp",
}


def _simple(kind: str, name: str = "") -> Type:
    return Type(kind, name or kind)


BOOL: Final = _simple("bool")
INT: Final = _simple("int")
STRING: Final = _simple("string")
DYN: Final = _simple("dyn")
ANY: Final = _simple("any", "google.protobuf.Any")
ERROR: Final = _simple("error", "!error!")
NAMED: Final = {
    "bool": BOOL,
    "int": INT,
    "uint": _simple("uint"),
    "double": _simple("double"),
    "string": STRING,
    "bytes": _simple("bytes"),
    "null_type": _simple("null", "null_type"),
    "duration": _simple("duration", "google.protobuf.Duration"),
    "timestamp": _simple("timestamp", "google.protobuf.Timestamp"),
    "dyn": DYN,
    "type": _simple("type"),
    "Quantity": Type("struct", "kubernetes.Quantity"),
    "Semver": Type("struct", "kubernetes.Semver"),
    "URL": Type("struct", "kubernetes.URL"),
    "Format": Type("struct", "kubernetes.NamedFormat"),
    "IP": Type("opaque", "net.IP"),
    "CIDR": Type("opaque", "net.CIDR"),
}
"""The types without parameters, by their names in declarations."""

_NESTED: Final = frozenset(("opaque", "list", "map", "type"))
_NULLABLE: Final = frozenset(("opaque", "struct", "any", "duration", "timestamp"))


def list_of(element: Type) -> Type:
    """Return the type of a list with elements of this type."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map with keys and values of these types."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of an optional that may contain a value of this type."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of a type name; in `type(1) == int`, `int` has the type `type(int)`."""
    return Type("type", "type", (value,))


def parameter(name: str) -> Type:
    """Return the type parameter of this name, such as A in list(A)."""
    return Type("param", name)


def is_dynamic(given: Type) -> bool:
    """Return whether the type is `dyn` or `any`, so that a value may have any type."""
    return given.kind in {"dyn", "any"}


def has_any_type(given: Type) -> bool:
    """Return whether the type is dynamic, or unknown because of a mistake."""
    return given.kind in {"dyn", "any", "error"}


def unwrapped(given: Type) -> tuple[Type, bool]:
    """Return the inner type and True for an optional type, else the type and False."""
    if given.kind == "opaque" and given.name == "optional_type":
        return given.parameters[0], True
    return given, False


def most_general(first: Type, second: Type) -> Type:
    """Return the less specific of two types."""
    return first if _is_less_specific(first, second) else second


def _is_less_specific(first: Type, second: Type) -> bool:
    if is_dynamic(first) or first.kind == "param":
        return True
    if is_dynamic(second) or second.kind == "param" or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.kind in {"opaque", "list", "map"}:
        return (
            first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(map(_is_less_specific, first.parameters, second.parameters))
        )
    return first == second


class Substitutions:
    """Maps the type parameters of an expression to types.

    A log of the changes makes it possible to undo the changes of a failed match.
    """

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._log: list[tuple[str, Type | None]] = []
        self._free = 0

    def new_parameter(self) -> Type:
        """Return a new type parameter that can stand for any type."""
        self._free += 1
        return parameter(f"_var{self._free - 1}")

    def assign(self, first: Type, second: Type) -> bool:
        """Return whether the types match; give type parameters the types that make them match."""
        return self.assign_all((first,), (second,))

    def assign_all(self, first: Sequence[Type], second: Sequence[Type]) -> bool:
        """Return whether the types match pair by pair; if not, change no type parameters."""
        self._log.clear()
        if self._all_agree(first, second):
            return True
        for name, before in reversed(self._log):
            if before is None:
                del self._known[name]
            else:
                self._known[name] = before
        return False

    def resolved(self, given: Type, free: Type | None = None) -> Type:
        """Return the type with its parameters replaced by the types that were assigned to them.

        A parameter without an assigned type becomes `free`; if `free` is None, the parameter stays.
        """
        while given.kind == "param":
            known = self._known.get(given.name)
            if known is None:
                return given if free is None else free
            given = known
        if given.kind in _NESTED and given.parameters:
            inner = tuple(self.resolved(each, free) for each in given.parameters)
            return Type(given.kind, given.name, inner)
        return given

    def _all_agree(self, first: Iterable[Type], second: Iterable[Type]) -> bool:
        first, second = tuple(first), tuple(second)
        return len(first) == len(second) and all(map(self._agree, first, second))

    def _agree(self, first: Type, second: Type) -> bool:
        if second.kind == "param":
            valid, known = self._substitutes(first, second)
            if valid or known:
                return valid
        if first.kind == "param":
            return self._substitutes(second, first)[0]
        if has_any_type(first) or has_any_type(second):
            return True
        if first.kind == "null" or second.kind == "null":
            other = second if first.kind == "null" else first
            return other.kind in _NULLABLE or other.kind == "null"
        if first.kind == "type":
            return second.kind == "type"
        if first.kind in {"opaque", "list", "map"}:
            same = first.kind == second.kind and first.name == second.name
            return same and self._all_agree(first.parameters, second.parameters)
        return second.kind in {"dyn", "any", "param"} or second == first

    def _substitutes(self, given: Type, free: Type) -> tuple[bool, bool]:
        """Return whether `free` can be the type `given`, and whether `free` was bound before."""
        if given == free:
            return True, True
        known = self._known.get(free.name)
        if known is not None:
            if given == known:
                return True, True
            if not self._agree(given, known):
                return False, True
            general = most_general(given, known)
            if self._is_absent(free, general):
                self._remember(free, general)
            return True, True
        if self._is_absent(free, given):
            self._remember(free, given)
            return True, False
        return False, False

    def _remember(self, free: Type, given: Type) -> None:
        self._log.append((free.name, self._known.get(free.name)))
        self._known[free.name] = given

    def _is_absent(self, free: Type, within: Type) -> bool:
        """Return whether the type parameter `free` does not occur in the type `within`."""
        if free == within:
            return False
        if within.kind == "param":
            known = self._known.get(within.name)
            return known is None or self._is_absent(free, known)
        if within.kind in _NESTED:
            return all(self._is_absent(free, each) for each in within.parameters)
        return True
