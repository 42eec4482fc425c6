"""Objects that decisions see otherwise than the API server shows them so far."""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["AssumeCache", "Versioned"]


class Versioned(Protocol):
    """An object that tells its versions apart."""

    @property
    def resource_version(self) -> str:
        """Another string for every version of the object."""


_Value = TypeVar("_Value", bound=Versioned)


@dataclass(slots=True)
class _Assumption(Generic[_Value]):
    value: _Value
    holders: set[str] = field(default_factory=set)


class AssumeCache(Generic[_Value]):
    """Assumed values by key, each until its last holder gives it up or a newer version shows.

    An assumed value carries the resource version that it was made from.
    """

    def __init__(self) -> None:
        self._assumed: dict[str, _Assumption[_Value]] = {}

    def get(self, key: str, mirrored: _Value | None) -> _Value | None:
        """What is assumed of the object, else what is mirrored."""
        assumption = self._assumed.get(key)
        return assumption.value if assumption is not None else mirrored

    def assume(self, holder: str, key: str, value: _Value) -> None:
        """The object is seen like this, as long as `holder` or an earlier one holds on to it."""
        assumption = self._assumed.setdefault(key, _Assumption(value))
        assumption.value = value
        assumption.holders.add(holder)

    def restore(self, holder: str) -> list[str]:
        """The holder gives up what it holds; returns the keys that nobody holds any more."""
        given_up = []
        for key, assumption in tuple(self._assumed.items()):
            assumption.holders.discard(holder)
            if not assumption.holders:
                del self._assumed[key]
                given_up.append(key)
        return given_up

    def shown(self, key: str, value: _Value | None) -> None:
        """The API server shows the object; a version other than the assumed one wins."""
        assumption = self._assumed.get(key)
        if assumption is None:
            return
        if value is None or value.resource_version != assumption.value.resource_version:
            del self._assumed[key]
