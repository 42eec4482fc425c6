"""Walks over all objects of a program, to find the objects that it keeps, and where."""

import asyncio
import functools
import gc
import re
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from mooring.observe.records import DecisionLog

_NUMBERS: Final = frozenset({int, float, bool, type(None)})
"""What has neither text nor parts."""


class Holders:
    """Every object that is reachable from `roots`; each object is visited once.

    Attributes:
        bounded: The objects that count their own bytes, each with its place; their parts are not
            visited.
        marks: By place, the texts that match the group of the pattern `mark`.
    """

    def __init__(self, mark: re.Pattern[bytes], *roots: tuple[str, object]) -> None:
        self._mark = mark
        self.bounded: list[tuple[str, Any]] = []
        self._seen: set[int] = set()
        self._keep: list[object] = []
        self.marks: dict[str, set[bytes]] = defaultdict(set)
        self._walk(deque(roots), self.bounded)

    def own_bytes(self, where: str, bounded: object) -> int:
        """Return the bytes of a bounded object, without objects that other objects also hold."""
        before = len(self._keep)
        self._seen.discard(id(bounded))
        self._walk(deque(parts_of(where, bounded)), [])
        return sum(map(_size, self._keep[before:]))

    def _walk(self, left: "deque[tuple[str, object]]", bounded: list[tuple[str, Any]]) -> None:
        seen, keep = self._seen, self._keep
        while left:
            where, found = left.popleft()
            if id(found) in seen:
                continue
            seen.add(id(found))
            keep.append(found)
            if type(found) in _NUMBERS:
                continue
            if isinstance(found, str | bytes):
                text = found.encode(errors="replace") if isinstance(found, str) else found
                self.marks[where].update(self._mark.findall(text))
            elif most_bytes(found) is not None:
                bounded.append((where, found))
            else:
                left.extend(parts_of(where, found))


def parts_of(where: str, found: object) -> Iterator[tuple[str, object]]:
    """Yield the objects that `found` refers to; only Mooring's objects and containers have any."""
    kind: Any = type(found)
    if (parts := _parts_by_type(kind)) is not None:
        return ((f"{where}{name}", part) for name, part in list(parts(found)))
    if not _is_ours(found):
        return iter(())
    return ((f"{where}.{name}", value) for name, value in _attributes(found))


@functools.cache
def _parts_by_type(kind: type) -> Callable[[Any], Iterable[tuple[str, object]]] | None:
    """Return the function that yields the parts of objects of this type; None if there is none."""
    return next((of_kind for known, of_kind in _PARTS if issubclass(kind, known)), None)


def _items(found: Iterable[object]) -> Iterator[tuple[str, object]]:
    return (("[]", one) for one in found)


def _entries(found: Mapping[Any, object]) -> Iterator[tuple[str, object]]:
    yield from (("{}", key) for key in found)
    yield from _items(found.values())


def _cached_results(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the results in a function's cache; nothing for functions of other libraries."""
    return _items(gc.get_referents(found) if found.__module__.startswith("mooring") else ())


_PARTS: Final[tuple[tuple[Any, Any], ...]] = (
    (WeakValueDictionary, lambda _: ()),  # its keys go with its values, which something else has
    (WeakKeyDictionary, lambda found: _items(found.values())),
    (Mapping, _entries),
    (list | tuple | set | frozenset | deque, _items),
    (asyncio.Queue, lambda found: _items(vars(found)["_queue"])),
    (functools.partial, lambda f: _items((f.func, f.args, f.keywords))),
    (types.MethodType, lambda found: _items((found.__self__,))),
    (types.FunctionType, lambda f: _items((f.__closure__ or (), f.__defaults__ or ()))),
    (types.CellType, lambda found: _items(gc.get_referents(found))),
    (type(functools.lru_cache(lambda: None)), _cached_results),
    (np.ndarray, lambda found: _items(() if found.base is None else (found.base,))),
)
"""By type, the parts of an object and how they are reached."""


def _is_ours(found: object) -> bool:
    return _is_our_type(found if isinstance(found, type) else type(found))


@functools.cache
def _is_our_type(kind: type) -> bool:
    return kind.__module__.startswith("mooring")


def _attributes(found: object) -> Iterator[tuple[str, object]]:
    yield from list(getattr(found, "__dict__", {}).items())
    if isinstance(found, type):
        return
    kind: Any = type(found)
    for name in _slots(kind):
        if hasattr(found, name):
            yield name, getattr(found, name)


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    found = (base.__dict__.get("__slots__", ()) for base in kind.__mro__)
    names = ((slots,) if isinstance(slots, str) else slots for slots in found)
    return tuple(n for some in names for n in some if n not in {"__dict__", "__weakref__"})


def most_bytes(found: object) -> int | None:
    """Return the limit in bytes of an object that counts its bytes; None for any other object."""
    if not _is_ours(found) or type(getattr(found, "bytes", None)) is not int:
        return None
    most = getattr(found, "limit" if isinstance(found, DecisionLog) else "most_bytes", None)
    return most if type(most) is int else None


def _size(found: object) -> int:
    if isinstance(found, np.ndarray):
        return 128 + (found.nbytes if found.base is None else 0)
    return sys.getsizeof(found)
