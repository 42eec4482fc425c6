"""Plans which running pods of one profile to move.

The planner changes nothing. It makes each move in a trial on the live state, in which all moves
before it are made, by the decision that the profile would make today. It leaves out PostFilter,
because plans preempt nobody; pods that an extender cares for, because it calls none; and nodes that
are cordoned, not ready or tainted by the node controller, because drains move their pods.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from mooring.engine.groups.budget import SearchBudget
from mooring.engine.profiles import ActiveProfile
from mooring.engine.rebalancing.alike import AlikePods, alike_pods
from mooring.engine.rebalancing.improving import Candidate, find, improve
from mooring.engine.rebalancing.making_room import MakingRoom, why_not
from mooring.engine.rebalancing.packing import pack
from mooring.engine.rebalancing.plan import Plan, Why
from mooring.engine.rebalancing.planning import Planning
from mooring.engine.rebalancing.replaying import in_order
from mooring.engine.rebalancing.trial import PlanTrial
from mooring.engine.rebalancing.whole_groups import move_groups
from mooring.engine.result_cache import ResultCache
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod
from mooring.model.pod_group import GroupKey
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.state.cluster_view import ClusterView

__all__ = ["Planner", "TakesPods"]


class TakesPods(Protocol):
    """Says which profile takes a pod, as `Profiles` does."""

    def of(self, pod: Pod, cluster: ClusterView) -> ActiveProfile | None:
        """Return the profile that decides about the pod; None if there is none."""

    def shadow_of(self, pod: Pod, cluster: ClusterView) -> ActiveProfile | None:
        """Return the profile in mode Shadow that takes the pod; None if there is none."""


_NO_ROOM: Final = "does not fit, and no moves were found that make room for it"
_NO_PODS: Final = "no running pod is of this profile"
_PART_FOR_MOVES: Final = 3
_ONE_BY_ONE: Final = frozenset((Goal.VIOLATIONS, Goal.SPREAD))


class Planner:
    """Makes one plan of one profile.

    Args:
        cluster: The live state.
        cache: Results of decisions. It should serve nothing else, because plans look at all nodes.
        entry: The profile, which takes the pods that may be moved. In mode Shadow these are the
            pods of other schedulers that it decides about for comparison.
        profiles: Say which profile takes a pod.
        section: The profile's section `rebalancing`, or another.
        now: Returns the time since the epoch, in seconds.
        budget: What the plan may cost, in decisions about one pod. What is not
            looked at therefore is looked at first in a plan from `Plan.position`.
        pending: The unschedulable pods of the profile, those with the highest priority first.
        resting: The uids of pods that are left alone because they are replacements of pods that
            were moved lately; or of controllers, all of whose pods are left alone.
        salt: Chooses among nodes of equal score, together with the pod's uid.
        position: Where the last plan has ended.
    """

    def __init__(
        self,
        cluster: ClusterView,
        cache: ResultCache,
        entry: ActiveProfile,
        profiles: TakesPods,
        section: Rebalancing,
        *,
        now: Callable[[], float],
        budget: SearchBudget,
        pending: Sequence[Pod] = (),
        resting: Collection[str] = frozenset(),
        salt: int = 0,
        position: int = 0,
    ) -> None:
        trial = PlanTrial(
            cluster,
            cache,
            entry.pipeline,
            section,
            now=now,
            budget=budget,
            resting=resting,
            salt=salt,
        )
        self._planning = Planning(trial, self._takes)
        self._cluster = cluster
        self._entry = entry
        self._profiles = profiles
        self._pending = pending
        self._position = position

    def plan(self, only_for: PodRef | GroupKey | None = None) -> Plan:
        """Return the plan; with `only_for` the one with the fewest moves that makes this pod fit.

        That is a pod or a group that waits. Nothing else is planned then, and nobody is preempted.
        """
        planning, pods, examined, left_out = self._planning, 0, None, False
        with planning.trial.undone():
            if only_for is not None:
                message = self._room_for(only_for)
            else:
                classes = alike_pods(self._takes, self._cluster)
                self._steps(classes)
                pods, examined = sum(len(alike.pods) for alike in classes), self._examined(classes)
                left_out = examined is not None and examined < pods and planning.moves_left > 0
                message = "" if pods else _NO_PODS
            spent = planning.budget.spent or left_out
            steps = in_order(planning)
        return Plan(
            steps=tuple(steps),
            pods=pods,
            examined=examined,
            refused=planning.refused,
            message="" if steps else message,
            spent=spent,
            position=self._position,
        )

    def _examined(self, classes: Sequence[AlikePods]) -> int | None:
        """Return how many of the pods were looked at; None if the goals ask for no such look."""
        planning = self._planning
        if _ONE_BY_ONE.isdisjoint(planning.section.goals):
            return None
        return sum(pod.uid in planning.looked_at for alike in classes for pod in alike.pods)

    def _steps(self, classes: Sequence[AlikePods]) -> None:
        """Add steps for all goals."""
        planning = self._planning
        goals = set(planning.section.goals)
        if Goal.MAKE_ROOM in goals:
            self._make_room()
        if Goal.VIOLATIONS in goals and planning.section.pods.groups == "Whole":
            move_groups(planning)
        if not _ONE_BY_ONE.isdisjoint(goals):
            self._improve(classes)
        if Goal.PACK in goals:  # last, because pods that leave their nodes may fill empty ones
            pack(planning)

    def _make_room(self) -> None:
        """Make room for the pods and groups that wait, in the order of their priorities."""
        room, groups = MakingRoom(self._planning), set[GroupKey]()
        for pod in self._pending:
            if self._planning.done:
                return
            group = self._cluster.pod_groups.of(pod)
            if group is None:
                room.for_pod(pod)
            elif group.key not in groups:
                groups.add(group.key)
                room.for_group(group)

    def _room_for(self, wanted: PodRef | GroupKey) -> Why:
        """Make room for one pod or group; return why there is no step, "" if there is one."""
        planning = self._planning
        room = MakingRoom(planning)
        if isinstance(wanted, GroupKey):
            group = self._cluster.pod_groups.get(wanted)
            if group is None:
                return f"group {wanted} is not known"
            fits = room.for_group(group)
            name, refs = f"group {wanted}", tuple(map(PodRef.of, group.unscheduled.values()))
        else:
            pod = next((pod for pod in self._pending if _is(pod, wanted)), None)
            if pod is None:
                return TextAboutPods(
                    f"pod {wanted.key} does not wait", (wanted,), "it does not wait"
                )
            if why := why_not(planning, pod):
                return TextAboutPods(f"pod {pod.key}: {why}", (wanted,), why)
            fits = room.for_pod(pod)
            name, refs = f"pod {pod.key}", (PodRef.of(pod),)
        if planning.steps:
            return ""
        why = "fits without any move" if fits else _NO_ROOM
        if not fits and room.said:
            why = f"{why}: {room.said}"
        return TextAboutPods(f"{name} {why}", refs, f"it {why}")

    def _improve(self, classes: Sequence[AlikePods]) -> None:
        """Move pods one by one until a look at all finds none, or the plan may be no longer."""
        planning = self._planning
        while not planning.done:
            before = len(planning.steps)
            candidates = self._candidates(classes)
            improve(planning, candidates)
            if len(planning.steps) == before:
                return

    def _candidates(self, classes: Sequence[AlikePods]) -> list[Candidate]:
        """Return who may gain; begin where the last plan has ended, and note where this one has."""
        planning, found = self._planning, list[Candidate]()
        # The rest of the budget is for the moves.
        least = planning.budget.remaining // _PART_FOR_MOVES
        start = next((n for n, each in enumerate(classes) if each.position > self._position), 0)
        for alike in (*classes[start:], *classes[:start]):
            if planning.budget.remaining <= least:
                break
            found += find(planning, alike)
            self._position = alike.position
        return found

    def _takes(self, pod: Pod) -> bool:
        """Return whether the pod is of the profile."""
        entry, profiles = self._entry, self._profiles
        is_shadow = entry.profile.spec.mode == "Shadow"
        of = (
            profiles.shadow_of(pod, self._cluster) if is_shadow else profiles.of(pod, self._cluster)
        )
        return of is not None and of.profile.name == entry.profile.name


def _is(pod: Pod, wanted: PodRef) -> bool:
    return pod.key == wanted.key and wanted.uid in ("", pod.uid)
