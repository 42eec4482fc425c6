"""Builds the status of a PodGroup from its members and the last decision about it.

The phases are those of the coscheduling controller (scheduler-plugins, podgroup_controller.go). The
condition is kube-scheduler's (schedule_one_podgroup.go, updatePodGroupCondition).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from mooring.groups.model.pod_group import NODES_RESERVED, GroupSource
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.wording import listed
from mooring.policy.profile_status import LONGEST_MESSAGE

FINAL: Final = ("Finished", "Failed", "Completed")
"""The phases that never change again."""
_OF_VOLCANO: Final = {
    "Pending": "Inqueue",
    "Scheduling": "Inqueue",
    "Finished": "Completed",
    "Failed": "Completed",
}
"""Maps phases to Volcano's names. Volcano's controller creates a job's pods in phase Inqueue."""
_MOST_GATES: Final = 3


@dataclass(frozen=True, slots=True)
class Finished:
    """Counts the members that have succeeded or failed, for coscheduling groups."""

    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class GroupView:
    """The present state of a group, for users.

    `message` says why the group waits; it is empty once the group has been placed. `reserved` names
    the nodes reserved for the group, and until when; it is empty without a reservation.
    """

    phase: str
    scheduled: bool
    running: int
    finished: Finished
    reason: str
    message: str
    reserved: str = ""


def view_of(
    group: PodGroupState,
    finished: Finished,
    *,
    failure: str = "",
    error: str = "",
    reserved: str = "",
) -> GroupView:
    """Return the present state of the group.

    Args:
        group: The group. Once its minimum is bound, it counts as placed forever.
        finished: How many members have succeeded or failed.
        failure: Why the last decision found no nodes; "" otherwise.
        error: The error of the last attempt; "" without one.
        reserved: The reserved nodes, and until when; "" without a reservation.
    """
    minimum = max(1, group.minimum)
    definition = group.definition
    running = sum(placed.pod.phase == "Running" for placed in group.assigned.values())
    before = definition is not None and definition.initially_scheduled
    bound = f"{len(group.assigned)} of {minimum} members are bound; " if group.assigned else ""
    assigned = (placed.pod for placed in group.assigned.values())
    scheduled = before or group.is_enough(assigned, finished.succeeded)
    if scheduled:
        reason, message = "Scheduled", ""
    elif (incomplete := group.incomplete) is not None:
        reason, message = "Unschedulable", f"{bound}{incomplete}"
    elif error:
        reason, message = "SchedulerError", f"{bound}{error}"
    elif group.scheduled_pods_count and not group.lacking:
        reason = "Unschedulable"
        message = f"{len(group.assigned)} of {minimum} members are bound; the others will be soon"
    else:
        reason = "Unschedulable"
        message = f"{bound}{failure or 'the group has not been tried yet'}"
    phase = _phase(group, running, finished)
    message = message[:LONGEST_MESSAGE]
    return GroupView(phase, scheduled, running, finished, reason, message, reserved)


def _phase(group: PodGroupState, running: int, finished: Finished) -> str:
    definition = group.definition
    if definition is None or definition.invalid is not None:
        return "Pending"
    if definition.status.phase in FINAL:
        return definition.status.phase
    minimum = max(1, group.minimum)
    succeeded, failed = finished.succeeded, finished.failed
    if group.all_pods_count + succeeded + failed < minimum:
        return "Pending"
    if succeeded >= minimum:
        return "Finished"
    if failed and failed + running + succeeded >= minimum:
        return "Failed"
    return "Running" if running + succeeded >= minimum else "Scheduling"


def gates_text(gates: Sequence[str]) -> str:
    """Return the pod's scheduling gates as text; only the first three are named."""
    return f"scheduling gates: {listed(gates, _MOST_GATES)}"


def desired_status(
    group: PodGroupState, view: GroupView, kind: str, *, now: str, tried: str
) -> dict[str, Any] | None:
    """Return the status to write; None if the object has this status already or does not exist.

    `kind` is the type of the condition. `now` and `tried`, the time of the first attempt, are in
    RFC 3339; `tried` is "" without an attempt.
    """
    definition = group.definition
    if definition is None:
        return None
    known, generation, changed = definition.status, definition.generation, False
    of_volcano = group.key.source is GroupSource.VOLCANO
    if of_volcano:
        generation = 0  # its conditions have no observedGeneration
    wanted = [(kind, known.scheduled, view.scheduled, view.reason, view.message)]
    if view.reserved or known.reserved is not None:
        reason = "Reserved" if view.reserved else "NotReserved"
        has_nodes = bool(view.reserved)
        wanted.append((NODES_RESERVED, known.reserved, has_nodes, reason, view.reserved))
    conditions = list[dict[str, Any]]()
    for name, before, holds, reason, message in wanted:
        status = "True" if holds else "False"
        values = (status, reason, message, generation)
        changed |= before is None or values != (
            *(before.status, before.reason, before.message, before.generation),
        )
        since = before.since if before is not None and before.status == status else ""
        condition = {"type": name, "status": status, "reason": reason, "message": message}
        times = {"lastTransitionTime": since or now}
        observed = {} if of_volcano else {"observedGeneration": generation}
        conditions.append(condition | observed | times)
    fields = _of_members(group, view, tried)
    return {**fields, "conditions": conditions} if changed or fields else None


def _of_members(group: PodGroupState, view: GroupView, tried: str) -> Mapping[str, Any]:
    """Return the changed fields of the group's status, without its conditions."""
    source, definition = group.key.source, group.definition
    if definition is None or source not in (GroupSource.COSCHEDULING, GroupSource.VOLCANO):
        return {}
    known = definition.status
    if source is GroupSource.VOLCANO:
        # Members that have ended cannot be found by the annotation that names their group.
        phase = _OF_VOLCANO.get(view.phase, view.phase)
        changed = {"phase": phase} if phase != known.phase else {}
        return changed | ({"running": view.running} if view.running != known.running else {})
    wanted: list[tuple[str, Any, Any]] = [
        ("phase", view.phase, known.phase),
        ("running", view.running, known.running),
        ("succeeded", view.finished.succeeded, known.succeeded),
        ("failed", view.finished.failed, known.failed),
    ]
    if not known.started and tried:
        wanted.append(("scheduleStartTime", tried, known.started))
    if not known.occupied_by and (owner := _owner(group)):
        wanted.append(("occupiedBy", owner, known.occupied_by))
    return {field: value for field, value, has in wanted if value != has}


def _owner(group: PodGroupState) -> str:
    placed = next(chain(group.assigned.values(), group.assumed.values()), None)
    pod = placed.pod if placed is not None else next(iter(group.unscheduled.values()), None)
    if pod is None or pod.owner is None:
        return ""
    return f"{pod.namespace}/{pod.owner.name}"
