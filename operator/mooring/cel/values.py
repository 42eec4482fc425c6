"""Values of CEL expressions: types, equality, order and size.

Python's bool, int, float, str, bytes and None are used. A list is a tuple or a Joined; while a loop
builds it, it is a Python list. Errors are values too, because `&&` and `||` may ignore an error.
Source: cel-go's `common/types`.
"""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, ClassVar, Final, cast

from mooring.cel.tree import UInt
from mooring.cel.types import NAMED, Type, list_of, map_of, optional_of, parameter
from mooring.pausing import pause

Value = Any


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a value; the text is cel-go's."""

    text: str


NO_OVERLOAD: Final = Failure("no such overload")
NOT_A_NUMBER: Final = Failure("NaN values cannot be ordered")


class EvaluationCrash(Exception):  # noqa: N818 # an error would be a value
    """Raised to end an evaluation at once: cel-go would panic, or the work exceeds its limit."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A time span in nanoseconds."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A time in nanoseconds since 1970 UTC; `offset` is its time zone, in seconds east of UTC."""

    nanoseconds: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value; `value` has no meaning if `present` is False."""

    present: bool
    value: Value = None


ABSENT: Final = Optional(False)


class Opaque:
    """The base class of values with a type that Kubernetes adds to CEL.

    `go_type` and `short_name` are names in cel-go's messages. `hashable` says whether Go can use
    the value as a map's key.
    """

    __slots__ = ()
    cel_type: ClassVar[Type]
    go_type: ClassVar[str]
    short_name: ClassVar[str]
    hashable: ClassVar[bool] = True

    def equals(self, other: Value) -> "bool | Failure":
        """Return whether the values are equal; NO_OVERLOAD if `other` has another type."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Two lists joined without a copy, because repeated joins may double the size each time."""

    first: Any
    second: Any
    size: int


LISTS: Final = frozenset((tuple, list, Joined))
_COPIED: Final = 64
"""The most elements, of two lists together, that are copied to join them; more are linked."""
MOST_WORK: Final = 2_000_000
"""The most units of work of an evaluation, about one second; then it ends with an error. Kubernetes
allows less."""
_WORK_PER_STEP: Final = 4_000
"""The units of work after which an evaluation lets other tasks run."""
_PER_READING: Final = 15
_PER_ELEMENT: Final = 2
"""The units of work for reading an element of a list; evaluating a node of the syntax tree is 1."""
_PER_ITEM: Final = 8
"""The number of characters whose reading is one unit of work."""
LIMIT_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"


