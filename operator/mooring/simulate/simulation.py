"""Run the scheduling engine without a cluster: one decision for every pending pod."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from mooring.engine.binding import PodRejected, assume_and_reserve
from mooring.engine.cycle import decide, tie_break_seed
from mooring.engine.extenders.answers import interested
from mooring.engine.extenders.client import ExtenderError
from mooring.engine.outcome import FitError, Outcome, decision_of
from mooring.engine.profiles import InForce, Profiles
from mooring.engine.result_cache import ResultCache
from mooring.framework.decision import Decision
from mooring.framework.pipeline import Pipeline
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.registry import Registry
from mooring.framework.runtime import run_pre_enqueue
from mooring.framework.verdicts import PluginError
from mooring.model.pod import Pod
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.resolve import resolve
from mooring.queueing.active import ActivePods
from mooring.simulate.extenders import ExtenderCalls, calling_extenders
from mooring.simulate.inputs import Inputs
from mooring.simulate.offline import offline_handle
from mooring.simulate.profiles import LoadedProfile
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot

__all__ = ["Attempt", "simulate"]

_FIRST_ATTEMPT: Final = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """The decision about one pod, and the number of nodes that passed all filters."""

    decision: Decision
    feasible: int = 0


def simulate(
    inputs: Inputs, registry: Registry, *, seed: int, every_node: bool, extenders: bool = False
) -> Iterator[Attempt]:
    """Yield one attempt per pending pod, in queue order, then those that are gated or rejected.

    The simulation changes the state of `inputs`: a scheduled pod counts on its node for all later
    pods. The victims of a preemption stay on their node, because in a cluster they leave only
    after their grace period; the node is nominated, so later pods of lower or equal priority do
    not get the victims' resources. Permit plugins do not run, because no pod can wait.

    Args:
        inputs: The cluster, the pods and the profiles. Without any profile, one with
            kube-scheduler's defaults applies.
        registry: The plugins that profiles may name.
        seed: Chooses among nodes of equal score, together with the pod's uid.
        every_node: Whether decisions list all nodes, or only the score of the best node.
        extenders: Whether to call the extenders of the profiles; they filter, score and preempt,
            but do not bind. Without that, decisions are made as if there were none. The inputs must
            have kept their raw objects.
    """
    simulation = _Simulation(inputs, registry, seed, every_node=every_node)
    return simulation.attempts_with_extenders() if extenders else simulation.attempts()


class _Simulation:
    def __init__(self, inputs: Inputs, registry: Registry, seed: int, *, every_node: bool) -> None:
        self._inputs = inputs
        self._state = inputs.state
        self._cluster = Snapshot(inputs.state)
        self._shared = ResultCache(inputs.state.nodes)
        self._seed = seed
        self._most = None if every_node else 1
        self._start = 0
        self._now = _now(inputs.state, inputs.pending)
        self._profiles = Profiles(registry, offline_handle(inputs.state))
        for loaded in inputs.profiles or (_default_profile(registry),):
            self._profiles.put(loaded.profile, loaded.effective)
        inputs.state.track_pod_groups(self._profiles.pod_group_formats)
        for pod in inputs.pending:
            inputs.state.put_unscheduled(pod)
        self._extenders: ExtenderCalls | None = None

    def attempts_with_extenders(self) -> Iterator[Attempt]:
        with calling_extenders(self._inputs) as self._extenders:
            yield from self.attempts()

    def attempts(self) -> Iterator[Attempt]:
        active = ActivePods()
        chosen: list[InForce] = []
        rejected = [_rejected(each.pod, None, each.message) for each in self._inputs.rejected]
        for pod in self._inputs.pending:
            profile = self._profiles.of(pod, self._cluster)
            if profile is None:
                name = pod.shape.scheduler_name
                rejected.append(
                    _rejected(pod.key, None, f'no profile takes pods of schedulerName "{name}"')
                )
                continue
            if pod.nominated_node is not None:
                self._state.nominate(pod, pod.nominated_node)
            gate = _gate(pod, profile)
            if gate is not None:
                rejected.append(_rejected(pod.key, profile, gate))
            else:
                active.add(_queued(pod, profile.pipeline, ticket=len(chosen)))
                chosen.append(profile)
        while (queued := active.pop()) is not None:
            yield self._attempt(queued.pod, chosen[queued.ticket])
        yield from rejected

    def _attempt(self, pod: Pod, profile: InForce) -> Attempt:
        try:
            outcome = self._decide(pod, profile)
        except (PluginError, ExtenderError) as error:
            return _rejected(pod.key, profile, str(error))
        decision = decision_of(pod, profile.profile.name, outcome, self._most)
        if isinstance(outcome, FitError):
            self._nominate(pod, outcome)
            return Attempt(decision)
        self._start = (self._start + outcome.evaluated_nodes) % self._cluster.node_count
        try:
            assume_and_reserve(pod, outcome.row, profile.pipeline, self._state)
        except PodRejected as rejection:
            return _rejected(pod.key, profile, rejection.message)
        except PluginError as error:
            return _rejected(pod.key, profile, str(error))
        return Attempt(decision, outcome.feasible_nodes)

    def _decide(self, pod: Pod, profile: InForce) -> Outcome:
        decided = partial(
            decide,
            pod,
            profile.pipeline,
            self._cluster,
            self._shared,
            seed=tie_break_seed(pod.uid, _FIRST_ATTEMPT, self._seed),
            start=self._start,
            now=self._now,
        )
        extenders = interested(profile.pipeline, pod)
        if self._extenders is None or not extenders:
            return decided()
        return self._extenders.decided(decided, extenders, pod, self._cluster)

    def _nominate(self, pod: Pod, outcome: FitError) -> None:
        """Record the pod's nomination and the evictions it needs, so that later pods see them."""
        state, nomination = self._state, outcome.nomination
        if nomination is None:
            if not outcome.keeps_nomination:
                state.withdraw(pod.key)
            return
        row = state.nodes.row_of.get(nomination.node)
        for lower in state.nominations.below(row, pod.shape.priority):
            state.withdraw(lower.key)
        state.nominate(pod, nomination.node)
        state.begin_evictions(pod, nomination.victims)


