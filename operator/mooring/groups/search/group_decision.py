"""Decides about a whole pod group: a node for every member, or why there is none.

See podGroupSchedulingPlacementAlgorithm in schedule_one_podgroup.go. A decision changes nothing.
Other tasks may run during a long decision.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import Final

import numpy as np

from mooring.extenders.verdicts import ExtenderResults, interested
from mooring.framework.diagnosis import EXTENDER
from mooring.framework.placements import Placement, PodGroupAssignments
from mooring.framework.plugin import PodGroupPostFilterPlugin
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.framework.post_filter import (
    GroupNomination,
    GroupPreemption,
    PodGroupPostFilterState,
)
from mooring.framework.registry import SHIPPED_WITH
from mooring.framework.scores import normalize_score
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.pod_group import GroupSource
from mooring.groups.search.alternatives import (
    claims_with_alternatives,
    place_with_last_alternatives,
    place_with_later_alternatives,
)
from mooring.groups.search.group_search import (
    Assignment,
    Devices,
    SearchedMembers,
    without_node,
)
from mooring.groups.search.placement import GroupSearch
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.pod import Pod, Uid
from mooring.model.resources import amount_text
from mooring.model.wording import plural
from mooring.pausing import pause
from mooring.quota.capacity_scheduling import CapacityScheduling, quota_rejection
from mooring.quota.usage import used_at
from mooring.runtime.extension_points import (
    run_generate_placements,
    run_pod_group_post_filter,
    run_score_placement,
    status_of,
)
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.outcome import PodRejected
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

_MOST_SUCCESSES: Final = 16
"""The most placements for the whole group that the search finds before it compares their scores."""
_MOST_PLACEMENTS: Final = 1_024
_TOO_LONG: Final = "preemption: the search for the fewest victims takes too long"
_PREEMPT_VERB: Final = "preemption: extender {} has a preemptVerb, and is not called for pod groups"
_MOST_NAMED: Final = 3
"""The most topology domains that a message names; it gives the number of the others."""
_MOST_PLANS: Final = 8
"""The most plans that an attempt tries; a plan fails if Reserve or Permit rejects a member."""
_ALL_ON_NODES: Final = "all members are on nodes"


@dataclass(frozen=True, slots=True)
class DomainTried:
    """A topology domain where a decision tried to place the group.

    Attributes:
        key: The node label; "" for the whole cluster.
        value: The value of the label; "" for the whole cluster.
        fits: The number of members that found a node.
        message: Why the other members found no node.
    """

    key: str
    value: str
    fits: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class GroupDecision:
    """The result of a decision about a group.

    Attributes:
        rows: The row of each placed member's node, by the member's uid; empty if unschedulable.
        domain: The node label and its value, if the group was placed in a topology domain.
        tried: The topology domains that were tried, in this order.
        tries: How many times the search tried to place all members, in all domains together.
        message: Why some members have no node.
        cause: The message in a few words, for example the missing resources; "" if unknown.
        plugins: The plugins that rejected members.
        fits: The number of members that found a node in the best placement.
        bounded: Whether members have no node, but a longer search might find nodes for them.
        by_specs: Whether the decision depends only on the specs of the members.
        devices: The devices that placed members must get.
        over_quota: Whether the requests exceed the quota of the members' queue.
    """

    rows: Mapping[Uid, int]
    domain: tuple[str, str] | None = None
    tried: tuple[DomainTried, ...] = ()
    tries: int = 0
    message: str = ""
    cause: str = ""
    plugins: frozenset[str] = frozenset()
    fits: int = 0
    bounded: bool = False
    by_specs: bool = False
    devices: Devices = field(default_factory=dict)
    over_quota: bool = False

    @property
    def may_preempt(self) -> bool:
        """Whether the group might fit if other pods were evicted."""
        return bool(self.tries or self.over_quota)

    def after(self, preemption: GroupPreemption) -> "GroupDecision":
        """Return the decision with the reason of its preemption added to the message."""
        return replace(self, message=f"{self.message} {preemption.reason}".rstrip())


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    placement: Placement
    assignment: Assignment


def decide_group(group: PodGroupState, searched: SearchedMembers) -> GroupDecision:
    """Find nodes for all members, or at least for the minimum of the group; return the decision.

    If members on nodes already reach the minimum, as many other members as possible get nodes.
    """
    searched, rejected = _admitted(group, searched)
    if rejected is not None:
        return rejected
    members, pipeline, cluster = searched.members, searched.pipeline, searched.cluster
    search = GroupSearch(searched)
    with searched.trial():
        placements = placements_of(group, pipeline, cluster)
    if isinstance(placements, Unschedulable):
        reason = frozenset(p.name for p in pipeline.placement_generate)
        return GroupDecision({}, message=placements.reason, plugins=reason)
    pipeline.metrics.placements_generated(pipeline.profile, len(placements))
    place, tried = partial(_measured, search, max(group.lacking, 1)), list[_Candidate]()
    found = _complete(place, placements, tried, searched.budget)
    best = found or _partial(tried, group, members) or _needed_only(group, searched, placements)
    best = best or _with_later_alternatives(group, search, placements)
    with searched.trial():
        chosen = _best(best, group, pipeline, cluster) if best else None
    all_tried = len(tried) == len(placements)
    if chosen is None:
        _name_what_is_lacking(tried, search)
    on_nodes = group.scheduled_pods_count
    decision = _decision(chosen, tried, search, pipeline, on_nodes, all_tried=all_tried)
    if chosen is None:
        # kube-scheduler tries one member after the other, and stops when too few are left.
        fits = len(tried[0].assignment.rows)
        left = group.minimum - 1 - group.scheduled_pods_count - fits
        progress = _progress(group, pipeline, fits, max(left, 0))
        if progress and tried[0].placement.key:
            count = len(placements)
            first = f"0/{count} placements are available, first placement status"
            progress = f"{first}: {progress}"
        if progress:
            return replace(decision, message=f"{progress}; {decision.message}")
    return decision


def _measured(search: GroupSearch, needed: int, rows: IntArray) -> Assignment:
    profile, metrics = search.searched.pipeline.profile, search.searched.pipeline.metrics
    began = metrics.clock() if metrics.deciding else 0.0
    assignment = search.place(rows)
    feasible = len(assignment.rows) >= needed
    metrics.placement_evaluated(profile, feasible=feasible, began=began)
    return assignment


def _admitted(
    group: PodGroupState, searched: SearchedMembers
) -> tuple[SearchedMembers, GroupDecision | None]:
    """Return the members that the quota allows, and a decision if the whole group must wait."""
    members, pipeline, cluster = searched.members, searched.pipeline, searched.cluster
    if (differs := disagreement(group, members, pipeline.kubernetes)) is not None:
        return searched, GroupDecision({}, message=differs)
    if (short := group.short_of(members)) is not None:
        text = f"{short} can be scheduled now"
        text = _progress(group, pipeline, 0, len(members)) or text
        return searched, GroupDecision({}, message=text)
    if (lacking := _lacking(group, cluster)) is not None:
        plugins = frozenset(pipeline.resource_filters)
        return searched, GroupDecision({}, message=lacking, plugins=plugins, by_specs=True)
    searched, over = _within_quota(group, searched)
    if over is not None:
        return searched, GroupDecision(
            {},
            message=f"{over.reason}.",
            cause=over.reason,
            plugins=frozenset((CapacityScheduling.name,)),
            over_quota=over.resolvable,
        )
    return searched, None


def _within_quota(
    group: PodGroupState, searched: SearchedMembers
) -> tuple[SearchedMembers, Unschedulable | None]:
    """Return the members that fit in the quota, and a reason if the minimum does not fit."""
    members, cluster = searched.members, searched.cluster
    over = _quota_rejection(members, searched.pipeline, cluster)
    if over is None:
        return searched, None
    needed, others = group.needed_of(members)
    over = _quota_rejection(needed, searched.pipeline, cluster)
    if over is not None:
        return searched, over
    fewest, most = 0, len(others)
    while most - fewest > 1:  # none of the others takes a negative amount
        half = (fewest + most) // 2
        fits = _quota_rejection((*needed, *others[:half]), searched.pipeline, cluster) is None
        fewest, most = (half, most) if fits else (fewest, half)
    taken, left = [*needed, *others[:fewest]], others[fewest:]
    return replace(searched, members=taken, others=(*searched.others, *left)), None


def _quota_rejection(
    pods: Collection[Pod], pipeline: Pipeline, cluster: ClusterView
) -> Unschedulable | None:
    if CapacityScheduling.name not in pipeline.distributions:
        return None
    return quota_rejection(pods, cluster)


def disagreement(
    group: PodGroupState, pods: Iterable[Pod], kubernetes: KubernetesRules
) -> str | None:
    """Return the error if members differ from their group in priority or preemption policy.

    Only PodGroups of scheduling.k8s.io are checked. Returns None if there is no error.
    """
    definition = group.definition
    if definition is None or group.key.source is not GroupSource.KUBERNETES:
        return None
    if not kubernetes.group_members_agree:
        return None
    priority, preempts = definition.priority or 0, definition.preempts
    whose = " as the pod group's preemption policy" if preempts is not None else ""
    pause()  # there may be 50,000 members
    on_nodes = (placed.pod for placed in chain(group.assumed.values(), group.assigned.values()))
    for spec in dict.fromkeys(pod.spec for pod in chain(pods, on_nodes)):
        if spec.priority != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {spec.priority} and {priority}"
            )
        # If the group states no policy, members must agree with each other.
        preempts = spec.preempts if preempts is None else preempts
        if spec.preempts is not preempts:
            return (
                f"all pods in a single pod group should have the same preemption policy{whose}, "
                f"got {_policy(spec.preempts)} and {_policy(preempts)}"
            )
    return None


def _policy(spec_preempts: object) -> str:
    return "PreemptLowerPriority" if spec_preempts else "Never"


def _name_what_is_lacking(tried: list[_Candidate], search: GroupSearch) -> None:
    for number in sorted(range(len(tried)), key=lambda n: -len(tried[n].assignment.rows))[
        :_MOST_NAMED
    ]:
        placement, assignment = tried[number].placement, tried[number].assignment
        if not assignment.cause:
            rows = placement.rows if placement.key else None
            cause = search.lacking(assignment, rows)
            tried[number] = _Candidate(placement, replace(assignment, cause=cause))


def _progress(group: PodGroupState, pipeline: Pipeline, fits: int, left: int) -> str:
    known = group.key.source is GroupSource.KUBERNETES and group.minimum
    if not (known and pipeline.kubernetes.group_progress_in_message):
        return ""
    scheduled = group.scheduled_pods_count + fits
    # kube-scheduler's words.
    return (
        f"minCount ({group.minimum}) cannot be satisfied: {scheduled} scheduled, {left} remaining"
    )


def _lacking(group: PodGroupState, cluster: ClusterView) -> str | None:
    definition = group.definition
    if definition is None or (group.scheduled_pods_count and not group.lacking):
        return None
    nodes = cluster.nodes
    for resource, amount in definition.min_resources.items():
        left = np.maximum(nodes.allocatable(resource) - nodes.requested(resource), 0)
        free = int(left[nodes.present].sum())
        # As in the coscheduling plugin (CheckClusterResource), members' own requests count as free.
        for placed in chain(group.assumed.values(), group.assigned.values()):
            free += placed.pod.spec.demand.resources.get(resource, 0)
        if free < amount:
            return (
                f"minResources of the group needs {amount_text(resource, amount)} of {resource}, "
                f"and {amount_text(resource, free)} are free in the cluster"
            )
    return None


def preempt_for_group(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cache: ResultCache,
    *,
    seed: int,
    now: float,
    answers: ExtenderResults | None = None,
    unschedulable_seconds: float = 0.0,
) -> GroupPreemption:
    """Run the PostFilter plugins for groups; return nodes for the minimum, and the victims.

    `now` is in seconds since the epoch; `unschedulable_seconds` is the time since the first failed
    attempt. Nodes that extenders filtered out (`answers`) are not used.
    """
    if answers is not None:
        for extender in chain.from_iterable(interested(pipeline, pod) for pod in members):
            if extender.preempt_verb:
                # Extenders preempt only for single pods.
                return Unschedulable(_PREEMPT_VERB.format(extender.name))
    waiting = without_node(members, cache.cluster)
    needed, others = group.needed_of(waiting)
    searched = SearchedMembers(
        needed,
        pipeline,
        cache,
        seed=seed,
        others=others,
        extended=answers.on(cache.cluster, not_sent=True) if answers is not None else {},
    )
    state = _GroupDryRun(group, searched).state(now, unschedulable_seconds)
    metrics = pipeline.metrics
    answer: GroupPreemption = Unschedulable("")
    # If all plugins reject the group, the last reason is returned (RunPodGroupPostFilterPlugins in
    # schedule_one_podgroup.go).
    for plugin in pipeline.post_filter:
        if not isinstance(plugin, PodGroupPostFilterPlugin):
            continue
        with metrics.all_at(ExtensionPoint.POST_FILTER):
            answer = run_pod_group_post_filter(pipeline, plugin, state)
        if isinstance(answer, GroupNomination):
            break
    metrics.ended_with(ExtensionPoint.POST_FILTER, status_of(answer))
    return Unschedulable(_TOO_LONG) if searched.budget.spent else answer


class _GroupDryRun:
    """Tells PostFilter plugins whether the group fits once certain pods are evicted."""

    def __init__(self, group: PodGroupState, searched: SearchedMembers) -> None:
        self._group = group
        self._members = tuple(searched.members)
        self._pipeline = searched.pipeline
        self._cluster = searched.cluster
        self._budget = searched.budget
        self._search = GroupSearch(searched)
        self._placement: Placement | None = None
        self._dearest = 0
        """The largest number of steps that a single search has used."""
        self._kept = 0
        """The steps that `place_by_requests` leaves for `place`; 0 after a call of `place`."""

    def state(self, now: float, unschedulable_seconds: float) -> PodGroupPostFilterState:
        """Return the input for the PostFilter plugins for groups."""
        return PodGroupPostFilterState(
            self._group,
            self._members,
            self._cluster,
            self.place,
            self.is_last,
            self._pipeline.preemption,
            now,
            unschedulable_seconds,
            None if self._search.is_counted() else self.place_by_requests,
        )

    def is_last(self) -> bool:
        """Return whether the remaining budget may suffice for only one more search."""
        return self._budget.remaining < max(2 * self._dearest, self._kept)

    def place(self, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        """Return the row of each member's node as if the pods in `without` were evicted.

        Returns None if not all members fit.
        """
        before, self._kept = self._budget.remaining, 0
        rows = self._rows(without)
        self._dearest = max(self._dearest, before - self._budget.remaining)
        return rows

    def place_by_requests(self, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        """Return the same as `place`, but compare only requests; filters may still reject nodes."""
        self._kept = self._kept or self._budget.remaining // 2
        slots = self._cluster.pod_columns.slots_of(without)
        if not self._is_within_quota(slots):
            return None
        placement = self._placement or Placement(self._cluster.nodes_in_order)
        assignment = self._search.place_once_ended(slots, placement.rows)
        return assignment.rows if assignment.complete else None

    def _is_within_quota(self, slots: IntArray) -> bool:
        with self._cluster.queues.without(used_at(slots, self._cluster)):
            return _quota_rejection(self._members, self._pipeline, self._cluster) is None

    def _rows(self, without: Collection[Pod]) -> Mapping[Uid, int] | None:
        slots = self._cluster.pod_columns.slots_of(without)
        if not self._is_within_quota(slots):
            return None
        if self._placement is not None:
            assignment = self._place(without, slots, self._placement.rows)
            return assignment.rows if assignment.complete else None
        placements = self._placements(without)
        if isinstance(placements, Unschedulable):
            return None
        slots = self._cluster.pod_columns.slots_of(without)  # the trial may have changed them
        place, tried = partial(self._place, without, slots), list[_Candidate]()
        found = _complete(place, placements, tried, self._budget)
        if not found:
            return None
        best = _best(found, self._group, self._pipeline, self._cluster)
        self._placement = best.placement
        return best.assignment.rows

    def _placements(self, without: Collection[Pod]) -> list[Placement] | Unschedulable:
        plugins, sources = self._pipeline.placement_generate, self._pipeline.distributions
        # Mooring's own plugins read no pods, and to remove the pods takes long.
        if all(sources.get(plugin.name) == SHIPPED_WITH for plugin in plugins):
            return placements_of(self._group, self._pipeline, self._cluster)
        with self._search.searched.without(without).trial():
            return placements_of(self._group, self._pipeline, self._cluster)

    def _place(self, without: Collection[Pod], slots: IntArray, rows: IntArray) -> Assignment:
        if self._search.is_counted():
            return self._search.place_once_ended(slots, rows)
        search = self._search.without(without)
        found = search.place(rows)
        if found.complete or not (claims := claims_with_alternatives(search.searched)):
            return found
        return place_with_last_alternatives(search, claims, rows)


def placements_of(
    group: PodGroupState, pipeline: Pipeline, cluster: ClusterView
) -> list[Placement] | Unschedulable:
    """Return the placements of all PlacementGenerate plugins, the lowest tier first.

    At most 1,024 placements are returned. Unschedulable means that no placement is possible.
    """
    placements = [Placement(cluster.nodes_in_order)]
    metrics, point = pipeline.metrics, ExtensionPoint.PLACEMENT_GENERATE
    metrics.mark()
    for plugin in pipeline.placement_generate:
        # Each plugin divides the placements of the plugin before it.
        divided = list[Placement]()
        for parent in placements:
            found = run_generate_placements(pipeline, plugin, group, parent, cluster)
            if isinstance(found, Unschedulable):
                metrics.lap(point)
                metrics.ended_with(point, status_of(found))
                return found
            divided += found
        placements = divided
    metrics.lap(point)
    if not placements:
        return Unschedulable("no plugin has a placement for the group")
    return sorted(placements, key=lambda placement: placement.tier)[:_MOST_PLACEMENTS]


def _complete(
    place: Callable[[IntArray], Assignment],
    placements: Iterable[Placement],
    tried: list[_Candidate],
    budget: SearchBudget,
) -> list[_Candidate]:
    """Return the placements on which `place` places all members, from the lowest such tier."""
    for _, tier in groupby(placements, key=lambda placement: placement.tier):
        found = list[_Candidate]()
        for placement in tier:
            if tried and budget.spent:
                return found
            assignment = place(placement.rows)
            candidate = _Candidate(placement, assignment)
            tried.append(candidate)
            if candidate.assignment.complete:
                found.append(candidate)
                if len(found) >= _MOST_SUCCESSES:
                    break
        if found:
            return found
    return []


def _partial(
    tried: Sequence[_Candidate], group: PodGroupState, members: Sequence[Pod]
) -> list[_Candidate]:
    needed = max(group.lacking, 1)
    enough = [c for c in tried if len(c.assignment.rows) >= needed]
    if group.roles:
        enough = [
            c
            for c in enough
            if group.short_of([pod for pod in members if pod.uid in c.assignment.rows]) is None
        ]
    return [c for c in enough if c.placement.tier == enough[0].placement.tier]


def _needed_only(
    group: PodGroupState, searched: SearchedMembers, placements: Iterable[Placement]
) -> list[_Candidate]:
    needed, others = group.needed_of(searched.members)
    if not (group.roles and others):
        return []
    # Members of one role that are not needed could take the nodes for another role.
    search = GroupSearch(replace(searched, members=needed, others=(*searched.others, *others)))
    found = _complete(search.place, placements, [], searched.budget)
    wanted = len(searched.members)
    return [
        replace(c, assignment=replace(c.assignment, wanted=wanted, impossible=False)) for c in found
    ]


def _with_later_alternatives(
    group: PodGroupState, search: GroupSearch, placements: Iterable[Placement]
) -> list[_Candidate]:
    searched, tried = search.searched, list[_Candidate]()
    if not (claims := claims_with_alternatives(searched)):
        return []
    place = partial(place_with_later_alternatives, search, claims)
    found = _complete(place, placements, tried, searched.budget)
    return found or _partial(tried, group, searched.members)


def _best(
    found: Sequence[_Candidate], group: PodGroupState, pipeline: Pipeline, cluster: ClusterView
) -> _Candidate:
    if len(found) == 1:
        return found[0]
    pipeline.metrics.mark()
    totals = np.zeros(len(found), np.int64)
    for scorer in pipeline.placement_scores:
        scores = [
            run_score_placement(
                pipeline,
                scorer.plugin,
                group,
                PodGroupAssignments(c.placement, c.assignment.rows, group.scheduled_pods_count),
                cluster,
            )
            for c in found
        ]
        normalized = normalize_score(np.array(scores, np.int64), scorer.plugin.normalize)
        totals += scorer.weight * normalized
    pipeline.metrics.lap(ExtensionPoint.PLACEMENT_SCORE)
    return found[int(np.argmax(totals))]


def _decision(
    chosen: _Candidate | None,
    tried: Sequence[_Candidate],
    search: GroupSearch,
    pipeline: Pipeline,
    on_nodes: int,
    *,
    all_tried: bool,
) -> GroupDecision:
    tries = sum(c.assignment.tries for c in tried)
    # The candidate in which the most members fitted says best why the others have no node.
    about = chosen or max(tried, key=lambda c: len(c.assignment.rows))
    assignment, placement = about.assignment, about.placement
    message, cause, plugins = "", "", frozenset[str]()
    impossible = all_tried and all(c.assignment.impossible for c in tried)
    if not assignment.complete:
        found = search.diagnosis(assignment.rows, placement.rows if placement.key else None)
        plugins, nodes_say = frozenset(pipeline.resource_filters), ""
        if found is not None:
            diagnosis, cause = found
            plugins, nodes_say = plugins | diagnosis.plugins, diagnosis.message
        if search.searched.extended_rejects:
            plugins |= {EXTENDER}
        message = _message(chosen, tried, about, on_nodes, nodes_say, impossible=impossible)
    return GroupDecision(
        rows=assignment.rows if chosen is not None else {},
        domain=(placement.key, placement.value) if chosen is not None and placement.key else None,
        tried=tuple(_tried(c) for c in tried if c.placement.key),
        tries=tries,
        message=message,
        cause=cause,
        plugins=plugins,
        fits=len(assignment.rows),
        bounded=not assignment.complete and not impossible,
        by_specs=search.was_counted,
        devices=assignment.devices if chosen is not None else {},
    )


def _message(
    chosen: _Candidate | None,
    tried: Sequence[_Candidate],
    about: _Candidate,
    on_nodes: int,
    diagnosis: str,
    *,
    impossible: bool,
) -> str:
    wanted = about.assignment.wanted
    if chosen is not None:
        left = wanted - len(about.assignment.rows)
        return f"{plural(left, 'member')} beyond the minimum: {diagnosis}"
    whole, fails = f"the group of {wanted}", "does not fit"
    if on_nodes:
        whole = f"{plural(wanted, 'member')} of the group of {wanted + on_nodes}"
        fails = fails if wanted == 1 else "do not fit"
    head = f"{whole} {fails}"
    if not impossible:
        tries = sum(c.assignment.tries for c in tried)
        head = f"no placement of {whole} was found within {tries} tries"
    causes = "; ".join(_causes(tried))
    return f"{head}: {causes}" if diagnosis in causes else f"{head}: {causes}. {diagnosis}"


def _causes(tried: Sequence[_Candidate]) -> Iterator[str]:
    ranked = sorted(tried, key=lambda c: -len(c.assignment.rows))
    for candidate in ranked[:_MOST_NAMED]:
        yield _tried(candidate).message
    if len(ranked) > _MOST_NAMED:
        yield f"and {len(ranked) - _MOST_NAMED} more domains"


def _tried(candidate: _Candidate) -> DomainTried:
    placement, assignment = candidate.placement, candidate.assignment
    fits, where = len(assignment.rows), f" in {placement.text}" if placement.key else ""
    if assignment.complete:
        return DomainTried(placement.key, placement.value, fits, f"all members fit{where}")
    cause = f", {assignment.cause}" if assignment.cause else ""
    text = f"{fits} of {assignment.wanted} members fit{where}{cause}"
    return DomainTried(placement.key, placement.value, fits, text)


def place_group(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cache: ResultCache,
    commit: Callable[[Mapping[Uid, int], Devices], object],
    *,
    seed: int,
    answers: ExtenderResults | None = None,
) -> GroupDecision:
    """Find nodes for all members, or at least for the group's minimum, and commit this plan.

    `commit` gets the rows and devices by uid; it raises `PodRejected` if a plugin rejects a member.
    Without a plan, the decision has no rows.
    """
    budget, rejected = SearchBudget(), dict[str, set[str]]()
    message, plugins = "", frozenset[str]()
    if not (members := without_node(members, cache.cluster)):
        return GroupDecision({}, message=_ALL_ON_NODES)
    for _ in range(_MOST_PLANS):
        searched = SearchedMembers(
            members,
            pipeline,
            cache,
            seed=seed,
            rejected=rejected,
            budget=budget,
            extended=answers.on(cache.cluster) if answers is not None else {},
        )
        decision = decide_group(group, searched)
        if not decision.rows and not rejected:
            return decision
        if not decision.rows:
            break
        try:
            commit(decision.rows, decision.devices)
        except PodRejected as rejection:
            pod = rejection.pod
            # The next plan avoids this node for the member.
            rejected.setdefault(pod.uid, set()).add(rejection.node)
            plugins |= {rejection.plugin}
            message = f"member {pod.key}: {rejection.message}"
        else:
            return decision
    return GroupDecision({}, message=message, plugins=plugins, bounded=True)
