"""The engine without a cluster: every pending pod decided once, each on top of the last."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NoReturn

from mooring.engine.binding import PodRejected, assume_and_reserve
from mooring.engine.cycle import decide, tie_break_seed
from mooring.engine.order import QueueOrder
from mooring.engine.outcome import FitError, Outcome, decision_of
from mooring.engine.profiles import InForce, Profiles
from mooring.engine.result_cache import ResultCache
from mooring.framework.decision import Decision
from mooring.framework.handle import Handle
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.registry import Registry
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.resolve import resolve
from mooring.queueing.active import ActivePods
from mooring.simulate.inputs import Inputs
from mooring.simulate.policies import Policy
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot

__all__ = [
    "Attempt",
    "OfflineApi",
    "simulate",
]

_FIRST_ATTEMPT: Final = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of one pod; `feasible` counts the nodes among which it had the choice."""

    decision: Decision
    feasible: int = 0


def simulate(
    inputs: Inputs, registry: Registry, *, seed: int, every_node: bool
) -> Iterator[Attempt]:
    """One attempt per pending pod in queue order; gated pods come last, in the input's order.

    The state of `inputs` is used up. A placed pod stays where it is put. The victims of a
    preemption stay too, because in a cluster they would leave only after their grace period, but
    the room they will leave is kept. Permit is not asked: there is nobody to wait for.

    Args:
        inputs: The cluster, the pods and their policies; without any policy, upstream's defaults.
        registry: The plugins that policies may name.
        seed: Chooses among equally good nodes, together with the pod's uid.
        every_node: Whether records list all nodes, or only the score of the best.
    """
    return _Simulation(inputs, registry, seed, every_node=every_node).attempts(inputs.pending)


class _Simulation:
    def __init__(self, inputs: Inputs, registry: Registry, seed: int, *, every_node: bool) -> None:
        self._state = inputs.state
        self._cluster = Snapshot(inputs.state)
        self._shared = ResultCache(inputs.state.nodes)
        self._seed = seed
        self._most = None if every_node else 1
        self._start = 0
        self._now = _now(inputs.state, inputs.pending)
        handle = Handle(self._cluster, WaitingPods(), OfflineApi(), inputs.state)
        self._profiles = Profiles(registry, handle)
        for policy in inputs.policies or (_default_policy(registry),):
            self._profiles.put(policy.profile, policy.effective)

    def attempts(self, pods: Iterable[Pod]) -> Iterator[Attempt]:
        active = ActivePods(QueueOrder(self._profiles, self._cluster).of)
        chosen: list[InForce] = []
        held: list[Attempt] = []
        for pod in pods:
            profile = self._profiles.of(pod, self._cluster)
            if profile is None:
                name = pod.shape.scheduler_name
                held.append(
                    _rejected(pod, None, f'no profile takes pods of schedulerName "{name}"')
                )
                continue
            if pod.nominated_node is not None:
                self._state.nominate(pod, pod.nominated_node)
            gate = _gate(pod, profile)
            if gate is not None:
                held.append(_rejected(pod, profile, gate.reason))
            else:
                active.add(_queued(pod, ticket=len(chosen)))
                chosen.append(profile)
        while (queued := active.pop()) is not None:
            yield self._attempt(queued.pod, chosen[queued.ticket])
        yield from held

    def _attempt(self, pod: Pod, profile: InForce) -> Attempt:
        try:
            outcome = self._decide(pod, profile)
        except PluginError as error:
            return _rejected(pod, profile, str(error))
        decision = decision_of(pod, profile.profile.name, outcome, self._most)
        if isinstance(outcome, FitError):
            self._remember(pod, outcome)
            return Attempt(decision)
        self._start = (self._start + outcome.evaluated_nodes) % self._cluster.node_count
        try:
            assume_and_reserve(
                pod, outcome.row, profile.pipeline, self._state, changed=_nobody_waits
            )
        except PodRejected as rejection:
            return _rejected(pod, profile, rejection.message)
        return Attempt(decision, outcome.feasible_nodes)

    def _decide(self, pod: Pod, profile: InForce) -> Outcome:
        return decide(
            pod,
            profile.pipeline,
            self._cluster,
            self._shared,
            seed=tie_break_seed(pod.uid, _FIRST_ATTEMPT, self._seed),
            start=self._start,
            now=self._now,
        )

    def _remember(self, pod: Pod, outcome: FitError) -> None:
        """Later pods leave the room that is to be made for this one, and respect its evictions."""
        state, plan = self._state, outcome.nomination
        if plan is None:
            if not outcome.keeps_nomination:
                state.withdraw(pod.key)
            return
        row = state.nodes.row_of.get(plan.node)
        for lower in state.nominations.below(row, pod.shape.priority):
            state.withdraw(lower.key)
        state.nominate(pod, plan.node)
        state.evictions.begun(pod, plan.victims)


def _now(state: ClusterState, pending: Iterable[Pod]) -> float:
    """The latest moment the input speaks of (seconds since the epoch): a clock would be input too.

    How long a pod has run, which profiles may ask before preempting it, is counted up to then.
    """
    pods = (*(placed.pod for placed in state.pods), *pending)
    return max((max(pod.created, pod.started or 0.0) for pod in pods), default=0.0)


def _default_policy(registry: Registry) -> Policy:
    spec = SchedulingProfileSpec()
    return Policy(SchedulingProfile(DEFAULT_SCHEDULER, spec), resolve(spec, registry))


def _nobody_waits(_changes: tuple[ClusterEvent, ...]) -> None:
    """Every pod has one attempt, so that no change brings one back."""


def _queued(pod: Pod, *, ticket: int) -> QueuedPod:
    """The pod as if it had been queued when it was made; one that was never stored, after those."""
    entered = pod.created or inf
    return QueuedPod(pod, first_seen=entered, since=entered, ticket=ticket)


def _gate(pod: Pod, profile: InForce) -> Unschedulable | None:
    answers = (plugin.pre_enqueue(pod) for plugin in profile.pipeline.pre_enqueue)
    return next((answer for answer in answers if answer is not None), None)


def _rejected(pod: Pod, profile: InForce | None, message: str) -> Attempt:
    return Attempt(
        Decision(
            pod=pod.key,
            profile=profile.profile.name if profile is not None else None,
            node=None,
            nominated_node=None,
            victims=(),
            scores=None,
            rejections={},
            message=message,
        )
    )


class OfflineApi:
    """Satisfies `mooring.framework.handle.Api` and rejects everything.

    A simulation ends with the place a pod gets, and a plugin that writes before that breaks its
    protocol.
    """

    async def bind(self, _pod: Pod, _node: str) -> None:
        """Nothing is bound in a simulation."""
        _refuse()

    def annotate(self, _pod: Pod, annotations: Mapping[str, str]) -> None:
        """Nothing is written in a simulation; taking annotations back changes nothing."""
        if annotations:
            _refuse()

    def unix_nanoseconds(self) -> int:
        """There is no time in a simulation."""
        _refuse()

    async def patch(
        self, _resource: str, _namespace: str | None, _name: str, _patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Nothing is written in a simulation."""
        _refuse()

    async def until(self, _done: Callable[[], bool], _seconds: float) -> None:
        """Nothing happens in a simulation, so nothing can be waited for."""
        _refuse()


def _refuse() -> NoReturn:
    raise PluginError("a simulation has no API server")
