"""What would make a pod group fit that waits, found out by deciding about it with the change.

Members are not explained one by one: each of them may fit alone while the group does not. Three
kinds of changes are tried: changes of all members, a smaller minimum, and pods that end, the fewest
that are found. Nothing is guessed: each suggestion is a decision of the real pipeline about the
whole group.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from mooring.engine.change import Change, conditions
from mooring.engine.groups.budget import SearchBudget
from mooring.engine.groups.decision import GroupDecision, placements_of
from mooring.engine.result_cache import ResultCache
from mooring.engine.suggestions import (
    EXAMPLES,
    MOST_CHANGES,
    Suggestion,
    possible_changes,
    request_text,
    requesting,
    reservation_texts,
    step_of,
    when_ended,
)
from mooring.engine.what_if import WhatIf, stays_on_its_node
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.pipeline import Pipeline
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid
from mooring.model.pod_group import GroupSource
from mooring.model.pod_spec import PodSpec
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.pod_groups import PodGroupState

__all__ = ["MOST_STEPS", "group_suggestions"]

MOST_STEPS: Final = 20_000
"""What all decisions about one group may cost in all, in decisions about one pod."""
_MOST_SPECS: Final = 4
"""Different specs of members of which changes are tried."""
_MOST_SHARING: Final = 64
"""Members that share a node where the largest request that fits is looked for."""
_MOST_DOMAINS: Final = 3
"""Topology domains in which pods end: those in which the most members fit."""
_MOST_RESOURCES: Final = 16
"""Resources by which pods that could end are ranked; members may request hundreds."""
_MOST_AMOUNTS: Final = 4_096
"""Amounts of a resource among which the largest that fits is looked for."""
_MOST_ENDED: Final = 64
"""Pods that end together."""
_MINIMUM: Final = 0.9
"""The cost of a smaller minimum: more than that of smaller requests."""
_FIELDS: Final[Mapping[GroupSource, str]] = {
    GroupSource.KUBERNETES: "minCount",
    GroupSource.COSCHEDULING: "minMember",
    GroupSource.PODS: "minimum",
}


def group_suggestions(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cluster: ClusterView,
    cache: ResultCache,
    budget: SearchBudget,
) -> Iterator[Suggestion]:
    """Yield each suggestion, and pause between decisions; other work may change the cluster then.

    `members` are those that could be decided about now. A group that fits as it is gets only the
    suggestion that says so. `cache` should serve nothing else, and nothing more is tried once
    `budget` is spent.
    """
    return _GroupSuggestions(group, members, pipeline, cluster, cache, budget).found()


class _GroupSuggestions:
    """Decides about the group with changed members, a smaller minimum, or without some pods."""

    def __init__(
        self,
        group: PodGroupState,
        members: Sequence[Pod],
        pipeline: Pipeline,
        cluster: ClusterView,
        cache: ResultCache,
        budget: SearchBudget,
    ) -> None:
        self._group = group
        self._members = members
        self._pipeline = pipeline
        self._cluster = cluster
        self._cache = cache
        self._budget = budget
        self._nodes: tuple[str, ...] = ()
        """The nodes of the last decision, each once."""

    def found(self) -> Iterator[Suggestion]:
        """Yield what `group_suggestions` does."""
        decision = self._decided(self._members)
        if decision.rows:
            cause = "none any more, the members fit by now"
            yield self._suggestion("as it is", cause, 0.0, self._members)
            return
        others = [
            nominee
            for nominee in self._cluster.nominations.reserved
            if nominee.pod.uid not in self._group.unscheduled
        ]
        ended = [nominee.pod for nominee in others]
        if ended and self._decided(self._members, without=ended).rows:
            text, cause = reservation_texts(others, self._members[0])
            yield self._suggestion(text, cause, 0.0, self._members)
            return
        short = list[str]()
        for change in _changes(self._members, self._cluster):
            fits, suggestion = self._with_change(change)
            if suggestion is not None:
                yield suggestion
            if fits and change.resource:
                short.append(change.resource)
        if (suggestion := self._with_minimum(decision.fits)) is not None:
            yield suggestion
        for rows in self._domains(decision):
            if (suggestion := self._without_pods(rows, short)) is not None:
                yield suggestion
                break

    def _decided(
        self,
        members: Sequence[Pod],
        *,
        group: PodGroupState | None = None,
        without: Sequence[Pod] = (),
    ) -> GroupDecision:
        """Return the decision about these members in a cluster without some pods."""
        if self._budget.spent:
            return GroupDecision({})
        what_if = WhatIf(self._cluster, self._cache)
        for pod in without:
            what_if.remove(pod.uid)
        decision = what_if.decide_group(group or self._group, members, self._pipeline, self._budget)
        # At once: in a pause a row may become another node's.
        self._nodes = self._names(decision.rows)
        return decision

    def _names(self, rows: Mapping[Uid, int]) -> tuple[str, ...]:
        return tuple(self._cluster.node_names[row] for row in dict.fromkeys(rows.values()))

    def _suggestion(
        self,
        change: str | TextAboutPods,
        cause: str,
        cost: float,
        members: Sequence[Pod],
        ended: Sequence[Pod] = (),
    ) -> Suggestion:
        """Return a suggestion on the nodes of the last decision."""
        return Suggestion(
            change=change,
            cause=cause,
            cost=cost,
            nodes=len(self._nodes),
            examples=self._nodes[:EXAMPLES],
            pods=tuple(members),
            ended=tuple(map(PodRef.of, ended)),
        )

    def _with_change(self, change: Change) -> tuple[bool, Suggestion | None]:
        """Return whether the group fits with this change of all members, and the suggestion."""
        changed = self._changed(change.apply)
        if not self._decided(changed).rows:
            return False, None
        text, cost = change.text, change.cost
        if resource := change.resource:
            most = _requested(self._members, resource)
            limit, changed = self._largest_request(resource, most)
            if not limit and "/" not in resource:
                return True, None  # a pod cannot do without cpu or memory, only without a device
            text = request_text(resource, limit, most, self._pipeline, self._cluster)
            cost += 1.0 - limit / most
        subject = "each member" if len(self._members) > 1 else "its member"
        text = conditions([change], [text], subject)
        return True, self._suggestion(text, change.cause, cost, changed)

    def _largest_request(self, resource: str, most: int) -> tuple[int, list[Pod]]:
        """Return the largest request of the resource with which the group fits, and its members.

        Amounts are those that a whole number of members can share on a node.
        """
        amounts = self._amounts(resource, most)
        best = self._changed(partial(requesting, {resource: 0}))
        names, first, last = self._nodes, 0, len(amounts)
        while first < last:
            middle = (first + last) // 2
            changed = self._changed(partial(requesting, {resource: amounts[middle]}))
            if self._decided(changed).rows:
                first, best, names = middle + 1, changed, self._nodes
            else:
                last = middle
        self._nodes = names
        return (amounts[first - 1] if first else 0), best

    def _changed(self, apply: Callable[[Pod], Pod]) -> list[Pod]:
        """Return the members with a change; those of one spec still share one afterwards."""
        specs, found = dict[int, Pod](), list[Pod]()
        for pod in self._members:
            first = specs.get(id(pod.spec))
            if first is None or pod.volumes:
                changed = apply(pod)
                first = specs.setdefault(id(pod.spec), changed)
                found.append(replace(changed, spec=first.spec))
            else:
                found.append(replace(pod, spec=first.spec))
            pause()
        return found

    def _amounts(self, resource: str, most: int) -> list[int]:
        """Return amounts below `most` that fill the space of some node, the smallest first."""
        nodes, step = self._cluster.nodes, step_of(resource)
        free = nodes.allocatable(resource) - nodes.requested(resource)
        spaces = np.unique(free[nodes.present & (free > 0)])
        parts = np.arange(1, _MOST_SHARING + 1)  # cards divide a node as well as members do
        amounts = np.unique(spaces[:, np.newaxis] // parts // step * step)
        amounts = amounts[(amounts > 0) & (amounts < most)]
        found: list[int] = amounts[:: max(1, -(-len(amounts) // _MOST_AMOUNTS))].tolist()
        return found

    def _with_minimum(self, fits: int) -> Suggestion | None:
        """Return the largest minimum with which those members get a node that fit."""
        group, definition = self._group, self._group.definition
        smaller = fits + group.scheduled_pods_count
        if definition is None or not 0 < smaller < definition.minimum:
            return None
        lowered = copy.copy(group)
        lowered.definition = replace(definition, minimum=smaller)
        if self._decided(self._members, group=lowered).rows:
            name = _FIELDS[group.key.source]
            text = f"if its {name} were at most {smaller} instead of {definition.minimum}"
            return self._suggestion(text, name, _MINIMUM, self._members)
        return None

    def _domains(self, decision: GroupDecision) -> list[IntArray]:
        """Return the rows of the placements in which the most members fit."""
        placements = placements_of(self._group, self._pipeline, self._cluster)
        if isinstance(placements, Unschedulable):
            return []
        fits = {(tried.key, tried.value): tried.fits for tried in decision.tried}
        placements.sort(key=lambda each: (each.tier, -fits.get((each.key, each.value), 0)))
        return [placement.rows for placement in placements[:_MOST_DOMAINS]]

    def _without_pods(self, rows: IntArray, short: Sequence[str]) -> Suggestion | None:
        """Suggest to wait until the fewest pods of these rows end; None if that does not help.

        Pods that request the most of what is `short` end first, once all on few nodes and once one
        on each node: that is less where each node lacks little.
        """
        ended = list[Pod]()
        for pods in self._candidates(rows, short):
            fewest = self._fewest(pods[: len(ended) - 1] if ended else pods)
            ended = fewest or ended
        if not ended or not self._decided(self._members, without=ended).rows:
            return None  # or the cluster has changed meanwhile, or no more may be tried
        cause = f"pods that use {' and '.join(short)}" if short else "pods that run"
        node = self._node_of(ended[0]) if len(ended) == 1 else ""
        text = when_ended(ended, node)
        return self._suggestion(text, cause, float(len(ended)), self._members, ended)

    def _fewest(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return as few of the first pods as are found without which the group fits, or []."""
        ended = self._first_that_help(pods)
        for pod in ended[-2::-1]:  # without the last one the others do not help
            fewer = [other for other in ended if other is not pod]
            if self._decided(self._members, without=fewer).rows:
                ended = fewer
        return ended

    def _first_that_help(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return the fewest first pods without which the group fits; [] if all are too few."""
        few, many = 0, 1
        while not self._decided(self._members, without=pods[:many]).rows:
            if many >= len(pods) or self._budget.spent:
                return []
            few, many = many, 2 * many
        many = min(many, len(pods))
        while many - few > 1:
            middle = (few + many) // 2
            if self._decided(self._members, without=pods[:middle]).rows:
                many = middle
            else:
                few = middle
        return [*pods[:many]]

    def _candidates(self, rows: IntArray, short: Sequence[str]) -> tuple[list[Pod], list[Pod]]:
        """Return the pods on these rows that may end, those that free most of what is short first.

        In the second list the first pod of each row comes before the second one of any row.
        """
        columns = self._cluster.pod_columns
        at = np.zeros(len(self._cluster.nodes), np.bool_)
        at[rows] = True
        there = (columns.rows >= 0) & ~columns.nominated & (columns.groups != self._group.number)
        slots = np.flatnonzero(there)
        slots = slots[at[columns.rows[slots]]]
        relief = np.zeros(len(slots))
        for resource in islice(short or sorted(_resources(self._members)), _MOST_RESOURCES):
            relief += columns.requests(resource)[slots] / _requested(self._members, resource)
        slots = slots[np.lexsort((columns.rows[slots], -relief))]
        in_turn = slots[np.argsort(_ranks(columns.rows[slots]), kind="stable")]
        return self._may_end(slots), self._may_end(in_turn)

    def _may_end(self, slots: IntArray) -> list[Pod]:
        """Return the first pods of these slots that may end."""
        pods = (self._cluster.pod_columns.pods[slot] for slot in slots.tolist())
        may_end = (pod for pod in pods if pod is not None and not stays_on_its_node(pod))
        return [*islice(may_end, _MOST_ENDED)]

    def _node_of(self, pod: Pod) -> str:
        placed = self._cluster.pod(pod.uid)
        return self._cluster.node_names[placed.row] if placed is not None else ""


def _changes(members: Sequence[Pod], cluster: ClusterView) -> list[Change]:
    """Return the changes of members that are worth a try, each once."""
    by_spec: dict[PodSpec, Pod] = {}
    for pod in members:
        by_spec.setdefault(pod.spec, pod)
    found = dict[tuple[str, str], Change]()
    for pod in islice(by_spec.values(), _MOST_SPECS):
        for change in possible_changes(pod, cluster):
            found.setdefault((change.text, change.resource), change)
    return [*islice(found.values(), MOST_CHANGES)]


def _ranks(rows: IntArray) -> IntArray:
    """Return of each item how many items of the same row are before it."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return ranks


def _resources(members: Sequence[Pod]) -> frozenset[str]:
    return frozenset(name for pod in members for name in pod.spec.demand.resources)


def _requested(members: Sequence[Pod], resource: str) -> int:
    """Return the largest request of a member, at least 1."""
    return max(1, *(pod.spec.demand.resources.get(resource, 0) for pod in members))
