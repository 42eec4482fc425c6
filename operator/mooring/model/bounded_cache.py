"""Caches with a maximum number of bytes.

The entry of one pod may be a thousand times as large as an ordinary one, and a tenant can create
pods that all differ. Therefore a maximum number of entries would not limit the memory. Every cache
of tenants' data is a `BoundedCache`, or counts its bytes in `bytes` and has its maximum in
`most_bytes` (tests/test_caches.py). An lru_cache is only for short texts.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from sys import getsizeof
from typing import Any, Final, Generic, ParamSpec, TypeVar

import numpy as np

_ENTRY: Final = 256
"""The bytes that a cache needs for an entry, without its key and value."""
_ITEM: Final = 16
"""The bytes of a reference in a list, a tuple or a dict."""
_ARRAY: Final = 128
_LEAVES: Final = frozenset((str, bytes, int, float, bool, type(None)))
"""Types of values that contain no other values."""
_SLOTS: Final[dict[type, tuple[str, ...]]] = {}
"""Caches the names in the `__slots__` of each type that `bytes_of` has seen."""
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_Arguments = ParamSpec("_Arguments")


def bytes_of(*values: object) -> int:
    """Return the estimated bytes of the values and of all objects to which they refer.

    If an object has an integer attribute `memory`, this number is used. The values must not refer
    to the state of the cluster.
    """
    total, left, seen = 0, list(values), set[int]()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) in _LEAVES:
            total += _ITEM + getsizeof(value)
        elif type(memory := getattr(value, "memory", None)) is int:
            total += memory
        elif isinstance(value, np.ndarray):
            total += _ARRAY + value.nbytes
        else:
            total += _ITEM + getsizeof(value)
            left += _parts(value)
    return total


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, type) or callable(value):
        return ()
    slots = [getattr(value, name, None) for name in _slots(type(value))]
    return [*slots, *getattr(value, "__dict__", {}).values()]


def _slots(kind: type) -> tuple[str, ...]:
    known = _SLOTS.get(kind)
    if known is None:
        declared = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
        names = [name for some in declared for name in ((some,) if isinstance(some, str) else some)]
        known = tuple(name for name in names if name not in {"__dict__", "__weakref__"})
        _SLOTS[kind] = known
    return known


class BoundedCache(Generic[_Key, _Value]):
    """Keeps the most recently used values that fit into `most_bytes`, by key.

    `size` returns the estimated bytes of a key and a value. It is called once for each value, so a
    value must not grow. A value larger than the whole cache is not kept.
    """

    __slots__ = ("_kept", "_size", "bytes", "most_bytes")

    def __init__(self, most_bytes: int, size: Callable[[_Key, _Value], int] = bytes_of) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        """The estimated bytes of all entries."""
        self._size = size
        self._kept: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def values(self) -> list[_Value]:
        """Return all values, the most recently used last."""
        return [value for value, _ in self._kept.values()]

    def get(self, key: _Key) -> _Value | None:
        """Return the value of the key, and mark it as just used; None if it is not kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: _Key, value: _Value) -> None:
        """Store the value of the key; remove the least recently used entries until all fit."""
        self.pop(key)
        size = _ENTRY + self._size(key, value)
        if size > self.most_bytes:
            return
        self._kept[key] = value, size
        self.bytes += size
        while self.bytes > self.most_bytes:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.bytes -= dropped

    def pop(self, key: _Key) -> _Value | None:
        """Remove the key and return its value; None if it is not kept."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self.bytes -= found[1]
        return found[0]

    def clear(self) -> None:
        """Remove all entries."""
        self._kept.clear()
        self.bytes = 0


def cached(
    most_bytes: int,
) -> Callable[[Callable[_Arguments, _Value]], Callable[_Arguments, _Value]]:
    """Return a decorator that caches a function's results in at most `most_bytes`.

    Use it instead of functools.lru_cache, which limits only the number of entries.
    """

    def decorate(function: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
        cache: BoundedCache[Any, tuple[_Value]] = BoundedCache(most_bytes)
        kept = cache._kept  # noqa: SLF001 - its own module's; `get` would cost another call
        find, use = kept.get, kept.move_to_end

        @wraps(function)
        def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Value:
            key = (args, *kwargs.items()) if kwargs else args
            found = find(key)
            if found is not None:
                use(key)
                return found[0][0]
            result = function(*args, **kwargs)
            cache.put(key, (result,))
            return result

        return called

    return decorate
