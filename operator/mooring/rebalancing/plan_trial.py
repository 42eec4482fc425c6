"""A trial: the state after some moves, and which nodes fit pods in that state.

A plan is made in a trial, and each step is tried in another trial before its moves begin. In a
trial the profile decides as it does today, with two differences: it does not preempt, and it
compares all nodes, because the choice of a node is final.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from mooring.framework.plugin_failures import PluginFailed
from mooring.gpu_cards.card_plugin import assign_devices
from mooring.groups.search.group_decision import GroupDecision
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.node import Node
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.policy.rebalancing import Rebalancing
from mooring.rebalancing.movable import Movable, created_anew
from mooring.rebalancing.plan import Move, Why, about
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf, without_preemption
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray

_ALL_NODES: Final = 100
"""The percentage of nodes that each decision examines."""
_MOST_REASONS: Final = 3
_LONGEST_REASON: Final = 300

_Result = TypeVar("_Result")


@dataclass(eq=False, repr=False)
class PlanTrial:
    """A trial for one profile. Changes are made one by one, and `undone` can undo them.

    Args:
        cache: Results of decisions in the live state. Nothing else may use this cache, because
            decisions in the trial compare all nodes.
        pipeline: The profile's pipeline.
        section: Says which pods may be moved.
        now: Returns the time in seconds since the epoch.
        budget: The budget of searches, in decisions about one pod.
        resting: The uids of pods and controllers. These pods, and all pods of these controllers,
            must not move, because of a recent move.
        salt: Chooses among nodes of equal score, together with the pod's uid.
    """

    cache: ResultCache
    pipeline: Pipeline
    section: Rebalancing
    _: KW_ONLY
    now: Callable[[], float]
    budget: SearchBudget
    resting: Collection[str] = frozenset()
    salt: int = 0

    def __post_init__(self) -> None:
        self.cluster = cluster = self.cache.cluster
        self.pipeline = pipeline = replace(
            without_preemption(self.pipeline), percentage_of_nodes_to_score=_ALL_NODES
        )
        self.what_if = WhatIf(self.cache, now=self.now, salt=self.salt)
        self.movable = Movable(self.section, cluster, pipeline, self.resting, self.now)
        self._changes: list[ExitStack] = []

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self._changes)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo at the end all changes that are made inside this context."""
        count = len(self._changes)
        try:
            yield
        finally:
            self.back_to(count)

    def back_to(self, count: int) -> None:
        """Undo the last changes, so that `count` changes remain."""
        while len(self._changes) > count:
            self._changes.pop().close()

    def make(self, moves: Iterable[Move]) -> None:
        """Move each pod: remove it from its node, and put its replacement on the target."""
        for move in moves:
            self.remove(move.pod)
            self.add(self.anew(move), move.target)
            pause()

    def remove(self, pod: Pod) -> None:
        """Remove the pod from its node, and withdraw its nomination."""
        with self._change() as trial:
            trial.withdraw(pod.uid)
            trial.remove(pod.uid)

    def withdraw(self, uid: Uid) -> None:
        """Withdraw the nomination of the pod with this uid."""
        with self._change() as trial:
            trial.withdraw(uid)

    def add(self, pod: Pod, node: str) -> None:
        """Put the pod on the node and assign devices; do nothing if there is no such node."""
        if (row := self.cluster.row(node)) is not None:
            with self._change() as trial:
                trial.add(pod, row)
                self.pipeline.evaluations.begin_attempt()
                assign_devices(self.pipeline.reserve, pod, row)

    @contextmanager
    def _change(self) -> Iterator[Trial]:
        with ExitStack() as undo:
            yield undo.enter_context(self.what_if.trial())
            self._changes.append(undo.pop_all())

    def node(self, name: str) -> Node | None:
        """Return the node of this name; None if it does not exist."""
        row = self.cluster.row(name)
        return self.cluster.node(row) if row is not None else None

    def node_of(self, pod: Pod) -> Node | None:
        """Return the pod's node in the trial; None if it has none, or if the node has gone."""
        placed = self.cluster.pod(pod.uid)
        return self.cluster.node(placed.row) if placed is not None else None

    def leaving(self, pods: Iterable[Pod]) -> list[Move]:
        """Return a Move with the target "" for each pod on a node; the caller sets the target."""
        nodes = ((pod, self.node_of(pod)) for pod in pods)
        return [Move(pod, node.name, "") for pod, node in nodes if node is not None]

    def anew(self, move: Move) -> Pod:
        """Return the pod that the controller will create in place of the moved pod."""
        if (node := self.node(move.source)) is None:
            raise ValueError(f"node {move.source} does not exist")
        return created_anew(move.pod, node)

    def fits(self, pod: Pod, node: str) -> bool:
        """Return whether the node passes all filters, both without and with its nominated pods.

        Raises PluginFailed if a plugin fails.
        """
        row = self.cluster.row(node)
        if row is None or self.cluster.node(row) is None:
            return False
        self.budget.spend(1)
        search = self.what_if.search(pod, self.pipeline)
        return not search.rejections(row) and not search.rejections_with_nominated(row)

    def why_impossible(self, moves: Sequence[Move]) -> Why | None:
        """Make these moves together; return None, or the reason if they are impossible.

        The caller must undo the changes of impossible moves. Raises PluginFailed if a plugin fails.
        """
        # All pods leave before the first pod comes.
        for move in moves:
            self.remove(move.pod)
        for move in moves:
            for name in (move.target, move.source):
                if self.node(name) is None:
                    return f"node {name} has gone"
            if not self.fits(anew := self.anew(move), move.target):
                return about(f"{{}} does not fit on node {move.target} any more", move.pod)
            self.add(anew, move.target)
            pause()
        return None

    def violation(self, pod: Pod) -> str:
        """Return which filter rejects the pod on its own node, and why; "" if no filter does."""
        placed, node = self.cluster.pod(pod.uid), self.node_of(pod)
        if placed is None or node is None:
            return ""
        with self.undone():
            self.remove(pod)
            search = self.what_if.search(created_anew(pod, node), self.pipeline)
            rejected = search.rejections(placed.row)
        if not rejected:
            return ""
        reasons = ", ".join(islice(rejected[0].explanation.reasons_at(0), _MOST_REASONS))
        return f"{rejected[0].plugin}: {reasons}"[:_LONGEST_REASON]

    # What follows returns nothing where a plugin fails.

    def violates(self, pod: Pod) -> bool:
        """Return whether a filter rejects the pod on its own node; False if a plugin fails."""
        return bool(self._found(lambda: self.violation(pod)))

    def fits_on(self, pod: Pod, node: str) -> bool:
        """Return whether the node passes all filters, see `fits`; False if a plugin fails."""
        return bool(self._found(lambda: self.fits(pod, node)))

    def decided(self, pod: Pod) -> str | None:
        """Return the node that the profile chooses; None if no node fits or a plugin fails."""
        self.budget.spend(1)
        outcome = self._found(lambda: self.what_if.decide(pod, self.pipeline))
        return outcome.node if isinstance(outcome, ScheduleResult) else None

    def best_fit(
        self, pod: Pod, nodes: Collection[str], *, last: Collection[str] = ()
    ) -> str | None:
        """Return the fullest of `nodes` on which the pod fits; None if it fits on none.

        A node in `last` is returned only if the pod fits on no other of `nodes`.
        """
        self.budget.spend(1)
        rows = self._found(lambda: self.what_if.feasible_rows(pod, self.pipeline))
        found: list[int] = rows.tolist() if rows is not None else []
        names = self.cluster.node_names
        here = [row for row in found if names[row] in nodes]
        for chosen in ([row for row in here if names[row] not in last], here):
            if chosen:
                free = self.free_shares(np.array(chosen, np.int64))
                return names[chosen[int(np.argmin(free))]]
        return None

    def _found(self, search: Callable[[], _Result]) -> _Result | None:
        try:
            found = search()
        except PluginFailed:
            return None
        pause()
        return found

    def group_decision(self, group: PodGroupState, members: Sequence[Pod]) -> GroupDecision:
        """Return the decision about the group; if a plugin fails, a decision without nodes."""
        try:
            return self.what_if.decide_group(group, members, self.pipeline, self.budget)
        except PluginFailed as error:
            return GroupDecision({}, message=str(error))

    def free_shares(self, rows: IntArray) -> np.typing.NDArray[np.float64]:
        """Return float64[rows]: the free share of cpu plus the free share of memory."""
        nodes = self.cluster.nodes.take(rows)
        total = np.zeros(len(rows))
        for resource in ("cpu", "memory"):
            allocatable = np.maximum(nodes.allocatable(resource), 1)
            total += (allocatable - nodes.requested(resource)) / allocatable
        return total

    def share_of(self, pod: Pod) -> float:
        """Return the pod's dominant share; 0.0 if it requests nothing.

        The dominant share is the largest of its requests, each divided by what all nodes can
        allocate.
        """
        nodes = self.cluster.nodes
        return max(
            (
                amount / max(int(nodes.allocatable(resource).sum()), 1)
                for resource, amount in pod.spec.demand.resources.items()
            ),
            default=0.0,
        )
