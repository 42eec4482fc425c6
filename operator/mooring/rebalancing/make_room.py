"""The goal MakeRoom: finds the fewest moves after which a waiting pod or group fits."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.extenders.verdicts import interested
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.verdicts import Unschedulable
from mooring.groups.search.group_decision import placements_of
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move, Step
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.room import RoomSearch
from mooring.scheduling.what_if import held_back

_FITS_GAIN: Final = 1_000
_MOST_PLACEMENTS: Final = 8
"""The most topology domains in which a plan tries to make room for a group."""


@dataclass(slots=True)
class MakingRoom:
    """Finds moves that make room for waiting pods and groups, one after the other."""

    planning: Planning
    said: str = ""
    """Why the last group, or some of its members, did not fit without moves; "" otherwise."""

    def for_pod(self, pod: Pod) -> bool:
        """Make room for the pod by moves if needed; return whether the pod fits on a node now.

        The room stays reserved for the pod in all later trials of the plan.
        """
        planning = self.planning
        if why_not(planning, pod):
            return False
        found = RoomSearch(planning).room(pod, planning.moves_left)
        if found is None:
            return False
        planning.make(found.moves)
        planning.place(pod, found.node)
        if found.moves:
            planning.accept(_step(found.moves, {pod: found.node}, f"pod {pod.key} fits then"))
        return True

    def for_group(self, group: PodGroupState) -> bool:
        """Make room for the group by moves if needed; return whether enough members fit now.

        The room stays reserved for these members in all later trials of the plan.
        """
        planning = self.planning
        members = [pod for pod in group.unscheduled.values() if not why_not(planning, pod)]
        if (short := group.short_of(members)) is not None or group.incomplete is not None:
            self.said = group.incomplete or f"{short} can be scheduled"
            return False
        decision = planning.group_decision(group, members)
        self.said = decision.message
        moves: tuple[Move, ...] | None = ()
        if not decision.rows:
            needed, _ = group.needed_of(members)
            moves = self._fewest_for(group, needed if group.roles else members, len(needed))
            if moves is None:
                return False
            mark = len(planning)
            planning.make(moves)
            decision = planning.group_decision(group, members)
            if not decision.rows:
                planning.back_to(mark)
                return False
        names = planning.cluster.node_names
        nodes = {uid: names[row] for uid, row in decision.rows.items()}
        fitting = {pod: nodes[pod.uid] for pod in members if pod.uid in nodes}
        for pod, node in fitting.items():
            planning.place(pod, node)
        if moves:
            step = _step(moves, fitting, f"group {group.key} fits then")
            planning.accept(step)
        return True

    def _fewest_for(
        self, group: PodGroupState, members: Sequence[Pod], needed: int
    ) -> tuple[Move, ...] | None:
        """Return the fewest moves after which `needed` members fit into one topology domain."""
        planning, best = self.planning, None
        placements = placements_of(group, planning.pipeline, planning.cluster)
        if isinstance(placements, Unschedulable):
            return None
        names = planning.cluster.node_names
        allowed = [
            None if not each.key else frozenset(names[row] for row in each.rows.tolist())
            for each in placements[:_MOST_PLACEMENTS]
        ]
        for nodes in allowed:
            most = planning.moves_left if best is None else len(best) - 1
            found = self._for_members(members, needed, nodes, most)
            if found is not None:
                best = found
        return best

    def _for_members(
        self, members: Sequence[Pod], needed: int, nodes: Collection[str] | None, most: int
    ) -> tuple[Move, ...] | None:
        """Return up to `most` moves after which `needed` members fit on `nodes`, or None."""
        planning, moves = self.planning, list[Move]()
        mark, fitting = len(planning), 0
        for pod in sorted(members, key=lambda pod: (-planning.share_of(pod), pod.uid)):
            found = RoomSearch(planning).room(pod, most - len(moves), nodes)
            if found is None:
                continue
            planning.make(found.moves)
            planning.add(pod, found.node)
            moves += found.moves
            fitting += 1
            if fitting == needed:
                break
        planning.back_to(mark)
        return tuple(moves) if fitting == needed else None


def why_not(planning: Planning, pod: Pod) -> str:
    """Return why the plan must not make room for this pod; "" if the plan may."""
    if (why := held_back(pod, planning.pipeline)) is not None:
        return why
    if interested(planning.pipeline, pod):
        return "an extender is asked about it, and plans ask no extender"
    if planning.cluster.is_placed(pod):
        return "it is on a node"
    if planning.cluster.nominations.get(pod.uid) is not None:
        return "it is nominated to a node, which others are leaving"
    return ""


def _step(moves: Sequence[Move], fits: Mapping[Pod, str], text: str) -> Step:
    refs = tuple(map(PodRef.of, fits))
    return Step(
        Goal.MAKE_ROOM,
        tuple(moves),
        TextAboutPods(text, refs, "pods that wait fit then"),
        _FITS_GAIN * len(fits),
        fits=refs,
        nodes=tuple(fits.values()),
    )
