"""Keeps the changes of objects that the scheduler assumes (passive_assume_cache.go)."""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from mooring.model.indexes import drop_item


class Versioned(Protocol):
    """An object with a resource version."""

    @property
    def resource_version(self) -> str:
        """A string that differs between versions of the object."""


_Value = TypeVar("_Value", bound=Versioned)


@dataclass(slots=True)
class _Assumption(Generic[_Value]):
    value: _Value
    holders: set[str] = field(default_factory=set)


class AssumeCache(Generic[_Value]):
    """Keeps assumed versions of objects by key; they replace the mirrored versions.

    Each version is assumed for one or more pods. The uid of such a pod is called a holder. The
    assumption ends when `restore` was called for all holders, or when the watch shows another
    resource version or the deletion. An assumed object keeps its mirrored resource version.
    """

    def __init__(self) -> None:
        self._assumed: dict[str, _Assumption[_Value]] = {}
        self._keys: dict[str, dict[str, None]] = {}
        """Maps each holder to the keys of the values that it assumes."""

    def get(self, key: str, mirrored: _Value | None) -> _Value | None:
        """Return the assumed value of the key, or else the mirrored value; None without either."""
        assumption = self._assumed.get(key)
        return assumption.value if assumption is not None else mirrored

    def assume(self, holder: str, key: str, value: _Value) -> None:
        """Assume the value until `holder` and all earlier holders have called `restore`."""
        assumption = self._assumed.setdefault(key, _Assumption(value))
        assumption.value = value
        assumption.holders.add(holder)
        self._keys.setdefault(holder, {})[key] = None

    def holds(self, holder: str) -> bool:
        """Return whether a value is assumed for the holder."""
        return holder in self._keys

    def restore(self, holder: str) -> list[str]:
        """Remove the holder; return the keys of values that no other holder assumes."""
        restored = []
        for key in self._keys.pop(holder, ()):
            holders = self._assumed[key].holders
            holders.discard(holder)
            if not holders:
                del self._assumed[key]
                restored.append(key)
        return restored

    def shown(self, key: str, value: _Value | None) -> None:
        """End the assumption if `value`, which the watch shows, has another resource version.

        The assumption also ends if `value` is None, because the object was deleted.
        """
        assumption = self._assumed.get(key)
        if assumption is None:
            return
        if value is not None and value.resource_version == assumption.value.resource_version:
            return
        del self._assumed[key]
        for holder in assumption.holders:
            drop_item(self._keys, holder, key)
