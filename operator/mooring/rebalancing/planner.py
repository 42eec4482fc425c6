"""Plans which running pods of one profile to move.

The planner changes nothing: it makes its moves in a trial on the live state. Each move is the
decision that the profile would make today, but without preemption. Pods in which an extender is
interested are left out, and so are nodes that a drain or the node controller empties. At the end
all steps are made again, in their final order.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.plugin_failures import PluginFailed
from mooring.groups.model.pod_group import GroupKey
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.improvement import (
    VIOLATION_GAIN,
    EqualPods,
    GainingPod,
    alike_pods,
    find,
    improve,
    improvement,
)
from mooring.rebalancing.make_room import MakingRoom, why_not
from mooring.rebalancing.pack_nodes import pack
from mooring.rebalancing.plan import Move, Plan, Step, Why
from mooring.rebalancing.plan_state import NOWHERE_ELSE, Planning
from mooring.scheduling.profiles_in_force import ActiveProfile, Profiles
from mooring.state.cluster_view import ClusterView

_NO_ROOM: Final = "does not fit, and no moves were found that make room for it"
_NO_PODS: Final = "no running pod is of this profile"
_PART_FOR_MOVES: Final = 3
_ONE_BY_ONE: Final = frozenset((Goal.VIOLATIONS, Goal.SPREAD))
_BUDGET: Final = "is in a group whose disruption budgets do not allow to evict all members"
_NOT_WHOLE: Final = "is in a group of which not all members are on nodes"


def takes_of(
    profiles: Profiles, entry: ActiveProfile, cluster: ClusterView
) -> Callable[[Pod], bool]:
    """Return a function that says whether the profile `entry` decides about a pod.

    A profile in mode Shadow decides about pods of other schedulers, for comparison.
    """
    of = profiles.shadow_of if entry.profile.spec.mode == "Shadow" else profiles.of

    def takes(pod: Pod) -> bool:
        found = of(pod, cluster)
        return found is not None and found.profile.name == entry.profile.name

    return takes


def make_plan(planning: Planning, *, only_for: PodRef | GroupKey | None = None) -> Plan:
    """Return a plan of moves; `planning` must not have any change yet.

    If `only_for` is given, the plan has only the fewest moves that make room for this pending pod
    or group.
    """
    pods, examined, left_out = 0, None, False
    with planning.undone():
        if only_for is not None:
            message = _room_for(planning, only_for)
        else:
            classes = alike_pods(planning.takes, planning.cluster)
            _find_steps(planning, classes)
            pods, examined = sum(len(alike.pods) for alike in classes), _examined(planning, classes)
            left_out = examined is not None and examined < pods and planning.moves_left > 0
            message = "" if pods else _NO_PODS
        spent = planning.budget.spent or left_out
        steps = in_final_order(planning)
    return Plan(
        steps=tuple(steps),
        pods=pods,
        examined=examined,
        refused=planning.refused,
        message="" if steps else message,
        spent=spent,
        position=planning.position,
    )


def _examined(planning: Planning, classes: Sequence[EqualPods]) -> int | None:
    if _ONE_BY_ONE.isdisjoint(planning.section.goals):
        return None
    return sum(pod.uid in planning.looked_at for alike in classes for pod in alike.pods)


def _find_steps(planning: Planning, classes: Sequence[EqualPods]) -> None:
    goals = set(planning.section.goals)
    if Goal.MAKE_ROOM in goals:
        _make_room(planning)
    if Goal.VIOLATIONS in goals and planning.section.pods.groups == "Whole":
        _move_groups(planning)
    if not _ONE_BY_ONE.isdisjoint(goals):
        _improve(planning, classes)
    if Goal.PACK in goals:  # last, because pods that leave their nodes may fill empty ones
        pack(planning)


def _make_room(planning: Planning) -> None:
    room, groups = MakingRoom(planning), set[GroupKey]()
    for pod in planning.pending:
        if planning.done:
            return
        group = planning.cluster.pod_groups.of(pod)
        if group is None:
            room.for_pod(pod)
        elif group.key not in groups:
            groups.add(group.key)
            room.for_group(group)


def _room_for(planning: Planning, wanted: PodRef | GroupKey) -> Why:
    """Plan a step that makes room for the pod or group; return why there is none, or ""."""
    room = MakingRoom(planning)
    if isinstance(wanted, GroupKey):
        group = planning.cluster.pod_groups.get(wanted)
        if group is None:
            return f"group {wanted} is not known"
        fits = room.for_group(group)
        name, refs = f"group {wanted}", tuple(map(PodRef.of, group.unscheduled.values()))
    else:
        pod = next((pod for pod in planning.pending if _is(pod, wanted)), None)
        if pod is None:
            return TextAboutPods(f"pod {wanted.key} does not wait", (wanted,), "it does not wait")
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


def _improve(planning: Planning, classes: Sequence[EqualPods]) -> None:
    while not planning.done:
        before = len(planning.steps)
        candidates = _candidates(planning, classes)
        improve(planning, candidates)
        if len(planning.steps) == before:
            return


def _candidates(planning: Planning, classes: Sequence[EqualPods]) -> list[GainingPod]:
    found = list[GainingPod]()
    # The rest of the budget is for the moves.
    least = planning.budget.remaining // _PART_FOR_MOVES
    # Continue where the last plan stopped.
    start = next((n for n, each in enumerate(classes) if each.position > planning.position), 0)
    for alike in (*classes[start:], *classes[:start]):
        if planning.budget.remaining <= least:
            break
        found += find(planning, alike)
        planning.position = alike.position
    return found


def _is(pod: Pod, wanted: PodRef) -> bool:
    return pod.key == wanted.key and wanted.uid in ("", pod.uid)


def in_final_order(planning: Planning) -> list[Step]:
    """Make the steps again, sorted by gain per move; return the possible steps.

    If a step is impossible in this order, all steps keep the order in which they were found.
    """
    found = planning.steps
    wanted = sorted(found, key=lambda step: -step.gain_per_move)
    steps = _possible(planning, wanted)
    if len(steps) < len(found) and wanted != found:
        steps = _possible(planning, found)
    return steps


def _possible(planning: Planning, steps: Sequence[Step]) -> list[Step]:
    """Undo the trial, then make these steps again; return the steps that are possible."""
    done = list[Step]()
    planning.back_to(0)
    planning.moved.clear()
    with_moves = {ref.uid for step in steps for ref in step.fits}
    for uid, (pod, node) in planning.places.items():
        if uid not in with_moves:
            planning.add(pod, node)
    for step in steps:
        mark, again = len(planning), _made(planning, step)
        if again is None:
            planning.back_to(mark)
        else:
            planning.moved.update(move.pod.uid for move in again.moves)
            done.append(again)
        pause()
    return done


def _made(planning: Planning, step: Step) -> Step | None:
    """Make the step again and return it, or return None if it is impossible."""
    if step.goal in (Goal.VIOLATIONS, Goal.SPREAD) and not step.group:
        pod = step.moves[0].pod
        # the pod goes to the node that would be chosen now
        again = improvement(planning, pod) if planning.may_move(pod) else None
        planning.make(again.moves if again is not None else ())
        return again
    try:
        for moves in step.batches:
            is_refused = any(_is_refused(planning, step, move) for move in moves)
            if is_refused or planning.why_impossible(moves) is not None:
                return None
    except PluginFailed:
        return None
    for ref in step.fits:
        pod, node = planning.places[ref.uid]
        if not planning.fits_on(pod, node):
            return None
        planning.add(pod, node)
    return step


def _is_refused(planning: Planning, step: Step, move: Move) -> bool:
    node = planning.node_of(move.pod)
    if node is None or node.name != move.source:
        return True
    return planning.movable.refusal(move.pod, with_group=bool(step.group)) is not None


def _move_groups(planning: Planning) -> None:
    """Add a step for each pod group with a member whose node its filters would reject now."""
    for key in sorted(group.key for group in planning.cluster.pod_groups):
        group = planning.cluster.pod_groups.get(key)
        if planning.done:
            return
        if group is None or not group.assigned:
            continue
        members = [placed.pod for placed in group.assigned.values()]
        if not all(map(planning.takes, members)):
            continue
        violating = list[Pod]()
        for pod in members:
            planning.looked_at.add(pod.uid)
            planning.budget.spend(1)
            if planning.violates(pod):
                violating.append(pod)
        if violating:
            _move_group(planning, group, members, violating)


def _move_group(
    planning: Planning, group: PodGroupState, members: Sequence[Pod], violating: Sequence[Pod]
) -> None:
    if (why := _why_group_stays(planning, group, members)) is not None:
        for pod in violating:
            planning.refuse(pod, why)
        return
    if len(members) > planning.moves_left:
        return
    mark, leaving = len(planning), planning.leaving(members)
    anew = [planning.anew(move) for move in leaving]
    for pod in members:
        planning.remove(pod)
    names, rows = planning.cluster.node_names, planning.group_decision(group, anew).rows
    targets = {uid: names[row] for uid, row in rows.items()}
    if len(targets) < len(members):
        planning.back_to(mark)
        for pod in violating:
            planning.refuse(pod, NOWHERE_ELSE)
        return
    for pod in anew:
        planning.add(pod, targets[pod.uid])
    moves = tuple(replace(each, target=targets[each.pod.uid]) for each in leaving)
    planning.accept(_group_step(group, moves, len(violating)))


def _why_group_stays(
    planning: Planning, group: PodGroupState, members: Sequence[Pod]
) -> str | None:
    if group.unscheduled or group.assumed or group.terminating:
        return _NOT_WHOLE
    for pod in members:
        if (why := planning.movable.refusal(pod, with_group=True)) is not None:
            return why
    return _BUDGET if planning.cluster.evictions.exhausted_budget(members) else None


def _group_step(group: PodGroupState, moves: tuple[Move, ...], violating: int) -> Step:
    how_many = "the node of 1 member does" if violating == 1 else f"the nodes of {violating} do"
    otherwise = f"{how_many} not pass the filters any more"
    refs = tuple(PodRef.of(move.pod) for move in moves)
    reason = TextAboutPods(f"group {group.key}: {otherwise}", refs, otherwise)
    gain = VIOLATION_GAIN * violating
    return Step(Goal.VIOLATIONS, moves, reason, gain, group=str(group.key))
