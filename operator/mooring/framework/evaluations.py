"""Limits how much the plugins of a profile evaluate in one attempt, and lets it pause.

A rule evaluates an expression once per distinct value of the nodes, and keeps the results; a search
for devices evaluates selectors; constraints count pods. Each is quick once, and slow for thousands
of nodes. So an attempt ends with a reason after about a second of this work. Its results are kept,
and the next attempt continues. The total cost for all values of the nodes is limited, too: a rule
that exceeds the limit does not run, and reports that.
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
"""Units of all values that depend on nodes alone: some seconds, in slices, and then kept."""
MOST_FOR_POD: Final = 100_000
"""Units of all values that depend on the pod: about 10 ms in each decision."""
MOST_PER_ATTEMPT: Final = 10_000_000
"""Units that one attempt may spend: about a second."""
_MOST_PER_MEMBER: Final = 10_000
"""What an attempt about a group may spend besides, for each member: about a millisecond."""

UNITS_PER_COUNT: Final = 500
"""Units for beginning a count of pods, or going on with it."""
UNITS_PER_POD: Final = 20
"""Units for looking at equivalent pods, and counting them."""
_UNITS_PER_REQUIREMENT: Final = 3
"""Units for comparing equivalent pods with one requirement of a selector."""


class AttemptTooLongError(PluginFailed):
    """An attempt has used up its budget; its results so far are kept for the next attempt."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost, in units, of the values that a plugin needs.

    `nodes` is for values that depend on nodes alone, `pod` for those that depend on the pod, too.
    `pod_maps` is the part of `pod` that grows with the number of the pod's labels.
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
    """The values that one rule needs of the nodes."""

    @property
    def name(self) -> str:
        """The name in messages: `rule cheapest`."""

    def cost(self) -> Cost:
        """Return the cost of all values that the nodes have now, evaluated or not."""


class Evaluations:
    """What all plugins of one pipeline evaluate.

    `most_per_attempt` is None where nothing else waits for an attempt, as in a simulation.
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
        """Add an evaluation; earlier ones come first when the budget is spent."""
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

    def begin_attempt(self, members: int = 0) -> None:
        """Begin an attempt, or another thing to find out, about a pod or a group of `members`."""
        self._left = self._most + _MOST_PER_MEMBER * members

    @property
    def left(self) -> float:
        """The units that the attempt may still spend; infinity where nothing limits it."""
        return self._left

    @property
    def is_exhausted(self) -> bool:
        """Whether the attempt has used up its budget, and must end."""
        return self._left <= 0

    def begin_hint(self) -> None:
        """Begin a queueing hint with a small budget: if that is used up, the pod is tried."""
        self._left = min(self._most, MOST_FOR_POD)

    def spend(self, units: int) -> None:
        """Charge the attempt with units for work that was done, or is about to be."""
        self._left -= units

    def pause(self, doing: str) -> None:
        """Let other tasks run, if that is due; end the attempt if its budget is used up.

        Call this before long work. `doing` names that work in the error. Raises AttemptTooLongError
        if the budget is used up; the next attempt goes on.
        """
        if self._left <= 0:
            raise AttemptTooLongError(
                f"{doing} takes longer than one attempt may; the next attempt goes on from there"
            )
        pause()

    def count_pods(self, cluster: ClusterView, wanted: Iterable[tuple[Selection, str]]) -> None:
        """Count the pods that an attempt needs per value of each label, see `ClusterView.counts`.

        A selector may select most pods of a cluster, and each of them may have other labels. Raises
        AttemptTooLongError if that is more than one attempt may do.
        """
        for pods, key in wanted:
            units = UNITS_PER_POD + _UNITS_PER_REQUIREMENT * pods.requirements
            while not cluster.is_counted(pods, key):
                self.pause("counting the pods that the pod's constraints or rules select")
                self.spend(UNITS_PER_COUNT + units * cluster.count_some(pods, key))

    def _judged(self) -> tuple[dict[Evaluation, str], dict[Evaluation, Cost]]:
        """Return (1) why, for evaluations over the budget, (2) the cost so far, for the others."""
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
    """Return the number rounded up to two significant digits, so that messages seldom change."""
    factor: int = 10 ** max(len(str(units)) - 2, 0)
    return -(-units // factor) * factor
