"""The results of plugins' methods, and how the scheduler handles each of them.

| returned          | by                   | consequence                                        |
|-------------------|----------------------|----------------------------------------------------|
| `SKIP`            | pre_filter/pre_score | the plugin's filter (or score) does not run        |
| `PreFilterResult` | pre_filter           | only the named nodes are searched                  |
| `Unschedulable`   | pre_enqueue          | the pod is gated until the plugin returns None     |
| `Unschedulable`   | pre_filter           | no filter runs; the pod is unschedulable           |
| `Unschedulable`   | reserve, permit      | the pod is forgotten; the pod is unschedulable     |
| mask False        | filter               | the node is rejected; `explain` says why           |
| `Wait`            | permit               | the pod stays assumed until allowed or rejected    |

The scheduler tries an unschedulable pod again after 5 minutes. It tries the pod earlier if a
cluster event comes and a plugin that rejected the pod answers QUEUE in its queueing hint.

A plugin that cannot do its work raises `PluginError` with a text for users: the attempt fails as an
error, and the pod is tried again after its backoff.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

__all__ = [
    "SKIP",
    "Explanation",
    "ObjectError",
    "PluginError",
    "PreFilterResult",
    "Skip",
    "Unschedulable",
    "Wait",
    "shortened",
]


_WORD_BITS: Final = 64
_ONE: Final = np.uint64(1)


def shortened(text: str, most: int = 253) -> str:
    """Return the text, or its beginning and "..." if it is longer than `most` characters.

    Use this for texts of users in a reason. The default is the length of the longest object name.
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


class Skip(Enum):
    """The type of the result `SKIP`, which the table of this module explains."""

    SKIP = "skip"


SKIP: Final = Skip.SKIP
"""A result: the plugin has nothing to do for this pod."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A result: the plugin rejects the pod, with a reason that users read.

    `resolvable` says whether evicting pods could help: True is kube-scheduler's code Unschedulable,
    False is UnschedulableAndUnresolvable.
    """

    reason: str
    resolvable: bool = False


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """A result: only the named nodes can fit. The plugin's filter gets `state`."""

    state: Any
    node_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """A result: the pod waits for permission; it is rejected after this number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why a filter rejected nodes: one item per node that `explain` was called with.

    `bits` is uint64[nodes]: bit i of a node says that `reasons[i]` applies to the node. With more
    than 64 reasons it is uint64[nodes, words], and reason i is bit i % 64 of word i // 64.
    `from_masks` makes either form. `resolvable` is bool[nodes]: False if evicting pods cannot help
    (kube-scheduler's UnschedulableAndUnresolvable).

    `details` is empty, or has one text per reason, which only `mooring explain` shows.
    """

    reasons: tuple[str, ...]
    bits: npt.NDArray[np.uint64]
    resolvable: BoolArray
    details: tuple[str, ...] = ()

    @classmethod
    def single(cls, reason: str, nodes: int, *, resolvable: bool) -> "Explanation":
        """Return an explanation that has one reason, the same for each of the nodes."""
        return cls((reason,), np.ones(nodes, np.uint64), np.full(nodes, resolvable))

    @classmethod
    def from_masks(
        cls,
        masks: Iterable[tuple[str, BoolArray]],
        *,
        resolvable: BoolArray,
        details: Iterable[str] = (),
    ) -> "Explanation":
        """Return an explanation; `masks` has each reason with bool[nodes]: True where it applies.

        Reasons that apply to no node are left out. `details[i]` belongs to reason i; the last
        reasons may lack details.
        """
        reasons, told = list[str](), list[str]()
        words: list[npt.NDArray[np.uint64]] = []
        for (reason, mask), detail in zip(masks, chain(details, repeat("")), strict=False):
            if mask.any():
                word, bit = divmod(len(reasons), _WORD_BITS)
                if word == len(words):
                    words.append(np.zeros(len(resolvable), np.uint64))
                words[word] |= mask.astype(np.uint64) << np.uint64(bit)
                reasons.append(reason)
                told.append(detail)
        if not words:
            words.append(np.zeros(len(resolvable), np.uint64))
        bits = words[0] if len(words) == 1 else np.stack(words).T
        return cls(tuple(reasons), bits, resolvable, tuple(told) if any(told) else ())

    @classmethod
    def from_codes(
        cls, reasons: Sequence[str], codes: IntArray, *, resolvable: BoolArray
    ) -> "Explanation":
        """Return an explanation with at most one reason per node.

        `codes` is int64[nodes]: the index of each node's reason in `reasons`, or -1 for no reason.
        Reasons that apply to no node are left out.
        """
        nodes = np.flatnonzero(codes >= 0)
        used, numbers = np.unique(codes[nodes], return_inverse=True)
        words = np.zeros((len(codes), max(1, -(-len(used) // _WORD_BITS))), np.uint64)
        word, bit = np.divmod(numbers, _WORD_BITS)
        words[nodes, word] = _ONE << bit.astype(np.uint64)
        bits = words[:, 0] if words.shape[1] == 1 else words
        return cls(tuple([reasons[code] for code in used.tolist()]), bits, resolvable)

    @property
    def is_wide(self) -> bool:
        """Whether there are more than 64 reasons, so that `bits` has several words per node."""
        return self.bits.ndim > 1

    def reasons_at(self, index: int) -> tuple[str, ...]:
        """Return the reasons of the node at the position `index`, with their details."""
        return self._named(self._bits_at(index))

    def reasons_by_row(self, most: int | None = None) -> list[tuple[str, ...]]:
        """Return the reasons of each node, or of the first `most` nodes."""
        named: dict[int, tuple[str, ...]] = {}
        result: list[tuple[str, ...]] = []
        for index in range(len(self.bits[:most])):
            bits = self._bits_at(index)
            if bits not in named:
                named[bits] = self._named(bits)
            result.append(named[bits])
        return result

    def nodes_per_reason(self) -> Iterator[tuple[str, int]]:
        """Yield each reason once, with the number of nodes that it applies to."""
        counts = Counter[str]()
        for i, reason in enumerate(self.reasons):
            word, bit = divmod(i, _WORD_BITS)
            column = self.bits[:, word] if self.is_wide else self.bits
            counts[reason] += int(np.count_nonzero(column & (_ONE << np.uint64(bit))))
        yield from counts.items()

    def _bits_at(self, index: int) -> int:
        return int.from_bytes(self.bits[index].astype("<u8").tobytes(), "little")

    def _named(self, bits: int) -> tuple[str, ...]:
        named: list[str] = []
        bits &= (1 << len(self.reasons)) - 1  # a plugin may have set others by mistake
        while bits:  # of thousands of reasons, a node has one or a few
            i = bits.bit_length() - 1
            bits ^= 1 << i
            detail = self.details[i] if self.details else ""
            named.append(f"{self.reasons[i]} ({detail})" if detail else self.reasons[i])
        return tuple(reversed(named))


class PluginError(Exception):
    """Raised by a plugin that cannot do its work; the text is one line for users."""


class ObjectError(PluginError):
    """Raised if an object that a plugin reads is wrong, such as a selector that divides by 0.

    No failure of the plugin is counted or logged, because a user could cause alerts with such an
    object.
    """
