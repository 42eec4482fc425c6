"""Reports pod groups to users: statuses and events of PodGroups, and a report on request.

Changed groups are examined once a second, so that a group whose 10,000 members are bound one by one
is written only a few times.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, NoReturn

from mooring.framework.decision import PodRef
from mooring.groups.model.pod_group import (
    COSCHEDULING_LABEL,
    SIGS_LABEL,
    GroupKey,
    GroupSource,
    PodGroup,
)
from mooring.groups.search.group_decision import GroupDecision
from mooring.groups.state.pod_groups import GROUP_KINDS, PodGroupState
from mooring.groups.status.group_status import (
    FINAL,
    Finished,
    GroupView,
    desired_status,
    gates_text,
    view_of,
)
from mooring.kube.api_resources import POD_GROUP_V1ALPHA2, SIGS_POD_GROUP, Resource
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.status_writer import StatusWriter
from mooring.kube.timestamps import rfc3339
from mooring.kube.writes import PodGroupWriter
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.model.wording import listed, plural
from mooring.process.time_slices import TimeSlices
from mooring.scheduling.scheduler_state import SchedulerState

ROUND_SECONDS: Final = 1.0
"""The interval between two examinations of the changed groups."""
_LANES: Final = 2
"""The most status patches that are sent at the same time; others wait."""
_PATIENCE_SECONDS: Final = 10.0
"""The longest time that a status waits for more important requests."""
_MOST_TRIED: Final = 64
"""The most domains where the group did not fit that a report lists; it omits the others."""
_MOST_NODES: Final = 10
"""The most reserved nodes that a condition names; it gives the number of the others."""
_MOST_PODS: Final = 100
"""The most members that a report lists; members without a node come first."""
_STATES: Final = ("unscheduled", "gated", "assumed", "assigned", "terminating")
"""The states of members, in the order of a report."""

_KINDS: Final[Mapping[GroupSource, Kind]] = MappingProxyType(
    {source: kind for kind, source in GROUP_KINDS.items()}
)


@dataclass(slots=True)
class _Record:
    """The reporter's data about one group: its last decision and its last reports."""

    uid: str = ""
    """The uid of the object that defines the group; empty without an object."""
    owned: bool = False
    """Whether a profile of this scheduler decides about the members."""
    complete_since: float | None = None
    """The time at which the group became complete, on the monotonic clock."""
    placed: bool = False
    """Whether a decision has placed the group."""
    tried: float | None = None
    """The time of the first attempt to place the group, in seconds since the epoch."""
    decided: float = 0.0
    decision: GroupDecision | None = None
    """The last decision about the group, without rows, and with only the domains that a report
    shows."""
    members: int = 0
    """The number of members that got a node in the last decision."""
    domains: int = 0
    """The number of domains that the last decision tried."""
    error: str = ""
    finished: Finished = field(default_factory=Finished)
    counted: int = -1
    """The group's `departed_pods_count` at the last count of finished members."""
    view: GroupView | None = None
    said: str = ""
    """The message of the last event."""
    told_ignored: bool = False
    """Whether an event has named the fields of the object that have no effect."""
    told_reserved: str = ""
    """The text about reserved nodes in the last event."""

    @property
    def failure(self) -> str:
        """Why the last decision placed no member; "" if it placed one, or without a decision."""
        return self.decision.message if self.decision is not None and not self.members else ""

    def seen(self, group: PodGroupState, reserved: str) -> GroupView:
        failure, error = self.failure, self.error
        return view_of(group, self.finished, failure=failure, error=error, reserved=reserved)

    def reported_decision(self) -> dict[str, Any] | None:
        """Return the last decision as a JSON value; None without a decision."""
        decision = self.decision
        if decision is None:
            return None
        return {
            "time": rfc3339(self.decided),
            "placed": self.members,
            "domain": list(decision.domain) if decision.domain is not None else None,
            "message": decision.message or None,
            "tries": decision.tries,
            "bounded": decision.bounded,
            "tried": [
                {"key": t.key, "value": t.value, "fits": t.fits, "message": t.message}
                for t in decision.tried
            ],
            "triedInAll": self.domains,
        }