class WorkBudget(threading.local):
    """The work that an evaluation may still do; a node of the tree is one unit of work.

    kube-scheduler limits CEL's cost to a million instead; that allows less work than MOST_WORK.
    kube-apiserver rejects a selector with a higher estimated cost.
    """

    left = MOST_WORK
    _until = 0
    """The value of `left` below which the evaluation lets other tasks run."""
    _beside = 0
    """The work of parsing texts, which is in `done` but has no limit."""
    _looked_at = 0
    """The number of elements read since the evaluation last let other tasks run."""
    _most = MOST_WORK

    @property
    def done(self) -> int:
        """The work of the evaluation so far, including the parsing of texts."""
        return self._most - self.left + self._beside

    def begin(self, most: int = MOST_WORK) -> None:
        """Begin an evaluation that may do this much work."""
        self.left = self._most = most
        self._beside = 0
        self._until = max(0, most - _WORK_PER_STEP)

    def spend(self, items: int) -> None:
        """Subtract `items` units of work; raise EvaluationCrash if too little is left.

        Lets other tasks run every few thousand units.
        """
        self.left -= items
        if self.left < self._until:
            if self.left < 0:
                raise EvaluationCrash(LIMIT_EXCEEDED)
            self.step()

    def look_at(self, items: int) -> None:
        """Count elements that are read again; this costs no work, but lets other tasks run."""
        self._looked_at += items
        if self._looked_at > _WORK_PER_STEP:
            self.step()

    def step(self) -> None:
        """Let other tasks run if it is time; then restore this budget, which they may change."""
        self._looked_at = 0
        own = dict(self.__dict__)
        pause()
        self.__dict__.update(own)
        self._until = max(0, self.left - _WORK_PER_STEP)

    def read(self) -> None:
        """Add the work of parsing a quantity, version, address or URL to `done`."""
        self._beside += _PER_READING

    def spend_on_text(self, characters: int) -> None:
        """Subtract the work of making a text of this length; call this before making the text."""
        if characters >= _PER_ITEM:
            self.spend(characters // _PER_ITEM)


work: Final = WorkBudget()


def _key(key: Value) -> Any:
    kind = type(key)
    if kind is str:
        return key
    if kind is bytes or (isinstance(key, Opaque) and not key.hashable):
        name = "types.Bytes" if kind is bytes else key.go_type
        raise EvaluationCrash(f"internal error: runtime error: hash of unhashable type {name}")
    if kind in {bool, int, UInt, float, type(None), Type, Duration, Timestamp}:
        # With the type, so that 1, 1u, 1.0 and true differ.
        return (kind, key)
    return (kind, id(key))


class MapValue:
    """A map of CEL; `default` is the value of all missing keys, unless it is None.

    Code that builds the map, for example a loop (`is_building`), may change it. Other code makes a
    changed copy.
    """

    __slots__ = ("_entries", "default", "is_building")

    def __init__(self, default: "MapValue | None" = None, is_building: bool = False) -> None:
        self._entries: dict[Any, tuple[Value, Value]] = {}
        self.default = default
        self.is_building = is_building

    @classmethod
    def of_strings(
        cls, entries: Mapping[str, Value], default: "MapValue | None" = None
    ) -> "MapValue":
        """Return a map with text keys."""
        made = cls(default)
        made._entries = {key: (key, value) for key, value in entries.items()}
        return made

    def put(self, key: Value, value: Value) -> None:
        """Set the value of the key; only the code that makes the map may do this."""
        self._entries[_key(key)] = (key, value)

    def remove(self, key: Value) -> None:
        """Remove the entry of the key, if it exists."""
        self._entries.pop(_key(key), None)

    def find(self, key: Value) -> "tuple[bool, Value]":
        """Return whether the key has a value, and the value, which may be the default."""
        found = self._entries.get(key) if type(key) is str else self._of_number(key)
        if found is not None:
            return True, found[1]
        if self.default is not None:
            return True, self.default
        return False, None

    def has(self, key: Value) -> bool:
        """Return whether the map has an entry for the key; the default does not count."""
        return (self._entries.get(key) if type(key) is str else self._of_number(key)) is not None

    def _of_number(self, key: Value) -> "tuple[Value, Value] | None":
        """Return the entry (key and value) for a key that is not a string."""
        if not self._entries:
            return None
        found = self._entries.get(_key(key))
        kind = type(key)
        # A number also finds the entry of an equal int or uint.
        if found is None and kind in {float, UInt}:
            whole = lossless_int(key)
            found = None if whole is None else self._entries.get((int, whole))
        if found is None and kind in {float, int}:
            whole = lossless_uint(key)
            found = None if whole is None else self._entries.get((UInt, UInt(whole)))
        return found

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return (key for key, _value in self._entries.values())

    def items(self) -> Iterator[tuple[Value, Value]]:
        """Yield each key with its value."""
        yield from self._entries.values()


EMPTY_MAP: Final = MapValue()


def lossless_int(value: float) -> int | None:
    """Return the number as an int64; None if it is no whole number in this range."""
    if not math.isfinite(value):
        return None
    whole = int(value)
    return whole if whole == value and -(2**63) < whole < 2**63 else None


def lossless_uint(value: float) -> int | None:
    """Return the number as a uint64; None if it is no whole number in this range."""
    if not math.isfinite(value):
        return None
    whole = int(value)
    return whole if whole == value and 0 <= whole < 2**64 else None


def is_list(value: Value) -> bool:
    """Return whether the value is a CEL list, in any of its forms in Python (`LISTS`)."""
    return type(value) in LISTS


def joined(first: Value, second: Value) -> Value:
    """Return both lists joined; if `first` is a comprehension's unfinished list, extend it."""
    if type(first) is list:
        first.extend(iterate(second))
        return first
    sizes = size_of(first), size_of(second)
    if not sizes[0]:
        return second
    if not sizes[1]:
        return first
    if sum(sizes) <= _COPIED:
        return (*iterate(first), *iterate(second))
    return Joined(first, second, min(sum(sizes), 2**63 - 1))


def iterate(value: Value) -> Iterator[Value]:
    """Yield the elements of a list, or the keys of a map."""
    left = [list(value) if type(value) is list else value]
    while left:
        part = left.pop()
        if isinstance(part, Joined):
            left += (part.second, part.first)
        else:
            yield from part


def at_once(value: Value) -> Iterator[Value]:
    """Subtract the work of reading the whole list from the budget; then yield its elements."""
    work.spend(_PER_ELEMENT * size_of(value))
    return paced(iterate(value))


def paced(items: Iterable[Value]) -> Iterator[Value]:
    """Yield the items; other tasks may run after every few thousand items."""
    left = iter(items)
    while some := tuple(islice(left, _WORK_PER_STEP)):
        work.look_at(len(some))
        yield from some


def size_of(value: Value) -> int:
    """Return the size of a text, of bytes, a list or a map."""
    return value.size if isinstance(value, Joined) else len(value)


def index_of(value: Value) -> "int | Failure":
    """Return the value as an index; a Failure if it is no whole number."""
    kind = type(value)
    if kind is int:
        return cast("int", value)
    if kind in {float, UInt}:
        whole = lossless_int(value)
        if whole is None:
            return Failure(f"unsupported index value {text_of(value)} in list")
        return whole
    return Failure(f"unsupported index type '{type_name(value)}' in list")


_TYPES: Final[Mapping[type, Type]] = {
    bool: NAMED["bool"],
    int: NAMED["int"],
    UInt: NAMED["uint"],
    float: NAMED["double"],
    str: NAMED["string"],
    bytes: NAMED["bytes"],
    type(None): NAMED["null_type"],
    tuple: list_of(parameter("A")),
    list: list_of(parameter("A")),
    Joined: list_of(parameter("A")),
    MapValue: map_of(parameter("A"), parameter("B")),
    Type: NAMED["type"],
    Duration: NAMED["duration"],
    Timestamp: NAMED["timestamp"],
    Optional: optional_of(parameter("A")),
    Failure: Type("opaque", "error"),
}


def type_of_value(value: Value) -> Type:
    """Return the CEL type of the value, as `type()` does."""
    known = _TYPES.get(type(value))
    return value.cel_type if known is None else known


def type_name(value: Value) -> str:
    """Return the name of the value's type, such as `int`."""
    return type_of_value(value).name


_NUMBERS: Final = frozenset((int, UInt, float))


def equal(first: Value, second: Value) -> "bool | Failure":
    """Return whether two values are equal, as `==` does; a Failure if they are not comparable."""
    if first is None or second is None:
        return first is second
    kind, other = type(first), type(second)
    if kind is str:
        work.spend_on_text(len(first))
        return bool(first == second)
    if kind in _NUMBERS:
        return other in _NUMBERS and _compared(first, second) == 0
    if kind in LISTS:
        return _equal_lists(first, second)
    if kind is MapValue:
        return _equal_maps(first, second)
    if kind is Optional:
        return other is Optional and _equal_optionals(first, second)
    if kind is Type:
        return other is Type and first.name == second.name
    if kind is Timestamp:
        return other is Timestamp and first.nanoseconds == second.nanoseconds
    if isinstance(first, Opaque):
        return first.equals(second)
    return kind is other and bool(first == second)


def _equal_optionals(first: Optional, second: Optional) -> "bool | Failure":
    if not (first.present and second.present):
        return first.present == second.present
    return _directly_equal(first.value, second.value)


def _directly_equal(first: Value, second: Value) -> "bool | Failure":
    # An Opaque value compares itself even with None.
    if second is None and isinstance(first, Opaque):
        return first.equals(second)
    return equal(first, second)


def _equal_lists(first: Value, second: Value) -> "bool | Failure":
    if not is_list(second) or size_of(first) != size_of(second):
        return False
    failed: Failure | None = None
    for mine, other in zip(at_once(first), iterate(second), strict=True):
        same = equal(mine, other)
        if same is False:
            return False
        if failed is None and isinstance(same, Failure):
            failed = same
    # cel-go loses the error of an element, unless the list was made with `+`.
    return failed if failed is not None and type(first) is Joined else True


def _equal_maps(first: MapValue, second: Value) -> "bool | Failure":
    if type(second) is not MapValue or len(first) != len(second):
        return False
    work.spend(len(first))
    for key, value in paced(first.items()):
        found, other = second.find(key)
        if not found or equal(value, other) is False:
            return False
    return True


def _compared(first: float, second: float) -> int | None:
    """Return -1, 0 or 1 for less, equal or greater; None for NaN."""
    if math.isnan(first) or math.isnan(second):
        return None
    if type(first) is float or type(second) is float:
        # Whole numbers become floats first, as in cel-go, unless they are out of reach.
        if type(first) is not float and abs(second) <= 2**64:
            first = float(first)
        if type(second) is not float and abs(first) <= 2**64:
            second = float(second)
    return (first > second) - (first < second)


def compare(first: Value, second: Value) -> "int | Failure":
    """Return -1, 0 or 1 for less, equal or greater; a Failure if there is no order."""
    kind, other = type(first), type(second)
    if kind in _NUMBERS and other in _NUMBERS:
        found = _compared(first, second)
        return NOT_A_NUMBER if found is None else found
    if kind is not other:
        nan = kind is float and math.isnan(first)
        return NOT_A_NUMBER if nan else NO_OVERLOAD
    if kind is str:
        first, second = first.encode(), second.encode()
    if kind in {Duration, Timestamp}:
        first, second = first.nanoseconds, second.nanoseconds
    return int(first > second) - int(first < second)


def text_of(value: Value) -> str:
    """Return the value as text for messages."""
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return go_float(value)
    if kind is bytes:
        return "[" + " ".join(str(each) for each in value) + "]"
    if kind in LISTS:
        return "[" + ", ".join(text_of(each) for each in at_once(value)) + "]"
    if kind is MapValue:
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    if kind is Optional:
        return f"optional({text_of(value.value)})" if value.present else "optional.none()"
    if value is None:
        return "0"
    return str(value)


def go_float(value: float) -> str:
    """Return the float with the fewest digits that identify it, as Go's %g does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    exact = Decimal(repr(value)).normalize()
    power = exact.adjusted() if value else 0
    if -4 <= power < _EXPONENT_FROM:
        return f"{exact:f}"
    digits = "".join(map(str, exact.as_tuple().digits))
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    sign, power_sign = "-" if value < 0 else "", "-" if power < 0 else "+"
    return f"{sign}{digits[0]}{fraction}e{power_sign}{abs(power):02d}"


_EXPONENT_FROM: Final = 6
