"""Runs the scheduling engine without a cluster: one decision for every pending pod."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from mooring.extenders.verdicts import ExtenderError, ExtenderResults, Needed, interested
from mooring.framework.decision import Decision, PodRef
from mooring.framework.post_filter import GroupNomination
from mooring.framework.registry import Registry
from mooring.framework.verdicts import PluginError
from mooring.groups.search.extender_calls import needed_about
from mooring.groups.search.group_decision import GroupDecision, place_group, preempt_for_group
from mooring.groups.search.group_search import Devices
from mooring.groups.search.members import group_of
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.resolve import resolve
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod, StateTimes
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.outcome import FitError, Outcome, PodRejected, decision_of
from mooring.scheduling.profiles_in_force import ActiveProfile, Profiles
from mooring.scheduling.queue.borrowers import ActivePodsWithBorrowers
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf, held_back, without_preemption
from mooring.simulate.inputs import Inputs
from mooring.simulate.manifests import InputError
from mooring.simulate.new_objects import RejectedPod, owner_of
from mooring.simulate.offline import offline_handle
from mooring.simulate.offline_extenders import Call, calling_extenders
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

_REST: Final = re.compile(r"(: |\. ).*", re.DOTALL)
"""Matches the part of a message from its first colon or full stop on."""
WITH_GROUP: Final = "placed together with its pod group"
_NOMINATED: Final = "its nominated node"
_MOST_CACHE_BYTES: Final = 512 * 1024 * 1024
"""The most bytes of cached results; then old results are dropped. The number is large because the
process ends soon."""


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """The decision about one pod.

    Attributes:
        decision: The decision record.
        feasible: The number of nodes that passed all filters. It is 0 if the pod has no node, if it
            is on its nominated node, or if it is in a pod group.
        owner: The controller of the pod as `Kind namespace/name`, or "".
        reason: A few words that say why the pod has no node, or why its node was not compared with
            others; else "".
        plugins: The plugins that rejected the pod for all nodes at once, or that rejected members
            of its group.
    """

    decision: Decision
    feasible: int = 0
    owner: str = ""
    reason: str = ""
    plugins: frozenset[str] = frozenset()


def simulate(
    inputs: Inputs,
    registry: Registry,
    *,
    seed: int,
    nodes: int | None = None,
    profile: str | None = None,
    extenders: bool = False,
) -> Iterator[SimulatedAttempt]:
    """Yield one attempt for each pending or rejected pod, in queue order.

    A pod group comes at the place of its first member. Pods that are not queued come last. Each
    scheduled pod is added to its node in the state of `inputs`. Permit plugins do not run, because
    no pod can wait.

    The victims of a preemption stay on their node, as in a cluster during their grace period. The
    preempting pod is nominated to this node: later pods of lower or equal priority do not get the
    victims' resources.

    Args:
        inputs: The cluster, the pods and the profiles. Without any profile, a profile with
            kube-scheduler's defaults applies.
        registry: The plugins that profiles may name.
        seed: Chooses among nodes of equal score, together with the pod's uid.
        nodes: How many of the best nodes a decision lists, and how many rejections per plugin; None
            for all.
        profile: The name of the profile that decides about all pods, even pods it does not match.
        extenders: Whether to call the extenders of the profiles to filter, score and preempt, but
            not to bind. The inputs must then have raw objects (`keep_raw`).

    Raises:
        InputError: if there is no profile of this name.
    """
    simulation = Simulation(inputs, registry, seed=seed, nodes=nodes, profile=profile)
    return simulation.attempts(inputs.pending, inputs.rejected, extenders=extenders)


class Simulation:
    """Decides about pods one after the other; the arguments are those of `simulate`.

    `preempts` says whether pods preempt other pods.
    """

    def __init__(
        self,
        inputs: Inputs,
        registry: Registry,
        *,
        seed: int = 0,
        nodes: int | None = 1,
        profile: str | None = None,
        preempts: bool = True,
    ) -> None:
        self._inputs = inputs
        self._state = inputs.state
        self.cluster = ClusterView(inputs.state)
        self.cache = ResultCache(self.cluster, _MOST_CACHE_BYTES)
        self._most = nodes
        self._preempts = preempts
        now = self._now = _now(inputs.state, inputs.pending)
        self._what_if = WhatIf(self.cache, now=lambda: now, salt=seed)
        self._profiles = Profiles(registry, offline_handle(inputs.state))
        profiles = [loaded.profile for loaded in inputs.profiles]
        for each in profiles or [SchedulingProfile(DEFAULT_SCHEDULER, SchedulingProfileSpec())]:
            self._profiles.put(each, resolve(each.spec, registry, self.cluster.kubernetes))
        inputs.state.track_pod_groups(self._profiles.pod_group_formats)
        self._always = self.named(profile) if profile is not None else None
        self._call: Call | None = None
        self._victims: dict[str, tuple[PodRef, ...]] = {}
        """The victims of a group's preemption, by the key of the group's first member."""

    @property
    def profiles(self) -> Sequence[ActiveProfile]:
        """Only the profile that the caller chose; else all profiles, in the order of the input."""
        return [self._always] if self._always else [*self._profiles.in_force.values()]

    def named(self, name: str) -> ActiveProfile:
        """Return the profile of this name; raise InputError if there is none."""
        found = self._profiles.in_force
        if name not in found:
            raise InputError(f'there is no profile "{name}"; there are {", ".join(sorted(found))}')
        return found[name]

    def profile_of(self, pod: Pod) -> ActiveProfile | None:
        """Return the profile that decides about the pod; None if there is none."""
        return self._always or self._profiles.of(pod, self.cluster)

    def shadow_of(self, pod: Pod) -> ActiveProfile | None:
        """Return the chosen profile, or else the profile in mode Shadow that takes the pod.

        Without a chosen profile, returns None if an Active profile or no profile takes the pod.
        """
        return self._always or self._profiles.shadow_of(pod, self.cluster)

    def takes(self, pod: Pod) -> bool:
        """Return whether any profile decides about the pod."""
        return self.profile_of(pod) is not None

    def attempts(
        self,
        pods: Iterable[Pod],
        forbidden: Iterable[RejectedPod] = (),
        *,
        extenders: bool = False,
    ) -> Iterator[SimulatedAttempt]:
        """Yield an attempt for each of `pods`, and a rejection for each forbidden pod."""
        if not extenders:
            yield from self._attempts(pods, forbidden)
            return
        with calling_extenders(self._inputs) as self._call:
            yield from self._attempts(pods, forbidden)

    def _attempts(
        self, pods: Iterable[Pod], forbidden: Iterable[RejectedPod]
    ) -> Iterator[SimulatedAttempt]:
        active = ActivePodsWithBorrowers(lambda: self.cluster.queues)
        waiting = dict[str, QueuedPod]()
        chosen: list[ActiveProfile] = []
        rejected = [
            _rejected(PodRef.of_key(each.pod), each.owner, None, each.message) for each in forbidden
        ]
        pods = [*pods]
        for pod in pods:
            self._state.put_unscheduled(pod)
        self._nominate_as_shown((*self._inputs.pending, *pods))
        for pod in pods:
            profile = self.profile_of(pod)
            if profile is None:
                name = pod.spec.scheduler_name
                meant = self._profiles.did_you_mean(name)
                why = f'no profile takes pods of schedulerName "{name}"{meant}'
                rejected.append(_rejected(PodRef.of(pod), owner_of(pod), None, why))
                continue
            held = why_not_queued(pod, profile.pipeline)
            if held is not None:
                rejected.append(_rejected(PodRef.of(pod), owner_of(pod), profile, held))
            else:
                queued = _queued(pod, profile.pipeline, ticket=len(chosen))
                active.add(queued)
                waiting[pod.key] = queued
                chosen.append(profile)
        while (first := active.pop(0.0)) is not None:
            if waiting.pop(first.pod.key, None) is None:
                continue  # it was decided about with its group
            group = group_of(first.pod, first.pipeline, self.cluster)
            if group is None:
                yield self.attempt(first.pod, chosen[first.ticket])
                continue
            others = [
                waiting.pop(pod.key).pod
                for pod in group.unscheduled.values()
                if pod.key in waiting and waiting[pod.key].pipeline is first.pipeline
            ]
            yield from self._attempt_group(group, [first.pod, *others], chosen[first.ticket])
        yield from rejected

    def _nominate_as_shown(self, pods: Iterable[Pod]) -> None:
        """Nominate pods to the nodes that their statuses name."""
        for pod in {pod.uid: pod for pod in pods}.values():
            if pod.nominated_node is not None and self.takes(pod):
                kept = self.cluster.pod_groups.reservation_of(pod)
                self._state.nominate(pod, pod.nominated_node, reservation=kept)

    def _attempt_group(
        self, group: PodGroupState, members: list[Pod], profile: ActiveProfile
    ) -> Iterator[SimulatedAttempt]:
        pipeline, message = profile.pipeline, group.incomplete
        seed = self._what_if.seed_of(members[0])
        decision = GroupDecision({}, message=message or "")
        answers: ExtenderResults | None = None
        try:
            if message is None:
                answers = self._answers_about(members, pipeline)
                decision = place_group(
                    group,
                    members,
                    pipeline,
                    self.cache,
                    partial(self._assume_members, members, pipeline),
                    seed=seed,
                    answers=answers,
                )
            if self._preempts and decision.may_preempt and not decision.rows:
                decision = self._preempt_for_group(
                    group, members, pipeline, decision, seed, answers
                )
        except (PluginError, ExtenderError) as error:
            decision = GroupDecision({}, message=str(error))
        for pod in members:
            row = decision.rows.get(pod.uid)
            node = self._state.nodes.names[row] if row is not None else None
            yield self._member(pod, profile, node, decision)

    def _answers_about(self, members: list[Pod], pipeline: Pipeline) -> ExtenderResults | None:
        if self._call is None or not any(interested(pipeline, pod) for pod in members):
            return None
        answers = ExtenderResults()
        while needed := needed_about(members, pipeline, self.cache, answers):
            self._call(needed, pipeline, answers, self.cluster)
        return answers

    def _assume_members(
        self, members: list[Pod], pipeline: Pipeline, rows: Mapping[Uid, int], devices: Devices
    ) -> None:
        pods = {pod.uid: pod for pod in members}
        with ExitStack() as undo:
            for uid, row in rows.items():
                held = devices.get(uid)
                undo.enter_context(assume_and_reserve(pods[uid], row, pipeline, self._state, held))
            undo.pop_all()  # if Reserve fails, no member stays assumed
        for uid in rows:
            self._state.settle_claims(pods[uid])

    def _preempt_for_group(
        self,
        group: PodGroupState,
        members: list[Pod],
        pipeline: Pipeline,
        decision: GroupDecision,
        seed: int,
        answers: ExtenderResults | None,
    ) -> GroupDecision:
        answer = preempt_for_group(
            group,
            members,
            pipeline,
            self.cache,
            seed=seed,
            now=self._now,
            answers=answers,
        )
        if not isinstance(answer, GroupNomination):
            return decision.after(answer)
        for pod in members:
            if (node := answer.nodes.get(pod.uid)) is not None:
                self._nominate(pod, node, answer.victims)
        self._state.begin_evictions(members[0], answer.victims)
        self._victims[members[0].key] = tuple(map(PodRef.of, answer.victims))
        return decision.after(answer)

    def _member(
        self, pod: Pod, profile: ActiveProfile, node: str | None, decision: GroupDecision
    ) -> SimulatedAttempt:
        nominee = self._state.nominations.get(pod.uid) if node is None else None
        record = Decision(
            pod=PodRef.of(pod),
            profile=profile.profile.name,
            node=node,
            nominated_node=self._state.nodes.names[nominee.row] if nominee else None,
            victims=self._victims.get(pod.key, ()),
            scores=None,
            rejections={},
            message=decision.message if node is None else None,
        )
        reason = decision.cause or _REST.sub("", record.message or "")
        if node is not None:
            return SimulatedAttempt(record, 0, owner_of(pod), WITH_GROUP)
        return SimulatedAttempt(record, 0, owner_of(pod), reason, decision.plugins)

    def attempt(self, pod: Pod, profile: ActiveProfile) -> SimulatedAttempt:
        """Decide about the pod with this profile, and assume the pod on the chosen node.

        If no node fits, the pod is nominated to the node where preemption helps.
        """
        nominee = self._state.nominations.get(pod.uid)
        try:
            outcome = self._decide(pod, profile)
        except (PluginError, ExtenderError) as error:
            return _rejected(PodRef.of(pod), owner_of(pod), profile, str(error))
        decision = decision_of(pod, profile.pipeline, outcome, self._most)
        if isinstance(outcome, FitError):
            self._record(pod, outcome)
            if outcome.keeps_nomination:
                decision = replace(decision, nominated_node=pod.nominated_node)
            plugins = outcome.diagnosis.pre_filter_plugins
            return SimulatedAttempt(decision, 0, owner_of(pod), outcome.cause, plugins)
        try:
            assume_and_reserve(pod, outcome.row, profile.pipeline, self._state)
        except PodRejected as rejection:
            return _rejected(PodRef.of(pod), owner_of(pod), profile, rejection.message)
        except PluginError as error:
            return _rejected(PodRef.of(pod), owner_of(pod), profile, str(error))
        self._state.settle_claims(pod)
        if nominee is not None and nominee.row == outcome.row and outcome.scores is None:
            return SimulatedAttempt(decision, 0, owner_of(pod), _NOMINATED)
        return SimulatedAttempt(decision, outcome.feasible_nodes, owner_of(pod))

    def _decide(self, pod: Pod, profile: ActiveProfile) -> Outcome:
        pipeline = profile.pipeline
        if not self._preempts:
            pipeline = without_preemption(pipeline)
        extenders = interested(pipeline, pod)
        if self._call is None or not extenders:
            return self._what_if.decide(pod, pipeline)
        answers = ExtenderResults()
        known = answers.about(pod, preempts=any(e.preempt_verb for e in extenders))
        while isinstance(outcome := self._what_if.decide_with(pod, pipeline, known), Needed):
            self._call((outcome,), pipeline, answers, self.cluster)
        return outcome

    def _record(self, pod: Pod, outcome: FitError) -> None:
        if (nomination := outcome.nomination) is not None:
            self._nominate(pod, nomination.node, nomination.victims)
            self._state.begin_evictions(pod, nomination.victims)
        elif not outcome.keeps_nomination:
            self._state.withdraw(pod.uid)

    def _nominate(self, pod: Pod, node: str, victims: Iterable[Pod]) -> None:
        row = self._state.nodes.row_of.get(node)
        for lower in self._state.nominations.below(row, pod.spec.priority):
            self._state.withdraw(lower.uid)
        self._state.nominate(pod, node, victims=victims)


def _now(state: ClusterState, pending: Iterable[Pod]) -> float:
    # Seconds since the epoch, in place of the clock: the same input gives the same decisions.
    pods = (*(placed.pod for placed in state.pods), *pending)
    return max((max(pod.created, pod.started or 0.0) for pod in pods), default=0.0)


def _queued(pod: Pod, pipeline: Pipeline, *, ticket: int) -> QueuedPod:
    entered = pod.created or inf
    return QueuedPod(pod, pipeline, entered, entered, ticket=ticket, times=StateTimes(entered))


def why_not_queued(pod: Pod, pipeline: Pipeline) -> str | None:
    """Return why the pod would not enter the queue (also a plugin's error); None if it would."""
    try:
        return held_back(pod, pipeline)
    except PluginError as error:
        return str(error)


def _rejected(
    pod: PodRef, owner: str, profile: ActiveProfile | None, message: str
) -> SimulatedAttempt:
    return SimulatedAttempt(
        reason=message.removeprefix(f'pods "{pod.name}" is '),
        owner=owner,
        decision=Decision(
            pod=pod,
            profile=profile.profile.name if profile is not None else None,
            profile_generation=profile.profile.generation if profile is not None else 0,
            kubernetes_version=profile.pipeline.kubernetes.version if profile is not None else None,
            node=None,
            nominated_node=None,
            victims=(),
            scores=None,
            rejections={},
            message=message,
        ),
    )
