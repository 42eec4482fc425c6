"""What a plugin answers, and what the scheduler does with each answer.

| answer     | given by             | consequence                                           |
|------------|----------------------|-------------------------------------------------------|
| `SKIP`     | pre_filter/pre_score | the plugin's filter (or score) is left out this time  |
| `PreFilterResult` | pre_filter           | only the named nodes are looked at                    |
| `Unschedulable`  | pre_enqueue          | the pod is gated until the plugin lets it pass        |
| `Unschedulable`  | pre_filter           | no node is looked at; the pod waits for a cure        |
| `Unschedulable`  | reserve, permit      | the place is given back; the pod waits for a cure     |
| mask False | filter               | the node is out; `explain` says why                   |
| `Wait`     | permit               | the pod keeps its place until allowed, rejected or late |

A plugin that cannot do its work raises `PluginError`: the attempt fails as an error, and the pod is
tried again after its backoff.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.state.view import BoolArray

__all__ = [
    "SKIP",
    "Explanation",
    "PluginError",
    "PreFilterResult",
    "Skip",
    "Unschedulable",
    "Wait",
]


class Skip(Enum):
    """The type of `SKIP`."""

    SKIP = "skip"


SKIP: Final = Skip.SKIP
"""The plugin has nothing to say about this pod."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No, with a reason a user can read.

    `resolvable` says whether evicting pods could help (upstream's Unschedulable as opposed to
    UnschedulableAndUnresolvable).
    """

    reason: str
    resolvable: bool = False


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """Only these nodes can do; `state` is handed to the plugin's filter."""

    state: Any
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit comes later; rejected when `seconds` have passed."""

    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why nodes failed a filter, one item per row asked about.

    `bits` is uint64: bit i set means `reasons[i]` applies. `resolvable` is False where no eviction
    could help.
    """

    reasons: tuple[str, ...]
    bits: npt.NDArray[np.uint64]
    resolvable: BoolArray

    @classmethod
    def single(cls, reason: str, rows: int, *, resolvable: bool) -> "Explanation":
        """The same one reason for every row."""
        return cls((reason,), np.ones(rows, np.uint64), np.full(rows, resolvable))

    def of(self, index: int) -> tuple[str, ...]:
        """The reasons of one row."""
        bits = int(self.bits[index])
        return tuple(reason for i, reason in enumerate(self.reasons) if bits >> i & 1)


class PluginError(Exception):
    """A plugin could not do its work; the text is for the user."""