def _now(state: ClusterState, pending: Iterable[Pod]) -> float:
    """The latest creation or start time of all pods, in seconds since the epoch.

    It takes the place of a clock, so that the same input gives the same decisions. How long a pod
    has run (`minRuntimeSeconds` of a profile) is counted up to this time.
    """
    pods = (*(placed.pod for placed in state.pods), *pending)
    return max((max(pod.created, pod.started or 0.0) for pod in pods), default=0.0)


def _default_profile(registry: Registry) -> LoadedProfile:
    spec = SchedulingProfileSpec()
    return LoadedProfile(SchedulingProfile(DEFAULT_SCHEDULER, spec), resolve(spec, registry))


def _queued(pod: Pod, pipeline: Pipeline, *, ticket: int) -> QueuedPod:
    """The pod as if it had been queued when it was made; one that was never stored, after those."""
    entered = pod.created or inf
    return QueuedPod(pod, pipeline, entered, entered, ticket=ticket)


def _gate(pod: Pod, profile: InForce) -> str | None:
    """Why a PreEnqueue plugin holds the pod back, or how it fails; None if none does."""
    pipeline = profile.pipeline
    try:
        answers = (run_pre_enqueue(pipeline, plugin, pod) for plugin in pipeline.pre_enqueue)
        return next((answer.reason for answer in answers if answer is not None), None)
    except PluginError as error:
        return str(error)


def _rejected(pod: str, profile: InForce | None, message: str) -> Attempt:
    return Attempt(
        Decision(
            pod=pod,
            profile=profile.profile.name if profile is not None else None,
            node=None,
            nominated_node=None,
            victims=(),
            scores=None,
            rejections={},
            message=message,
        )
    )