class PodGroupStatusReporter:
    """Writes statuses and events while `run` runs; its other methods never wait and never fail.

    Args:
        served: Returns the resources that the API server serves, by kind.
        busy: Returns whether more important work waits.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        writer: PodGroupWriter,
        recorder: EventRecorder,
        *,
        served: Callable[[], Mapping[Kind, Resource]],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._writer = writer
        self._recorder = recorder
        self._served = served
        self._busy = busy
        self._clock, self._now = scheduler.clock, scheduler.now
        self._sleep = scheduler.sleep
        self._records: dict[GroupKey, _Record] = {}
        self._phases: Counter[str] = Counter()
        self._dirty: dict[GroupKey, None] = {}
        self._statuses = StatusWriter[GroupKey](
            "pod groups", self._write, lanes=_LANES, turn=scheduler.turn, sleep=scheduler.sleep
        )
        self._slices = TimeSlices(clock=scheduler.clock)
        self._running = False

    def phases(self) -> Mapping[str, int]:
        """Return how many groups were in each phase when they were last examined."""
        return self._phases

    def on_events(self, events: Sequence[ClusterEvent]) -> None:
        """Store the time when a group becomes complete, for a metric; do nothing before `run`."""
        if not self._running:
            return  # a stand-by would note them for ever
        for event in events:
            if event.kind is Kind.UNSCHEDULED_POD or event.kind in GROUP_KINDS:
                about = event.after
                if isinstance(about, PodGroup):
                    group = self._state.pod_groups.get(about.key)
                else:
                    group = self._state.pod_groups.of(about) if isinstance(about, Pod) else None
                if group is not None and group.incomplete is None:
                    record = self._record(group)
                    if record.complete_since is None:
                        record.complete_since = self._clock()

    def decided(self, group: PodGroupState, decision: GroupDecision) -> None:
        """Store the decision of an attempt to place the group, for its status.

        When the group is first placed, a metric gets the seconds since it became complete.
        """
        record = self._tried(group)
        record.decision = replace(decision, rows={}, tried=decision.tried[:_MOST_TRIED])
        record.members, record.domains = len(decision.rows), len(decision.tried)
        record.error = ""
        placed = [pod for uid in decision.rows if (pod := group.unscheduled.get(uid))]
        if decision.rows and not record.placed and not (group.lacking and group.short_of(placed)):
            record.placed = True
            if record.complete_since is not None:
                seconds = self._clock() - record.complete_since
                self._scheduler.metrics.pod_group_placed(seconds)

    def failed(self, group: PodGroupState, message: str) -> None:
        """Store the error of an attempt to place the group, for its status."""
        self._tried(group).error = message

    def look_at(self, group: PodGroupState) -> None:
        """Examine the group again within a second, because its reservation has ended."""
        self._dirty[group.key] = None

    def reserved_nodes(self) -> int:
        """Return how many nodes are reserved for pod groups."""
        return len({nominee.row for nominee in self._state.nominations.reserved})

    def _reserved(self, group: PodGroupState) -> str:
        nominees = map(self._state.nominations.get, group.unscheduled)
        reserved = [n for n in nominees if n is not None and n.reservation is not None]
        if not reserved or (kept := reserved[0].reservation) is None:
            return ""
        names = dict.fromkeys(self._state.nodes.names[nominee.row] for nominee in reserved)
        named = listed(names, _MOST_NODES)
        return f"reserved for the group: {named}, until {rfc3339(kept.until)}"

    def report(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return a document about each group of this name; several sources may use a name."""
        keys = [GroupKey(source, namespace, name) for source in GroupSource]
        found = [self._state.pod_groups.get(key) for key in keys]
        return [self._reported(group) for group in found if group is not None]

    async def run(self) -> None:
        """Write statuses and events until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._statuses.run())
            tasks.create_task(self._scheduler.turn.between(self._look_at_changed))

    async def _look_at_changed(self) -> NoReturn:
        profiles = self._scheduler.profiles
        self._running, known = True, profiles.version
        while True:
            self._dirty |= self._state.take_changed_groups()
            if profiles.version != known:  # other groups may be ours now
                known = profiles.version
                self._dirty |= dict.fromkeys(group.key for group in self._state.pod_groups)
            waited = 0.0
            # More important work goes first, for a while.
            while self._dirty and waited < _PATIENCE_SECONDS and self._busy():
                await self._sleep(ROUND_SECONDS)
                waited += ROUND_SECONDS
            dirty, self._dirty = self._dirty, {}
            self._statuses.note(*dirty)
            await self._statuses.settled()
            await self._sleep(ROUND_SECONDS)

    async def _write(self, key: GroupKey) -> None:
        await self._slices.pause()
        group = self._state.pod_groups.get(key)
        if group is None:
            self._forget(key)
            return
        if self._must_count(group):
            await self._count_finished(group)
        view = self._look(group)
        if self._is_owned(group, self._record(group)) and not self._is_passing(group, view):
            await self._send(group, view)

    def _is_passing(self, group: PodGroupState, view: GroupView) -> bool:
        """Return whether the status will soon change again, and need not be written now."""
        record, definition = self._record(group), group.definition
        written = self._statuses.has_patched(group.key)
        written |= definition is not None and definition.status.scheduled is not None
        told = view.scheduled or record.failure or record.error or group.incomplete is not None
        if written or told:
            return False
        if record.decision is None:
            return True
        if self._now() - record.decided >= _PATIENCE_SECONDS:
            return False
        self._dirty[group.key] = None
        return True

    def _look(self, group: PodGroupState) -> GroupView:
        record = self._record(group)
        view = record.seen(group, self._reserved(group))
        if record.view is not None:
            self._phases[record.view.phase] -= 1
        self._phases[view.phase] += 1
        record.view = view
        return view

    def _forget(self, key: GroupKey) -> None:
        self._statuses.forget(key)
        record = self._records.pop(key, None)
        if record is not None and record.view is not None:
            self._phases[record.view.phase] -= 1

    def _is_owned(self, group: PodGroupState, record: _Record) -> bool:
        """Return whether this scheduler schedules the group, or scheduled its former members."""
        definition = group.definition
        if definition is None or not definition.uid:
            return False
        placed = next(chain(group.assigned.values(), group.assumed.values()), None)
        pod = placed.pod if placed is not None else next(iter(group.unscheduled.values()), None)
        if pod is not None:
            entry = self._scheduler.profiles.of(pod, self._scheduler.cluster)
            record.owned = entry is not None and entry.pipeline.group_policy is not None
        elif group.key.source is GroupSource.COSCHEDULING:
            # No other scheduler gives a coscheduling PodGroup a condition.
            record.owned |= definition.status.scheduled is not None
        elif group.key.source is GroupSource.VOLCANO:
            record.owned = record.owned or self._replaces_volcano(group.key.namespace)
        return record.owned

    def _replaces_volcano(self, namespace: str) -> bool:
        # Volcano's controller creates a job's pods only once the status of the group allows it.
        metadata, spec = {"name": "volcano", "namespace": namespace}, {"schedulerName": "volcano"}
        pod = parse_pod({"metadata": metadata, "spec": spec})
        entry = self._scheduler.profiles.of(pod, self._scheduler.cluster)
        formats = entry.pipeline.pod_group_formats if entry is not None else ()
        return any(form.source is GroupSource.VOLCANO for form in formats)

    def _must_count(self, group: PodGroupState) -> bool:
        definition, record = group.definition, self._record(group)
        if definition is None or group.key.source is not GroupSource.COSCHEDULING:
            return False
        if definition.status.phase in FINAL or not self._is_owned(group, record):
            return False
        if record.counted < 0:
            return (
                definition.status.phase in ("Scheduling", "Running")
                or group.departed_pods_count > 0
            )
        return record.counted != group.departed_pods_count

    async def _count_finished(self, group: PodGroupState) -> None:
        record, left, key = self._record(group), group.departed_pods_count, group.key
        is_sigs = self._served().get(Kind.COSCHEDULING_POD_GROUP) == SIGS_POD_GROUP
        label = SIGS_LABEL if is_sigs else COSCHEDULING_LABEL
        record.finished = Finished(
            *await self._writer.count_finished(key.namespace, label, key.name)
        )
        record.counted = left

    async def _send(self, group: PodGroupState, view: GroupView) -> None:
        record, definition = self._record(group), group.definition
        resource = self._served().get(_KINDS[group.key.source])
        if definition is None or resource is None:
            return
        self._tell(group, definition, view, resource)
        kind = "Scheduled" if group.key.source is GroupSource.VOLCANO else "PodGroupScheduled"
        if group.key.source is GroupSource.KUBERNETES and resource != POD_GROUP_V1ALPHA2:
            kind = "PodGroupInitiallyScheduled"
        tried = rfc3339(record.tried) if record.tried is not None else ""
        status = desired_status(group, view, kind, now=rfc3339(self._now()), tried=tried)
        if status is not None and group.key.source.has_status:
            key, uid, version = group.key, definition.uid, definition.version
            to = resource, key.namespace, key.name, uid, version, status
            await self._statuses.patch(key, status, lambda: self._writer.patch_status(*to))

    def _tell(
        self, group: PodGroupState, definition: PodGroup, view: GroupView, resource: Resource
    ) -> None:
        record, known = self._record(group), definition.status.scheduled
        about = ObjectRef(
            resource.kind, group.key.name, group.key.namespace, definition.uid, resource.api_version
        )
        if definition.ignored and not record.told_ignored:
            note = f"without effect (docs/gangs.md): {', '.join(definition.ignored)}"
            self._recorder.record(about, "Normal", "FieldsIgnored", "Scheduling", note)
        record.told_ignored = True
        if view.reserved and view.reserved != record.told_reserved:
            self._recorder.record(about, "Normal", "NodesReserved", "Scheduling", view.reserved)
        record.told_reserved = view.reserved
        if view.scheduled:
            if record.said != "Scheduled" and not definition.initially_scheduled:
                domain = record.decision.domain if record.decision is not None else None
                where = f" in {domain[0]}={domain[1]}" if domain is not None else ""
                members = len(group.assigned)
                note = f"{plural(members, 'member')} {'is' if members == 1 else 'are'} bound{where}"
                self._recorder.record(about, "Normal", "Scheduled", "Scheduling", note)
            record.said = "Scheduled"
            return
        failure = bool(record.failure or record.error)
        before = record.said or (known.message if known is not None else "")
        # The number of missing members changes often: only the condition reports it.
        if failure and group.incomplete is None and view.message != before:
            self._recorder.record(about, "Warning", "FailedScheduling", "Scheduling", view.message)
            record.said = view.message

    def _tried(self, group: PodGroupState) -> _Record:
        record = self._record(group)
        record.decided = self._now()
        if record.tried is None:
            record.tried = record.decided
        self._dirty[group.key] = None
        return record

    def _record(self, group: PodGroupState) -> _Record:
        record = self._records.get(group.key)
        uid = group.definition.uid if group.definition is not None else ""
        if record is not None and uid and record.uid not in ("", uid):
            self._forget(group.key)  # its object was deleted and made anew under the same name
            record = None
        if record is None:
            record = self._records[group.key] = _Record()
        record.uid = uid or record.uid
        return record

    def _reported(self, group: PodGroupState) -> dict[str, Any]:
        record = self._records.get(group.key) or _Record()
        definition, view = group.definition, record.seen(group, self._reserved(group))
        topology: dict[str, Any] | None = None
        if definition is not None and definition.topology.keys:
            mode = "Required" if definition.topology.required else "Preferred"
            topology = {"keys": list(definition.topology.keys), "mode": mode}
        return {
            "podGroup": str(group.key),
            "source": group.key.source.value,
            "phase": view.phase,
            "scheduled": view.scheduled,
            "message": view.message or None,
            "reserved": view.reserved or None,
            "minimum": group.minimum if definition is not None else None,
            "priority": group.priority,
            "members": {
                "unscheduled": len(group.unscheduled),
                "assumed": len(group.assumed),
                "assigned": len(group.assigned),
                "terminating": len(group.terminating),
                "succeeded": view.finished.succeeded,
                "failed": view.finished.failed,
            },
            "missing": group.missing,
            "topology": topology,
            "decision": record.reported_decision(),
            "pods": sorted(
                islice(_members(group, (view.message, record.failure)), _MOST_PODS),
                key=lambda member: (_STATES.index(member["state"]), member["pod"]),
            ),
        }


def _members(group: PodGroupState, told: Collection[str]) -> Iterator[dict[str, Any]]:
    for pod in group.unscheduled.values():
        gates = pod.spec.gates
        message = gates_text(gates) if gates else pod.unscheduled_message
        yield {
            "pod": PodRef.of(pod),
            "state": "gated" if gates else "unscheduled",
            "node": None,
            "message": message if message not in told else None,
        }
    for state, placed_pods in (("assumed", group.assumed), ("assigned", group.assigned)):
        for placed in placed_pods.values():
            pod, node = placed.pod, placed.pod.node_name
            yield {"pod": PodRef.of(pod), "state": state, "node": node, "message": None}
    for pod in group.terminating.values():
        node = pod.node_name
        yield {"pod": PodRef.of(pod), "state": "terminating", "node": node, "message": None}
