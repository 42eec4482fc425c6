"""Limits how much the plugins of a profile evaluate in one attempt, and lets the attempt pause.

Plugins evaluate expressions of rules and selectors of devices, and count pods. One evaluation is
quick, but thousands are slow. So an attempt ends with a reason after about a second of this work.
Its results are cached, and the next attempt continues from there. The total cost for all values of
the nodes is limited, too: a rule that exceeds the limit does not run, and reports this.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from mooring.framework.plugin_failures import PluginFailed
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.topology.pod_selection import Selection

__all__ = [
    "MOST_FOR_NODES",
    "MOST_FOR_POD",
    "MOST_PER_ATTEMPT",
    "UNITS_PER_COUNT",
    "AttemptTooLongError",
    "Cost",
    "Evaluation",
    "Evaluations",
]

MOST_FOR_NODES: Final = 50_000_000
"""The maximum time, in units of 0.1 µs, for evaluating all values that depend on nodes alone. A
rule does not run if this rule and the rules before it exceed the time."""
MOST_FOR_POD: Final = 100_000
"""The maximum time, in units of 0.1 µs, for evaluating values that depend on the pod: 10 ms per
decision. A rule does not run if this rule and the rules before it exceed the time."""
MOST_PER_ATTEMPT: Final = 10_000_000
"""The maximum time, in units of 0.1 µs, for the evaluations in one attempt: a second. Then the
attempt ends, and the next attempt continues."""
_MOST_PER_MEMBER: Final = 10_000
"""The additional time, in units of 0.1 µs, for each member of a group in an attempt."""

UNITS_PER_COUNT: Final = 500
"""The assumed time, in units of 0.1 µs, of each step of counting pods."""
UNITS_PER_POD: Final = 20
"""The assumed time, in units of 0.1 µs, of examining and counting one set of equal pods."""
_UNITS_PER_REQUIREMENT: Final = 3
"""The assumed time, in units of 0.1 µs, of testing one set of equal pods against a requirement."""


class AttemptTooLongError(PluginFailed):
    """Raised if an attempt has used up its budget; the next attempt continues its work."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost, in units of 0.1 µs, of the values that a plugin evaluates.

    `nodes` is the cost of the values that depend on nodes alone, and `pod` is the cost of the
    values that also depend on the pod. The part `pod_maps` of `pod` grows with the number of the
    pod's labels.
    """

    nodes: int = 0
    pod: int = 0
    pod_maps: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.nodes + other.nodes, self.pod + other.pod, self.pod_maps + other.pod_maps)

    @property
    def excess(self) -> str | None:
        """Why this cost exceeds the limits of a profile; None within the limits."""
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
    """Evaluates an expression, for example a rule, for the nodes, and knows its own cost."""

    @property
    def name(self) -> str:
        """The name for messages, such as `rule cheapest`."""

    def cost(self) -> Cost:
        """Return the cost of one evaluation for each value that nodes have now, cached or not."""


class Evaluations:
    """The evaluations of all plugins of one pipeline, and the budget of the current attempt.

    `most_per_attempt` is in units of 0.1 µs. None means no limit, as in a simulation.
    """

    def __init__(self, most_per_attempt: int | None = None) -> None:
        self._most = math.inf if most_per_attempt is None else most_per_attempt
        self._left = self._most
        self._all: list[Evaluation] = []
        self._judged_at: int | None = None
        self._excess: dict[Evaluation, str] = {}
        self._up_to: dict[Evaluation, Cost] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation; evaluations that were added before use the limit first."""
        self._all.append(evaluation)

    def excess(self, evaluation: Evaluation, node_set_version: int) -> str | None:
        """Return why the evaluation exceeds the profile's limit; None if it may run.

        The answer stays the same until `node_set_version` changes.
        """
        if self._judged_at != node_set_version:
            self._excess, self._up_to = self._judged()
            self._judged_at = node_set_version
        return self._excess.get(evaluation)

    def excess_of_map(self, evaluation: Evaluation, times: int) -> str | None:
        """Return why the pod has too many labels for the evaluation; None if it may run.

        Call this only if `excess` has returned None. `times` is the pod's number of labels, divided
        by the usual number.
        """
        units = times * self._up_to[evaluation].pod_maps
        return Cost(pod=units).excess if times > 1 else None

    def left_out(self) -> list[tuple[str, str]]:
        """Return the names of evaluations that do not run with the current nodes, with reasons."""
        return [(evaluation.name, why) for evaluation, why in self._judged()[0].items()]

    def begin_attempt(self, members: int = 0) -> None:
        """Reset the budget for an attempt; for a group, it grows with the number of `members`."""
        self._left = self._most + _MOST_PER_MEMBER * members

    @property
    def left(self) -> float:
        """The time that the attempt may still spend, in units of 0.1 µs; infinite without limit."""
        return self._left

    @property
    def is_exhausted(self) -> bool:
        """Whether the attempt has used up its budget, and must end."""
        return self._left <= 0

    def begin_hint(self) -> None:
        """Give a small budget to a queueing hint; if the hint uses it up, the pod is tried."""
        self._left = min(self._most, MOST_FOR_POD)

    def spend(self, units: int) -> None:
        """Subtract `units` of 0.1 µs from the budget of the attempt."""
        self._left -= units

    def pause(self, doing: str) -> None:
        """Let other tasks run if it is time for that; call this before long work.

        Raises AttemptTooLongError if the attempt's budget is used up. `doing` names the work in the
        message of this error.
        """
        if self._left <= 0:
            raise AttemptTooLongError(
                f"{doing} takes longer than one attempt may; the next attempt goes on from there"
            )
        pause()

    def count_pods(self, cluster: ClusterView, wanted: Iterable[tuple[Selection, str]]) -> None:
        """Count the pods of each selection by the values of a label, for `ClusterView.counts`.

        Raises AttemptTooLongError if this takes longer than one attempt may; the next attempt
        continues.
        """
        for pods, key in wanted:
            units = UNITS_PER_POD + _UNITS_PER_REQUIREMENT * pods.requirements
            while not cluster.is_counted(pods, key):
                self.pause("counting the pods that the pod's constraints or rules select")
                self.spend(UNITS_PER_COUNT + units * cluster.count_some(pods, key))

    def _judged(self) -> tuple[dict[Evaluation, str], dict[Evaluation, Cost]]:
        """Return why evaluations exceed a limit, and the total cost up to each that does not."""
        excess, up_to, total = (
            dict[Evaluation, str](),
            dict[Evaluation, Cost](),
            Cost(),
        )
        for evaluation in self._all:
            with_it = total + evaluation.cost()
            if (why := with_it.excess) is not None:
                excess[evaluation] = why
            else:
                total = up_to[evaluation] = with_it
        return excess, up_to


def _rounded(units: int) -> int:
    # To two digits, so that messages seldom change.
    factor: int = 10 ** max(len(str(units)) - 2, 0)
    return -(-units // factor) * factor
