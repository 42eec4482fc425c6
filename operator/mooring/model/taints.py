"""Taints and tolerations (api/core/v1 toleration.go, component-helpers taint helpers)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import text

__all__ = [
    "NOT_SCHEDULABLE_TAINT",
    "Taint",
    "Toleration",
    "parse_taints",
    "parse_tolerations",
    "repelled",
    "tolerated",
]


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty effect, or an empty key with Exists, stands for all."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint is tolerated (Lt and Gt are behind a gate that is off upstream)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


NOT_SCHEDULABLE_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a pod must tolerate to be placed on a cordoned node."""


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of the tolerations tolerates the taint."""
    return any(t.tolerates(taint) for t in tolerations)


def repelled(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether the taints keep new pods away: one is NoSchedule or NoExecute and not tolerated."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, tolerations)
        for taint in taints
    )


def parse_taints(raw: Iterable[Mapping[str, Any]], where: str = "spec.taints") -> tuple[Taint, ...]:
    """The taints of a node's spec, in their order; ManifestError names a malformed field."""
    return tuple(
        Taint(text(t, "key", path), text(t, "value", path), text(t, "effect", path))
        for path, t in _listed(raw, where)
    )


def parse_tolerations(
    raw: Iterable[Mapping[str, Any]], where: str = "spec.tolerations"
) -> tuple[Toleration, ...]:
    """The tolerations of a pod's spec, in their order; ManifestError names a malformed field."""
    return tuple(
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
