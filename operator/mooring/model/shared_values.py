"""Lets equal texts, labels and owners of pods share one object.

Most pods are copies of a template: their labels and their owner are equal, and many have the same
node and namespace. The latest values are kept in two generations. When the young generation is
full, it becomes the old one, and the former old one is dropped. Therefore frequent values stay, and
values that differ in every pod go. A pod whose value is no longer kept has an object of its own.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

_ENTRY: Final = 256
"""The bytes of an entry in both generations, with its objects but without their characters."""
_ITEM: Final = 256
"""The bytes of a label without its characters: two strings, a tuple and a dict entry."""


class FrozenDict(dict[str, str]):
    """A shared dict that cannot be changed; `|` and `dict` make copies that can be changed."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none, as it may change
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def __copy__(self) -> "FrozenDict":
        return self

    def __deepcopy__(self, memo: object) -> "FrozenDict":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("many share this dict, so it cannot be changed; change a copy: dict(x)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class Sharing(Generic[_Key, _Value]):
    """Keeps recently used values, by the key from which each value was made.

    All entries together have at most `most_bytes`. `size` returns the estimated bytes of a key and
    its value.
    """

    def __init__(self, most_bytes: int, size: Callable[[_Key], int]) -> None:
        self.most_bytes = most_bytes
        self._size = size
        self._young: dict[_Key, _Value] = {}
        self._old: dict[_Key, _Value] = {}
        self._young_bytes = self._old_bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def bytes(self) -> int:
        """The estimated bytes of all entries."""
        return self._young_bytes + self._old_bytes

    def get(self, key: _Key) -> _Value | None:
        """Return the value of the key; None if it is not kept."""
        value = self._young.get(key)
        if value is None and (value := self._old.pop(key, None)) is not None:
            self._old_bytes -= _ENTRY + self._size(key)
            self.put(key, value)
        return value

    def keeps(self, key: _Key) -> bool:
        """Return whether the key is small enough for `put`: at most 1/100 of `most_bytes`."""
        return (_ENTRY + self._size(key)) * 100 <= self.most_bytes

    def put(self, key: _Key, value: _Value) -> None:
        """Keep the value, unless it takes more than 1/100 of `most_bytes`."""
        size = _ENTRY + self._size(key)
        if size * 100 > self.most_bytes:
            return
        if 2 * (self._young_bytes + size) > self.most_bytes:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[key] = value
        self._young_bytes += size


_Items = tuple[tuple[str, str], ...]
_MOST_SHARED: Final = 1000
"""Dicts with more entries than this are not shared."""


def _size_of_items(items: _Items) -> int:
    return sum(_ITEM + 4 * (len(key) + len(value)) for key, value in items)


_TEXTS: Final[Sharing[str, str]] = Sharing(8 * 2**20, lambda text: 4 * len(text))
_STRINGS: Final[Sharing[_Items, FrozenDict]] = Sharing(16 * 2**20, _size_of_items)


def shared_text(text: str) -> str:
    """Return an equal text; all callers get the same object for a frequent text."""
    known = _TEXTS.get(text)
    if known is None:
        _TEXTS.put(text, text)
        return text
    return known


def shared_strings(strings: Mapping[str, str]) -> FrozenDict:
    """Return an equal dict that cannot be changed; equal frequent dicts share one object."""
    if len(strings) > _MOST_SHARED:
        # A large dict would push out other pods' keys and values.
        return FrozenDict(strings)
    items = tuple(strings.items())
    known = _STRINGS.get(items)
    if known is None and not _STRINGS.keeps(items):
        return FrozenDict(items)
    if known is None:
        known = FrozenDict((shared_text(key), shared_text(value)) for key, value in items)
        _STRINGS.put(tuple(known.items()), known)
    return known
