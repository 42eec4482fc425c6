"""Finds changes with which a waiting pod or pod group would fit, by trying each in a decision.

These changes are tried: another spec of the pod or of all members; the end of as few other pods as
possible; for a pod, other requests of its claims; for a group, a smaller minimum. If no single
change of a pod is enough, pairs are tried. Each try is a decision of the real pipeline in a trial,
and is true for the state of the cluster at that moment.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations, islice, starmap
from operator import attrgetter
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from mooring.claims.claim_report import ExplainsClaims
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.verdicts import Unschedulable
from mooring.gpu_cards.card_plugin import CardPlugin
from mooring.groups.model.pod_group import GroupSource
from mooring.groups.search.group_decision import GroupDecision, placements_of
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.model.pod_spec import PodSpec
from mooring.model.resources import CPU, MEMORY, amount_text
from mooring.model.wording import listed
from mooring.pausing import pause
from mooring.quota.capacity_scheduling import quota_rejection
from mooring.quota.state.queues import below
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.changes import (
    Change,
    claim_changes,
    conditions,
    fewer_devices,
    pod_changes,
    requesting,
)
from mooring.scheduling.filtering import PreFiltered
from mooring.scheduling.what_if import WhatIf, stays_on_its_node
from mooring.state.columns import IntArray

EXAMPLES: Final = 3
_MOST_STEPS: Final = 20_000
"""The most decisions about pods for the suggestions for one group; then no more are made."""
_MOST_CHANGES: Final = 32
"""The most changes that are tried, because each needs a search over all nodes."""
_MOST_PAIRS: Final = 32
_MOST_ROWS: Final = 8
"""The most nodes on which the end of running pods is tried for a pod."""
_MOST_DOMAINS: Final = 3
"""The most topology domains in which the end of running pods is tried for a group."""
_MOST_ENDED_FOR_POD: Final = 10
_MOST_ENDED_FOR_GROUP: Final = 64
_MOST_SPECS: Final = 4
"""The most different specs of a group's members for which changes are tried."""
_MOST_SHARING: Final = 64
"""The most members on one node that the search for smaller requests considers."""
_MOST_RESOURCES: Final = 16
"""The most resources by which running pods are sorted, because a pod may have hundreds."""
_MOST_AMOUNTS: Final = 4_096
"""The most amounts that the search for the largest possible request of a resource tries."""
_MINIMUM: Final = 0.9
"""The cost of the suggestion to lower a group's minimum; the suggestion of a smaller request costs
less, and comes first."""
_FIELDS: Final[Mapping[GroupSource, str]] = {
    GroupSource.KUBERNETES: "minCount",
    GroupSource.COSCHEDULING: "minMember",
    GroupSource.VOLCANO: "minMember",
    GroupSource.KAI: "minMember",
    GroupSource.PODS: "minimum",
}
_Item = TypeVar("_Item")
_Limits = Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion:
    """A change after which the pod or group would fit on the nodes at `rows` (no row repeats).

    `change` completes the sentence "it would fit on N nodes ...". The change with the smallest
    `cost` comes first. `pods` are the changed pods, and `ended` the pods that must end.
    """

    change: str | TextAboutPods
    cost: float
    rows: IntArray
    examples: tuple[str, ...]
    pods: Sequence[Pod]
    ended: tuple[PodRef, ...] = ()

    @property
    def nodes(self) -> int:
        """The number of nodes where the pod would fit, or that the group would use."""
        return len(self.rows)


def suggestions(
    members: Sequence[Pod],
    pipeline: Pipeline,
    what_if: WhatIf,
    group: PodGroupState | None = None,
    steps: int = _MOST_STEPS,
) -> Iterator[Suggestion]:
    """Yield each change with which the pod, or the group, would fit.

    Other tasks may run, and change the cluster, after each decision. For a group, at most `steps`
    decisions about single pods are made.
    """
    return _Suggestions(members, pipeline, what_if, group, SearchBudget(steps)).found()


