"""Plans which running pods of files or of a live cluster to move, and to which nodes.

Nothing is written. First the pending pods that fit are placed, as the scheduler would do. Then
plans can make room for the other pending pods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mooring.framework.decision import PodRef
from mooring.framework.registry import Registry
from mooring.groups.model.pod_group import GroupKey
from mooring.groups.search.members import group_of
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.model.wording import plural
from mooring.policy.profile_errors import did_you_mean
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.plan import Plan
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.planner import make_plan
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.simulate.inputs import Inputs
from mooring.simulate.manifests import InputError
from mooring.simulate.simulation import SimulatedAttempt, Simulation, why_not_queued
from mooring.state.cluster_view import ClusterView

USUAL_GOALS: Final = (Goal.VIOLATIONS, Goal.SPREAD)
"""The goals if no profile has goals."""
_MOST_STEPS: Final = 10_000_000
"""The most decisions of a plan; the number is high because no pods wait for the command."""
_MOST_NAMED: Final = 3

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class PlannedProfile:
    """The plan of one profile, and the section `rebalancing` for which it was made."""

    profile: str
    section: Rebalancing
    plan: Plan


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod or pod group that should fit after the moves; `namespace` None: any namespace."""

    name: str
    namespace: str | None = None
    is_group: bool = False

    def __str__(self) -> str:
        kind = "podgroup" if self.is_group else "pod"
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """The result for a pod or pod group.

    Attributes:
        wanted: The pod or group, with its namespace.
        message: A sentence that says whether the pod or group fits, or why it does not.
        fits: Whether the pod or group fits, after the plan if there is one.
        planned: The plan; it has no steps if no moves were found. None if no plan was made.
    """

    wanted: Wanted
    message: str
    fits: bool
    planned: PlannedProfile | None = None


