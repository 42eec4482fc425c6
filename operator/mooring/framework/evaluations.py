"""Limits how much the plugins of a profile together evaluate one value at a time.

A rule evaluates an expression once per distinct value that nodes have, and keeps the results. That
is quick for one value and long for thousands of new ones. So a decision evaluates a few new values
and no more: if it needs others, it ends with `StillEvaluating`. The loop then evaluates between
decisions, one value at a time, and the pod is tried again later. What all values of the nodes may
cost in total is limited too; the plugin that exceeds the limit does not run, and says so.

Costs are in units of about 0.1 us. Nothing here reads a clock: the same cluster gives the same
answer on every machine.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from mooring.framework.plugin_failures import PluginFailed
from mooring.state.cluster_view import ClusterView
from mooring.state.topology.selection import Selection

__all__ = [
    "MOST_FOR_NODES",
    "MOST_FOR_POD",
    "MOST_PER_DECISION",
    "UNITS_PER_COUNT",
    "UNITS_PER_POD",
    "Cost",
    "Evaluation",
    "Evaluations",
    "StillEvaluating",
]

MOST_FOR_NODES: Final = 50_000_000
"""Units of all values that depend on nodes alone: some seconds, in slices, and then kept."""
MOST_FOR_POD: Final = 100_000
"""Units of all values that depend on the pod: about 10 ms in each decision."""
MOST_PER_DECISION: Final = 100_000
"""Units of values that one decision evaluates itself: about 10 ms."""

UNITS_PER_COUNT: Final = 500
"""Units for beginning a count of pods, or going on with it."""
UNITS_PER_POD: Final = 20
"""Units for looking at equivalent pods, and counting them."""

_SECONDS_PER_UNIT: Final = 1e-7
_SHORTEST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 2.0
"""How long a pod that waits for values is postponed, at least and at most."""
_REST_SECONDS: Final = 0.01
_SECONDS_BETWEEN: Final = 0.03
"""How long other pods have the loop after a decision that goes on later, and from one such decision
to the next."""


class StillEvaluating(PluginFailed):
    """Raised where a decision needs values or counts that are not there yet; try again later."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost, in units, of the values that a plugin needs.

    `nodes` is the cost of all values that depend on nodes alone, `pod` of those that depend on the
    pod as well, `pod_maps` the part of these that grows with the number of the pod's labels.
    """

    nodes: int = 0
    pod: int = 0
    pod_maps: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.nodes + other.nodes, self.pod + other.pod, self.pod_maps + other.pod_maps)

    @property
    def excess(self) -> str | None:
        """Return why this is too much for all plugins of a profile; None if it is not."""
        for units, most, of in (
            (self.nodes, MOST_FOR_NODES, "the values that nodes have now"),
            (self.pod, MOST_FOR_POD, "one pod and the values that nodes have now"),
        ):
            if units > most:
                return (
                    f"the rules of a profile may cost {most:,} units for {of}, and with this rule "
                    f"they cost about {_rounded(units):,}"
                )
        return None


class Evaluation(Protocol):
    """The values that one plugin needs of the nodes."""

    @property
    def name(self) -> str:
        """The name in messages, such as `rule cheapest`."""

    @property
    def is_current(self) -> bool:
        """Whether all values of the present nodes are evaluated."""

    @property
    def units_left(self) -> int:
        """About how many units the values that are missing cost."""

    def cost(self) -> Cost:
        """Return the cost of all values that the nodes have now, evaluated or not."""

    def advance(self) -> int:
        """Evaluate at most one value; return how many units that has cost, at least 1."""


class Evaluations:
    """The evaluations of all plugins of one pipeline.

    `most_per_decision` is None where nothing else waits for a decision, as in a simulation.
    """

    def __init__(self, most_per_decision: int | None = None) -> None:
        self._most = math.inf if most_per_decision is None else most_per_decision
        self._left = self._most
        self._all: list[Evaluation] = []
        self._judged_at: int | None = None
        self._excess: dict[Evaluation, str] = {}
        self._up_to: dict[Evaluation, Cost] = {}
        self._wanted = False
        self._next_try = 0.0
        self.retry_at: float | None = None
        """When pods that wait for values are to be tried again, by the caller's clock."""

    def __len__(self) -> int:
        return len(self._all)

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation; those that are added first have the first claim to the budget."""
        self._all.append(evaluation)

    def excess(self, evaluation: Evaluation, node_set_version: int) -> str | None:
        """Return why the evaluation is left out; None if it is not.

        That is decided once per version of the node set: results are kept per pod spec, and must
        not become wrong while their node has not changed.
        """
        if self._judged_at != node_set_version:
            self._excess, self._up_to = self._judged()
            self._judged_at = node_set_version
        return self._excess.get(evaluation)

    def excess_of_map(self, evaluation: Evaluation, times: int) -> str | None:
        """Return why it fails for a pod with `times` the usual number of labels, or None."""
        units = times * self._up_to[evaluation].pod_maps
        return Cost(pod=units).excess if times > 1 else None

    def left_out(self) -> list[tuple[str, str]]:
        """Return the names of the evaluations that are left out with the present nodes, and why."""
        return [(evaluation.name, why) for evaluation, why in self._judged()[0].items()]

    def begin_decision(self) -> None:
        """Begin a decision, which may evaluate some new values itself."""
        self._left = self._most

    @property
    def is_limited(self) -> bool:
        """Whether a decision may end with `StillEvaluating`."""
        return self._most != math.inf

    def affords(self, units: int) -> bool:
        """Return whether this decision may still evaluate values of so many units."""
        return units <= self._left

    def spend(self, units: int) -> None:
        """Charge this decision with units that it has evaluated."""
        self._left -= units

    def bring_up_to_date(self, evaluation: Evaluation) -> None:
        """Evaluate what the evaluation still misses.

        Raises:
            StillEvaluating: that is more than one decision may evaluate.
        """
        while not evaluation.is_current:
            if self._left <= 0:
                self._wanted = True
                raise StillEvaluating(
                    f"the values of nodes that {evaluation.name} reads are still being evaluated; "
                    "this goes on, and the pod is tried again"
                )
            self.spend(evaluation.advance())
        if self._wanted and next(self._missing(), None) is None:
            self._wanted = False

    def count_pods(self, cluster: ClusterView, wanted: Iterable[tuple[Selection, str]]) -> None:
        """Count the pods that a decision needs per value of each label, see `ClusterView.counts`.

        Selectors of a pod may select most pods of a cluster, of which each may have other labels.
        The next decision about the pod goes on with counting.

        Raises:
            StillEvaluating: that is more than one decision may do.
        """
        for pods, key in wanted:
            while not cluster.is_counted(pods, key):
                if self._left <= 0:
                    raise StillEvaluating(
                        "the pods that the pod's constraints select are still being counted; "
                        "this goes on, and the pod is tried again"
                    )
                self.spend(UNITS_PER_COUNT + UNITS_PER_POD * cluster.count_some(pods, key))

    @property
    def is_behind(self) -> bool:
        """Whether a decision ended with `StillEvaluating`, and values are still missing."""
        return self._wanted and next(self._missing(), None) is not None

    def advance(self) -> bool:
        """Evaluate one value if a decision waits for values; return False if nothing is missing."""
        missing = next(self._missing(), None) if self._wanted else None
        if missing is None:
            return False
        try:
            missing.advance()
        except Exception:  # noqa: BLE001 - the next decision fails in the same way, and says so
            self._wanted = False
        return self._wanted

    def refused(self, now: float) -> float:
        """Return when the pod of a decision that ended with StillEvaluating is to be tried again.

        If values of nodes are missing, all pods of the profile are. Else each such pod goes on by
        itself, and one after the other: together they take a part of the time. `now` is the time
        of any clock.
        """
        if not self.is_behind:
            self._next_try = max(now + _REST_SECONDS, self._next_try + _SECONDS_BETWEEN)
            return self._next_try
        units = sum(evaluation.units_left for evaluation in self._missing())
        seconds = min(max(_SECONDS_PER_UNIT * units, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        self.retry_at = retry_at = now + seconds
        return retry_at

    def _missing(self) -> Iterator[Evaluation]:
        """Yield the evaluations that are not left out and lack values."""
        return (e for e in self._all if e not in self._excess and not e.is_current)

    def _judged(self) -> tuple[dict[Evaluation, str], dict[Evaluation, Cost]]:
        """Return why evaluations are left out, and for each other one the sum of costs up to it."""
        excess, up_to, total = dict[Evaluation, str](), dict[Evaluation, Cost](), Cost()
        for evaluation in self._all:
            with_it = total + evaluation.cost()
            if (why := with_it.excess) is not None:
                excess[evaluation] = why
            else:
                total = up_to[evaluation] = with_it
        return excess, up_to


def _rounded(units: int) -> int:
    """Return the number rounded up to two significant digits, so that messages seldom change."""
    factor: int = 10 ** max(len(str(units)) - 2, 0)
    return -(-units // factor) * factor
