"""Counts of pods per topology domain."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mooring.state.columns import read_only
from mooring.state.labels import ABSENT, Domains
from mooring.state.view import NodeView

CountArray = npt.NDArray[np.int32]


class TakenBytes:
    """The total bytes of all counts; each count adds the bytes of its arrays."""

    def __init__(self) -> None:
        self.bytes = 0


class DomainCounts:
    """The number of counted pods per topology domain; only TopologyCounts changes this object."""

    __slots__ = ("_count", "_counts", "_taken", "domains", "total")

    def __init__(self, domains: Domains, taken: TakenBytes) -> None:
        """Begin without pods; `taken` is updated with the bytes of the array."""
        self.domains = domains
        self.total = 0
        """The number of counted pods on all nodes that have the label."""
        self._taken = taken
        self._counts: CountArray = np.zeros(0, np.int32)
        self._count: Callable[[DomainCounts], None] | None = None

    @property
    def by_code(self) -> CountArray:
        """int32[codes + 1]: the number of pods in each domain, by the domain's code.

        The last item is 0, for nodes without the label.
        """
        self._count_anew()
        self._reserve(len(self.domains.values))
        return read_only(self._counts[: len(self.domains.values) + 1])

    def at(self, nodes: NodeView) -> CountArray:
        """Return int32[len(nodes)]: the number of pods in each node's domain, 0 for no domain."""
        counts: CountArray = self.by_code[nodes.domain_codes(self.domains)]
        return counts

    def _reserve(self, code: int) -> None:
        if code + 1 >= len(self._counts):
            grown = np.zeros(max(code + 2, 8, 2 * len(self._counts)), np.int32)
            grown[: len(self._counts)] = self._counts
            self._taken.bytes += grown.nbytes - self._counts.nbytes
            self._counts = grown

    @property
    def is_dropped(self) -> bool:
        """Whether `drop` was called, so that pod events no longer update these counts."""
        return self._count is not None

    def drop(self, count: Callable[["DomainCounts"], None]) -> None:
        """Free the array; from now on, each read of `by_code` calls `count` to fill a new array."""
        # A decision that holds these counts may read them again after it has moved pods.
        # Not bound to these counts: in a cycle, they would outlive what bounds the bytes of counts.
        self._count = count
        self._free()
        self._taken = TakenBytes()

    def _count_anew(self) -> None:
        if self._count is not None:
            self._free()
            self.total = 0
            self._count(self)

    def _free(self) -> None:
        self._taken.bytes -= self._counts.nbytes
        self._counts = np.zeros(0, np.int32)

    def add(self, row: int, number: int) -> None:
        """Add `number` pods (may be negative) in the row's domain; do nothing after `drop`."""
        if self._count is not None:
            return
        code = self.domains.codes.data.item(row)
        if code != ABSENT:
            self._reserve(code)
            self._counts[code] += number
            self.total += number

    def add_each(self, rows: Sequence[int], numbers: Sequence[int]) -> None:
        """Add `numbers[i]` pods in the domain of row `rows[i]`, for each i."""
        codes = self.domains.codes.data[np.array(rows, np.int64)]
        inside = codes != ABSENT
        added = np.array(numbers, np.int64)[inside]
        if not len(added):
            return
        sums = np.bincount(codes[inside], added)
        self._reserve(len(sums) - 1)
        self._counts[: len(sums)] += sums.astype(np.int32)
        self.total += int(added.sum())