class Rebalance:
    """Makes plans on the state of `inputs`; changes this state by placing pending pods that fit.

    `goals`, if any, replace the profiles' goals. `now` is in seconds since the epoch. The other
    arguments are those of `simulate`.
    """

    def __init__(
        self,
        inputs: Inputs,
        registry: Registry,
        *,
        goals: Sequence[Goal] = (),
        profile: str | None = None,
        now: float,
        seed: int = 0,
    ) -> None:
        self._inputs = inputs
        self._goals = tuple(goals)
        self._now = now
        self._seed = seed
        self._simulation = Simulation(inputs, registry, seed=seed, profile=profile, preempts=False)
        self._attempts: dict[Uid, SimulatedAttempt] = {}
        self._waiting: list[Pod] = []
        """The queued pods that got no node, in the order of their attempts."""

    @property
    def cluster(self) -> ClusterView:
        """The state on which plans are made."""
        return self._simulation.cluster

    def place_pending(self) -> Iterator[SimulatedAttempt]:
        """Place pending pods and yield the attempts; call this once, before making plans."""
        named = {pod.uid: pod for pod in self._inputs.pending}
        for attempt in self._simulation.attempts(self._inputs.pending):
            pod = named[attempt.decision.pod.uid]
            self._attempts[pod.uid] = attempt
            profile = self._simulation.profile_of(pod)
            if (
                attempt.decision.node is None
                and profile
                and why_not_queued(pod, profile.pipeline) is None
            ):
                self._waiting.append(pod)
            yield attempt

    @property
    def placed(self) -> int:
        """The number of pending pods that fit without any move."""
        return sum(each.decision.node is not None for each in self._attempts.values())

    def profiles(self) -> list[tuple[ActiveProfile, Rebalancing]]:
        """Return the profiles that have a section `rebalancing`; if none has it, all profiles."""
        known = self._simulation.profiles
        chosen = [entry for entry in known if entry.profile.spec.rebalancing is not None]
        return [(entry, self._section(entry)) for entry in chosen or known]

    def plan(self, entry: ActiveProfile, section: Rebalancing) -> PlannedProfile:
        """Return the plan of the profile for the goals of `section`."""
        plan = self._plan(entry, section)
        return PlannedProfile(entry.profile.name, section, plan)

    def plan_for(self, wanted: Wanted) -> WantedPlan:
        """Plan the fewest moves after which the pod or group fits without preemption.

        The plan for a member of a group is for the whole group. Raises InputError if the name is
        unknown or not unique.
        """
        if wanted.is_group:
            return self._plan_for_group(wanted)
        return self._plan_for_pod(wanted)

    def _section(self, entry: ActiveProfile) -> Rebalancing:
        section = entry.profile.spec.rebalancing
        if section is None:
            section = Rebalancing(goals=USUAL_GOALS)
        return section.model_copy(update={"goals": self._goals}) if self._goals else section

    def _plan(
        self,
        entry: ActiveProfile,
        section: Rebalancing,
        only_for: PodRef | GroupKey | None = None,
    ) -> Plan:
        simulation = self._simulation
        is_shadow = entry.profile.spec.mode == "Shadow"
        of = simulation.shadow_of if is_shadow else simulation.profile_of
        planning = Planning(
            ResultCache(self.cluster),
            entry.pipeline,
            section,
            # Pods that were pending do not run, and nobody moves them.
            lambda pod: pod.uid not in self._attempts and of(pod) is entry,
            now=lambda: self._now,
            budget=SearchBudget(_MOST_STEPS),
            pending=[pod for pod in self._waiting if simulation.profile_of(pod) is entry],
            salt=self._seed,
        )
        return make_plan(planning, only_for=only_for)

    def _plan_for_pod(self, wanted: Wanted) -> WantedPlan:
        pod = self._pod_named(wanted)
        wanted = Wanted(pod.name, pod.namespace)
        if pod.node_name is not None:
            return WantedPlan(wanted, f"{wanted} runs on {pod.node_name} already", fits=True)
        attempt, profile = self._attempts[pod.uid], self._simulation.profile_of(pod)
        if (node := attempt.decision.node) is not None:
            return WantedPlan(
                wanted, f"{wanted} fits on {node} already: no pod has to move", fits=True
            )
        message = attempt.decision.message or ""
        if profile is None or why_not_queued(pod, profile.pipeline) is not None:
            return WantedPlan(wanted, f"{wanted} waits for something else: {message}", fits=False)
        group = group_of(pod, profile.pipeline, self.cluster)
        if group is not None:
            whole = Wanted(group.key.name, group.key.namespace, is_group=True)
            return self._plan_for_group(whole)
        return self._planned(wanted, PodRef.of(pod), profile, message)

    def _plan_for_group(self, wanted: Wanted) -> WantedPlan:
        group = self._group_named(wanted)
        wanted = Wanted(group.key.name, group.key.namespace, is_group=True)
        waiting = [self._attempts[uid] for uid in group.unscheduled if uid in self._attempts]
        without = [each for each in waiting if each.decision.node is None]
        if not without:
            how = "fits" if waiting or group.assumed else "runs"
            return WantedPlan(wanted, f"{wanted} {how} already: no pod has to move", fits=True)
        message = without[0].decision.message or ""
        pod = next(pod for uid, pod in group.unscheduled.items() if uid in self._attempts)
        profile = self._simulation.profile_of(pod)
        held = (
            None if profile is None else (why_not_queued(pod, profile.pipeline) or group.incomplete)
        )
        if profile is None or held is not None:
            return WantedPlan(wanted, f"{wanted} waits for something else: {message}", fits=False)
        return self._planned(wanted, group.key, profile, message)

    def _planned(
        self, wanted: Wanted, key: PodRef | GroupKey, profile: ActiveProfile, message: str
    ) -> WantedPlan:
        section = self._section(profile).model_copy(update={"goals": (Goal.MAKE_ROOM,)})
        plan = self._plan(profile, section, key)
        planned = PlannedProfile(profile.profile.name, section, plan)
        if not plan.steps:
            within = " before the decisions that a plan may cost were spent" if plan.spent else ""
            text = f"no moves of running pods were found that make {wanted} fit{within}: {message}"
            return WantedPlan(wanted, text, planned=planned, fits=False)
        moves = len(plan.moves)
        text = f"{wanted} fits after {plural(moves, 'move')}, and nothing is preempted"
        return WantedPlan(wanted, text, planned=planned, fits=True)

    def _pod_named(self, wanted: Wanted) -> Pod:
        placed = (each.pod for each in self._inputs.state.pods if each.pod.node_name is not None)
        # A pending pod that was placed here is in both: as it came, it counts.
        known = [*placed, *self._inputs.pending]
        found = [pod for pod in known if _is(wanted, pod.namespace, pod.name)]
        return _only(wanted, {pod.namespace: pod for pod in found}, [p.name for p in known])

    def _group_named(self, wanted: Wanted) -> PodGroupState:
        known = [*self.cluster.pod_groups]
        found = [each for each in known if _is(wanted, each.key.namespace, each.key.name)]
        # Several sources may name a group alike; one that waits comes last, and counts.
        found.sort(key=lambda each: bool(each.unscheduled))
        by_namespace = {group.key.namespace: group for group in found}
        chosen: PodGroupState = _only(wanted, by_namespace, [group.key.name for group in known])
        return chosen


def _is(wanted: Wanted, namespace: str, name: str) -> bool:
    return name == wanted.name and wanted.namespace in (None, namespace)


def _only(wanted: Wanted, found: dict[str, _Found], names: Sequence[str]) -> _Found:
    if not found:
        meant = did_you_mean(wanted.name, names) or " among the objects that were read"
        raise InputError(f"there is no {wanted}{meant}")
    if len(found) > 1:
        first = ", ".join(sorted(found)[:_MOST_NAMED])
        raise InputError(f"there are {len(found)} of {wanted}, in {first}: choose one with -n")
    (only,) = found.values()
    return only