class _Suggestions:
    """Tries decisions about a waiting pod or group, with changes."""

    def __init__(
        self,
        members: Sequence[Pod],
        pipeline: Pipeline,
        what_if: WhatIf,
        group: PodGroupState | None,
        budget: SearchBudget,
    ) -> None:
        self._members = members
        self._pipeline = pipeline
        self._what_if = what_if
        self._cluster = what_if.cluster
        self._group = group
        self._budget = budget
        self._first: GroupDecision | None = None
        """The decision about the unchanged group; None until it is made."""
        self._short: list[str] = []
        """The resources that the group lacks: it would fit if its members did not request these
        resources."""
        self._short_of_devices: list[int] = []
        """The rows of nodes where the end of other pods may free devices for the pod."""
        self._requested: dict[str, int] = {}
        """The largest request of a member by resource, at least 1."""
        for pod in members:
            for name, amount in pod.spec.demand.resources.items():
                self._requested[name] = max(self._requested.get(name, 1), amount)

    def found(self) -> Iterator[Suggestion]:
        """Yield the suggestions, see the function `suggestions`."""
        as_it_is = self._fit(self._members) or self._without_reservations()
        if as_it_is is not None:
            yield as_it_is
            return
        changes = self._changes()
        helping = filter(None, map(self._with, changes))
        if self._group is None:
            yield from self._of_pod(self._members[0], changes, helping)
            return
        yield from helping
        if (suggestion := self._with_minimum(self._group)) is not None:
            yield suggestion
        domains = map(self._without_pods, self._domains(self._group))
        yield from islice(filter(None, domains), 1)

    def _of_pod(
        self, pod: Pod, changes: Sequence[Change], helping: Iterator[Suggestion]
    ) -> Iterator[Suggestion]:
        helped = claims_helped = False
        for suggestion in helping:
            yield suggestion
            helped = True
        for each in fewer_devices(pod, self._cluster):
            if (found := _mildest(each, self._with)) is not None:
                yield found[1]
                claims_helped = True
        yield from filter(None, map(self._without_pods, self._rows_for_endings(pod)))
        # Last: claims that read other attributes than before have all devices looked at anew.
        of_claims = [*islice(claim_changes(pod, self._cluster), _MOST_CHANGES)]
        for suggestion in filter(None, map(self._with, of_claims)):
            yield suggestion
            claims_helped = True
        if not claims_helped:
            # That a pod would fit without its claims does not say what to change of them.
            tried_in_pairs = of_claims if helped else [*changes, *of_claims]
            pairs = islice(combinations(tried_in_pairs, 2), _MOST_PAIRS)
            yield from filter(None, starmap(self._with, pairs))

    def _without_reservations(self) -> Suggestion | None:
        """Suggest to wait until nodes that are reserved for other pods are free."""
        group = self._group
        own: Container[Uid] = group.unscheduled if group else {self._members[0].uid}
        reserved = self._cluster.nominations.reserved
        others = [nominee for nominee in reserved if nominee.pod.uid not in own]
        kept = next((other.reservation for other in others), None)
        fit = self._fit(self._members, without=[other.pod for other in others]) if kept else None
        if fit is None or kept is None:
            return None
        text = kept.text_for(self._members[0].namespace)
        return replace(fit, change=f"once they are not {text}")

    def _fit(
        self,
        members: Sequence[Pod],
        changes: Sequence[Change] = (),
        without: Sequence[Pod] = (),
    ) -> Suggestion | None:
        """Return a suggestion if `members` fit after `changes`, without the pods `without`."""
        while True:
            try:
                rows = self._decided(members, changes, without)
                break
            except AttemptTooLongError:
                pause()
        examples = tuple(map(self._cluster.nodes.name, rows[:EXAMPLES].tolist()))
        pause()
        return Suggestion("as it is", 0.0, rows, examples, members) if len(rows) else None

    def _decided(
        self, members: Sequence[Pod], changes: Sequence[Change], without: Sequence[Pod]
    ) -> IntArray:
        """Return rows (int64) where `members` fit after `changes`, if the pods `without` end."""
        if self._group is None:
            with self._what_if.trial(without) as trial:
                for change in filter(attrgetter("claim"), changes):
                    claim = self._cluster.dynamic_resources.claims.of_uid(change.claim)
                    if claim is None:
                        return np.zeros(0, np.int64)
                    trial.ask(claim.uid, change.ask(claim.spec))
                return self._what_if.feasible_rows(members[0], self._pipeline)
        decision = GroupDecision({})
        if not self._budget.spent:
            decision = self._what_if.decide_group(
                self._group, members, self._pipeline, self._budget, without
            )
        self._first = self._first or decision
        return np.array([*dict.fromkeys(decision.rows.values())], np.int64)

    def _changes(self) -> list[Change]:
        specs = dict[PodSpec, Pod]()
        for pod in self._members:
            specs.setdefault(pod.spec, pod)
        found = list[Change]()
        for pod in islice(specs.values(), _MOST_SPECS):
            known = {(change.text, change.resource) for change in found}
            changes = pod_changes(pod, self._cluster)
            found += [each for each in changes if (each.text, each.resource) not in known]
        return found[:_MOST_CHANGES]

    def _with(self, *changes: Change) -> Suggestion | None:
        """Suggest `changes` together; return None if the pod or group does not fit then."""
        resources = [change.resource for change in changes if change.resource]
        limits: _Limits = dict.fromkeys(resources, 0)
        fit = self._fit_with(changes, limits)
        if fit is not None and resources:
            limits, fit = self._with_largest(changes, resources, fit)
        if fit is None or not all(limit or "/" in name for name, limit in limits.items()):
            return None  # a pod cannot do without cpu or memory, only without a device
        shares = [limit / self._requested[name] for name, limit in limits.items()]
        subject = "it"
        if self._group is not None:
            subject = "each member" if len(self._members) > 1 else "its member"
        texts = [each.text or self._request_text(each.resource, limits) for each in changes]
        return replace(
            fit,
            change=conditions(changes, texts, subject),
            cost=sum(change.cost for change in changes) + 1.0 - min(shares, default=1.0),
        )

    def _fit_with(self, changes: Sequence[Change], limits: _Limits) -> Suggestion | None:
        specs, changed = dict[PodSpec, PodSpec](), list[Pod]()
        for pod in self._members:
            other = pod
            if pod.spec not in specs or pod.volumes:
                for change in changes:
                    other = change.apply(other)
                other = requesting(limits, other) if limits else other
            changed.append(replace(other, spec=specs.setdefault(pod.spec, other.spec)))
            pause()
        return self._fit(changed, changes)

    def _with_largest(
        self, changes: Sequence[Change], resources: Sequence[str], fit: Suggestion
    ) -> tuple[_Limits, Suggestion]:
        """Return the largest requests with which the pod or group fits, and their suggestion."""
        first, *others = resources
        amounts: Sequence[int] = ()
        if self._group is not None:
            self._short.append(first)
            amounts = self._amounts(first)
        else:
            free = self._free(resources, fit.rows)
            if (found := self._fit_with(changes, free)) is not None:
                return free, found
            if not others:
                # What is free on a node may be on several cards, or kept for nominated pods.
                step = _step_of(first)
                amounts = range((free[first] // step - 1) * step, 0, -step)
        best = _mildest(amounts, lambda amount: self._fit_with(changes, {first: amount}))
        return ({first: best[0]}, best[1]) if best else (dict.fromkeys(resources, 0), fit)

    def _free(self, resources: Sequence[str], rows: IntArray) -> _Limits:
        """Return how much of each resource is free, rounded, on the node with the most room."""
        rows = np.intersect1d(rows, self._cluster.nodes_in_order)  # some may have gone in a pause
        if not len(rows):
            return dict.fromkeys(resources, 0)
        nodes = self._cluster.nodes.take(rows)
        free = {
            name: np.maximum(nodes.allocatable(name) - nodes.requested(name), 0)
            for name in resources
        }
        shares = np.min([free[name] / self._requested[name] for name in resources], axis=0)
        best = int(np.argmax(shares))
        limits = {name: min(int(free[name][best]), self._requested[name]) for name in resources}
        return {name: n - n % _step_of(name) or n for name, n in limits.items()}

    def _amounts(self, resource: str) -> list[int]:
        """Return smaller requests of the resource to try, the largest first."""
        nodes, step = self._cluster.nodes, _step_of(resource)
        free = nodes.allocatable(resource) - nodes.requested(resource)
        spaces = np.unique(free[nodes.present & (free > 0)])
        parts = np.arange(1, _MOST_SHARING + 1)  # cards divide a node as well as members do
        amounts = np.unique(spaces[:, np.newaxis] // parts // step * step)
        amounts = amounts[(amounts > 0) & (amounts < self._requested[resource])]
        found: list[int] = amounts[:: max(1, -(-len(amounts) // _MOST_AMOUNTS))][::-1].tolist()
        return found

    def _request_text(self, resource: str, limits: _Limits) -> str:
        # The text completes "if it ...".
        limit, before = limits[resource], amount_text(resource, self._requested[resource])
        if not limit:
            return f"did not request {resource} (it requests {before})"
        text = f"requested at most {amount_text(resource, limit)} of {resource} instead of {before}"
        for plugin in self._pipeline.filters:
            if isinstance(plugin, CardPlugin):
                largest = plugin.largest_card(resource, self._cluster.nodes_in_order)
                if largest is not None:
                    return (
                        f"{text} (no card {'is larger' if largest <= limit else 'has more free'})"
                    )
        return text

    def _with_minimum(self, group: PodGroupState) -> Suggestion | None:
        """Suggest the largest minimum of members with which the group would be placed."""
        definition, first = group.definition, self._first
        smaller = group.scheduled_pods_count + (first.fits if first is not None else 0)
        if definition is None or group.roles or not 0 < smaller < definition.minimum:
            return None
        lowered = copy(group)
        lowered.definition = replace(definition, minimum=smaller)
        self._group = lowered
        fit = self._fit(self._members)
        self._group = group
        if fit is None:
            return None
        name = _FIELDS[group.key.source]
        text = f"if its {name} were at most {smaller} instead of {definition.minimum}"
        return replace(fit, change=text, cost=_MINIMUM)

    def _domains(self, group: PodGroupState) -> list[IntArray]:
        placements = placements_of(group, self._pipeline, self._cluster)
        if isinstance(placements, Unschedulable) or self._first is None:
            return []
        fits = {(tried.key, tried.value): tried.fits for tried in self._first.tried}
        placements.sort(key=lambda each: (each.tier, -fits.get((each.key, each.value), 0)))
        return [placement.rows for placement in placements[:_MOST_DOMAINS]]

    def _rows_for_endings(self, pod: Pod) -> list[IntArray]:
        """Return rows to try, in order: the pod may fit there after a few other pods have ended."""
        search = self._what_if.search(pod, self._pipeline)
        pre_filtered = search.pre_filter()
        if not isinstance(pre_filtered, PreFiltered):
            return [self._cluster.nodes_in_order] if pre_filtered.pre_filter_resolvable else []
        diagnosis = search.diagnose(pre_filtered)
        for plugin in self._pipeline.filters:
            rejected = [group.rows for group in diagnosis.rejected if group.plugin == plugin.name]
            if isinstance(plugin, ExplainsClaims) and rejected:
                # To evict pods does not free devices, but when they end, it does.
                freed = plugin.rows_if_freed(pod, np.concatenate(rejected))
                self._short_of_devices += freed[:_MOST_ROWS]
        rows = diagnosis.resolvable_rows
        nodes = self._cluster.nodes.take(rows)
        lacking = np.zeros(len(rows))
        for resource, requested in pod.spec.demand.resources.items():
            allocatable = nodes.allocatable(resource)
            short = requested - (allocatable - nodes.requested(resource))
            lacking += np.maximum(short, 0) / max(requested, 1)
            lacking[allocatable < requested] = np.inf
        order = np.argsort(lacking, kind="stable")[:_MOST_ROWS]
        least = rows[order[lacking[order] < np.inf]]
        return [np.array([row], np.int64) for row in (*self._short_of_devices, *least)]

    def _without_pods(self, rows: IntArray) -> Suggestion | None:
        """Suggest to wait until as few pods as possible at `rows` have ended."""
        ended = list[Pod]()
        for pods in self._candidates(rows):
            ended = self._fewest(pods[: len(ended) - 1] if ended else pods) or ended
        fit = self._fit(self._members, without=ended) if ended else None
        if fit is None:
            return None  # or the cluster has changed meanwhile, or no more may be tried
        on_one = len(ended) == 1 or len(rows) == 1
        placed = self._cluster.pod(ended[0].uid) if on_one else None
        node = self._cluster.nodes.name(placed.row) if placed is not None else ""
        refs = tuple(map(PodRef.of, ended))
        return replace(fit, change=_when_ended(ended, node), cost=float(len(ended)), ended=refs)

    def _fewest(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return the fewest of `pods` without which the members fit, or []."""

        def fit(number: int) -> Suggestion | None:
            return self._fit(self._members, without=pods[:number])

        many = 1
        while fit(many) is None:
            if many >= len(pods):
                return []
            many *= 2
        most = min(many, len(pods))
        found = _mildest(range(many // 2 + 1, most), fit)
        ended = [*pods[: found[0] if found is not None else most]]
        for pod in ended[-2::-1]:  # without the last one the others do not help
            fewer = [other for other in ended if other is not pod]
            if self._fit(self._members, without=fewer) is not None:
                ended = fewer
        return ended

    def _candidates(self, rows: IntArray) -> list[list[Pod]]:
        """Return one or two lists of the pods at `rows` that may end, in different orders."""
        columns = self._cluster.pod_columns
        slots = np.flatnonzero(np.isin(columns.rows, rows) & ~columns.nominated)
        if self._group is not None:
            slots = slots[columns.groups[slots] != self._group.number]
        queue = self._cluster.queues.of(self._members[0])
        if queue is not None and quota_rejection(self._members, self._cluster) is not None:
            tree = [state.number for state in below(queue.root)]
            slots = slots[np.isin(columns.queues[slots], tree)]  # others free no quota for it
        slots = slots[columns.by_arrival(slots, -self._relief(slots), columns.rows[slots])]
        lists = [self._may_end(slots)]
        if len(rows) > 1:  # the first pod of each node, then the second of each node, and so on
            in_turn = np.argsort(_ranks(columns.rows[slots]), kind="stable")
            lists.append(self._may_end(slots[in_turn]))
        return lists

    def _relief(self, slots: IntArray) -> npt.NDArray[np.float64]:
        """Return float64[slots]: how much the end of each pod would help."""
        # For each missing resource, the pod's request divided by the largest request of a member.
        columns, known = self._cluster.pod_columns, self._cluster.dynamic_resources
        relief = np.zeros(len(slots))
        for resource in islice(self._short or sorted(self._requested), _MOST_RESOURCES):
            relief += columns.requests(resource)[slots] / self._requested[resource]
        if len(slots) and int(columns.rows[slots[0]]) in self._short_of_devices:
            pods = [columns.pods[slot] for slot in slots.tolist()]
            uids = [pod.uid for pod in pods if pod is not None]
            holds = [bool(known.claims.held(uid) or known.claims.reserved_for(uid)) for uid in uids]
            relief += np.array(holds) * (1 + len(self._requested))
        return relief

    def _may_end(self, slots: IntArray) -> list[Pod]:
        pods = (self._cluster.pod_columns.pods[slot] for slot in slots.tolist())
        may_end = (pod for pod in pods if pod is not None and not stays_on_its_node(pod))
        most = _MOST_ENDED_FOR_POD if self._group is None else _MOST_ENDED_FOR_GROUP
        return [*islice(may_end, most)]


def _mildest(
    tried: Sequence[_Item], attempt: Callable[[_Item], Suggestion | None]
) -> tuple[_Item, Suggestion] | None:
    """Return the first of `tried` for which `attempt` has a suggestion, and this suggestion."""
    # If an element has a suggestion, all later elements have one, too.
    first, last, best = 0, len(tried), None
    while first < last:
        middle = (first + last) // 2
        if (found := attempt(tried[middle])) is None:
            first = middle + 1
        else:
            last, best = middle, (tried[middle], found)
    return best


def _when_ended(pods: Sequence[Pod], node: str) -> TextAboutPods:
    end = f"{f'on {node} ' if node else ''}{'ends' if len(pods) == 1 else 'end'}"
    which = "a pod" if len(pods) == 1 else f"{len(pods)} pods"
    names = listed([pod.key for pod in pods], EXAMPLES)
    text = f"when {names} {end}" if len(pods) == 1 else f"when {which} {end}: {names}"
    return TextAboutPods(text, tuple(map(PodRef.of, pods)), f"when {which} {end}")


def _ranks(rows: IntArray) -> IntArray:
    """Return, for each element, how many earlier elements are equal to it."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return ranks


def _step_of(resource: str) -> int:
    if resource == CPU:
        return 10
    whole_mib = resource in (MEMORY, "ephemeral-storage") or resource.startswith("hugepages-")
    return 2**20 if whole_mib else 1
