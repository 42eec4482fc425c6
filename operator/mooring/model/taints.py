"""Taints and tolerations (api/core/v1 toleration.go, component-helpers taint helpers)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import text


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        """The taint as `key=value:effect`, or as `key:effect` if it has no value."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty `effect` matches all effects, an empty `key` with Exists all keys."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint is tolerated; Lt and Gt never match (feature gate off)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


NOT_SCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a pod must tolerate to be scheduled on a cordoned node."""


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether any of the tolerations tolerates the taint."""
    return any(t.tolerates(taint) for t in tolerations)


def repelled(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Return whether a NoSchedule or NoExecute taint is not tolerated."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, tolerations)
        for taint in taints
    )


def parse_taints(raw: Iterable[Mapping[str, Any]], where: str = "spec.taints") -> tuple[Taint, ...]:
    """Parse the taints of a node's spec in order; raise ManifestError if a field is malformed."""
    return tuple(
        Taint(text(t, "key", path), text(t, "value", path), text(t, "effect", path))
        for path, t in _listed(raw, where)
    )


def parse_tolerations(
    raw: Iterable[Mapping[str, Any]], where: str = "spec.tolerations"
) -> tuple[Toleration, ...]:
    """Parse the tolerations of a pod's spec in order; raise ManifestError if one is malformed."""
    return tuple(tolerations_of(raw, where))


def tolerations_of(
    raw: Iterable[Mapping[str, Any]], where: str = "spec.tolerations"
) -> Iterator[Toleration]:
    """Yield the parsed tolerations of a pod's spec; raise ManifestError if one is malformed."""
    return (
        Toleration(
            text(t, "key", path),
            text(t, "operator", path),
            text(t, "value", path),
            text(t, "effect", path),
        )
        for path, t in _listed(raw, where)
    )


def _listed(
    raw: Iterable[Mapping[str, Any]], where: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((f"{where}[{index}]", item) for index, item in enumerate(raw))
