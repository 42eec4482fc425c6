"""Finds profiles for pods without a node, puts the pods into the queue, and removes them."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

from mooring.claims.model.resource_claims import ResourceClaim
from mooring.framework.plugin_failures import ExtensionPoint, PluginFailed
from mooring.groups.model.hyper_node import HYPER_NODE_KEY
from mooring.groups.model.pod_group import PodGroup
from mooring.groups.state.pod_groups import GROUP_KINDS, PodGroupState
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.indexes import drop_item
from mooring.model.pod import Pod, Uid, claim_keys
from mooring.model.workloads import Namespace
from mooring.pausing import Work, pause
from mooring.process.time_slices import TimeSlices
from mooring.runtime.extension_points import first_gate, status_of
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.scheduler_state import DeletedUids, SchedulerState

_WITHOUT_PROFILE_SECONDS: Final = 5.0
"""The seconds after which a pod that no profile takes gets a report."""
_UNKNOWN_NAMESPACE: Final = (
    "no SchedulingProfile takes the pod yet: which one does follows from labels of its namespace, "
    "which has not been seen"
)
_MISSPELT_SECONDS: Final = 30.0
"""The seconds after which a pod gets a report that its scheduler name may be misspelt."""
_NAMES_AT_ONCE: Final = 20
"""The most scheduler names that one call compares with the names of profiles; the next call
continues."""
_MISSPELT_AT_ONCE: Final = 200
"""The most pods whose scheduler names one call examines; the next call continues."""
_SCHEDULING_GATES: Final = "SchedulingGates"
"""The name of the plugin that handles `spec.schedulingGates`."""
_GATED_SECONDS: Final = 2.0
"""The seconds after which a gated member of a group gets a report: most groups complete sooner."""
_GATED_AT_ONCE: Final = 200
"""The maximum number of pods for which PreEnqueue plugins run before the event loop runs again."""
_FOUND_AT_ONCE: Final = 100
"""The maximum number of pods for which profiles are found before the event loop runs again."""
_GROUP_EVENTS: Final = frozenset((Kind.UNSCHEDULED_POD, *GROUP_KINDS))


class PodEnqueuer:
    """Finds the profile of every pod without a node, and adds the pod to the queue.

    It calls `arrived` with each new pod that has a profile, and `not_pending` with the uid of each
    pod that is bound or deleted.
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        reports: PodStatusReporter,
        *,
        not_pending: Callable[[str], None],
        arrived: Callable[[Pod], object] = lambda _pod: None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = scheduler.clock
        self._reports = reports
        self._not_pending = not_pending
        self._arrived = arrived
        self._gated_since: dict[Uid, float] = {}
        """The time when each gated pod without a report was gated, by uid. Only members of
        groups, and pods that wait for devices, are here."""
        self._strays: dict[Uid, _Stray] = {}
        """Maps the uid of a pod without a profile to the times and reports about it."""
        self._of_claim: dict[str, dict[Uid, None]] = {}
        """The uids of the unscheduled pods that name each ResourceClaim, by namespace/name."""
        self._claims: dict[Uid, dict[str, None]] = {}
        """The ResourceClaims that each pod without a node names, by the pod's uid."""
        self._unsettled: dict[Uid, None] = {}
        """The uids of pods for which the profile must be found again."""
        self._to_admit: dict[int, _Members] = {}
        """The members for which PreEnqueue must run again, by their group's number."""
        self._is_unsettled = asyncio.Event()
        self._not_gated: WeakKeyDictionary[PodGroupState, QueuedPod | tuple[Uid, ...]] = (
            WeakKeyDictionary()
        )
        """For each group, a member that was not gated in the last search.

        If all members were gated, the value has the uids of the members that were assumed then,
        because only these can return to the queue without a gate.
        """

    async def run(self) -> NoReturn:
        """Do the work that follows changes of profiles and groups, in slices, until cancelled."""
        slices = TimeSlices(clock=self._clock)
        while True:
            await self._is_unsettled.wait()
            await self._scheduler.turn.between(slices.run, self.find_profiles)
            self._is_unsettled.clear()

    def pending(self, pod: Pod) -> None:
        """Store a pod that the API server shows without a node, and put it into the queue.

        If no profile takes the pod, it goes into `SchedulerState.without_profile` instead. A
        terminating pod leaves the queue.
        """
        scheduler = self._scheduler
        known, before = scheduler.queue.get(pod.uid), scheduler.state.unscheduled.get(pod.uid)
        if scheduler.state.has_ended(pod.uid):
            return  # an older version of a pod that was bound, and has ended by now
        if known is None and scheduler.cluster.is_placed(pod):
            if pod.uid in scheduler.without_profile:
                scheduler.without_profile[pod.uid] = pod  # what is tried if its binding fails
            return  # an older version of a pod that is assumed or bound by now
        with scheduler.state.delivered_after():
            self._note_claims(pod)
            scheduler.state.put_unscheduled(pod)
            if pod.terminating and (known is None or known.queue is not None):
                self._not_waiting(pod.uid)
                self._scheduler.decisions.gone(pod.uid, self._clock())
                return  # one in flight is tried again, and leaves the queue then
            pipeline = self._pipeline_of(pod)
            if pipeline is None:
                self._set_aside(pod)
                return
            if known is None:
                if pod.nominated_node is not None and pod.limit_exceeded is None:
                    self._nominate_to(pod, pod.nominated_node)
                self._arrived(pod)
            elif before is not None and before.nominated_node != pod.nominated_node:
                self._nominate_by_status(pod)
            self._add(pod, pipeline)
            self._scheduler.work.set()

    def _nominate_by_status(self, pod: Pod) -> None:
        """Apply a nomination, or its withdrawal, which another program wrote into the status."""
        # updatePodInSchedulingQueue in eventhandlers.go, UpdateNominatedPod in nominator.go
        state, node = self._scheduler.state, pod.nominated_node
        if not self._reports.is_nominated_by_status(pod) or state.pods.get(pod.uid) is not None:
            return
        nominee = state.nominations.get(pod.uid)
        if nominee is not None and (nominee.reservation or state.nodes.names[nominee.row] == node):
            return
        if nominee is not None:
            state.withdraw(pod.uid)
        if node is not None and pod.limit_exceeded is None:
            self._nominate_to(pod, node)
        if nominee is None:
            self._scheduler.queue.nominated(pod.uid)

    def _nominate_to(self, pod: Pod, node: str) -> None:
        state = self._scheduler.state
        row = state.nodes.row_of.get(node)
        if row is None or state.pod_groups.reservation_of(pod) is not None:
            return  # a former leader's reservation has ended with it
        # Without a limit, a user could name one node in 10,000 pods and slow every decision.
        slots = int(state.nodes.pod_slots.data[row])
        if len(state.nominations.at(row, pod.spec.priority, pod.uid)) < slots:
            state.nominate(pod, node)

    @property
    def departures(self) -> DeletedUids:
        """Collects the uids of pods that are deleted or bound while another task reads a pod."""
        return self._scheduler.departures

    def gone(self, uid: Uid) -> None:
        """Forget a pod that no longer waits for a node: it is bound, ended or deleted.

        If the pod is at Permit or PreBind, its binding is cancelled.
        """
        self._scheduler.departures.note(uid)
        self._not_waiting(uid)
        self._not_pending(uid)
        call_off = self._scheduler.in_pre_bind.get(uid)
        waits = call_off is not None or self._scheduler.waiting.get(uid) is not None
        under_way = self._scheduler.being_bound.get(uid)
        if under_way is not None and not waits:
            under_way.left_watch = True  # the loop tells how it ended
        else:
            self._scheduler.decisions.gone(uid, self._clock())
        self._scheduler.waiting.reject(uid, "", "the pod was deleted while it waited to be bound")
        if call_off is not None:
            call_off()
        with self._scheduler.state.delivered_after():
            self._scheduler.state.withdraw(uid)
            self._forget_claims(uid)
            self._scheduler.state.delete_unscheduled(uid)

    def _not_waiting(self, uid: Uid) -> None:
        self._scheduler.without_profile.pop(uid, None)
        self._gated_since.pop(uid, None)
        self._unsettled.pop(uid, None)
        queue = self._scheduler.queue
        if queue.remove(uid, self._clock()) is not None and queue.has_next:
            self._scheduler.work.set()  # it was tried for others, which are tried now
        self._strays.pop(uid, None)

    def profiles_changed(self) -> None:
        """Update the profiles of all pods without a node; the caller must have the state's `Turn`.

        If there are many pods, `run` does a part of the work later.
        """
        # Until `run` has reached a pod, `settle` updates it before its decision.
        self._scheduler.state.track_pod_groups(self._scheduler.profiles.pod_group_formats)
        self._not_gated.clear()  # pods may go to other groups without coming in again
        self._unsettle(None)

    def find_profiles(self) -> None:
        """Update the outdated profiles of pods, and retry members of changed groups.

        Other tasks may run after each pod.
        """
        while self._unsettled or self._to_admit:
            if self._unsettled:
                uid, _ = self._unsettled.popitem()
                self._find_profile(uid)
                pause()
            if self._to_admit:
                self._admit_next(next(iter(self._to_admit)))
                self._scheduler.work.set()
                pause()

    def settle(self, queued: QueuedPod) -> bool:
        """Update the outdated profiles of a popped pod and of the members of its group.

        Returns False if no attempt about the pod may begin now.
        """
        if not self._unsettled and not self._to_admit:
            return True
        group = self._scheduler.state.pod_groups.of(queued.pod)
        members = group.unscheduled if group is not None and self._unsettled else ()
        unsettled = [uid for uid in members if uid in self._unsettled]
        for uid in (*unsettled[:_FOUND_AT_ONCE], queued.pod.uid):
            if uid in self._unsettled:
                del self._unsettled[uid]
                self._find_profile(uid)
        left = len(unsettled) > _FOUND_AT_ONCE
        if group is not None and not left:
            # Not if it has changed since: a group that changes all the time is tried, too.
            left = all(self._admit_next(group.number) for _ in range(_FOUND_AT_ONCE))
        if self._scheduler.queue.get(queued.pod.uid) is not queued:
            return False
        if queued.gated or left:
            self._scheduler.queue.put_back(queued, self._clock())
            return False
        queued.outdated = False  # the attempt begins with the pipeline that was found
        return True

    def flush(self) -> None:
        """Retry pods that have been unschedulable for five minutes, and check gated pods again.

        Call this periodically: the event that a pod waits for may never come. Other tasks may run
        during the call.
        """
        queue = self._scheduler.queue
        if queue.flush_unschedulable(self._clock()):
            self._scheduler.work.set()
        gated = [queued for queued in queue if queued.queue is SubQueue.GATED]
        for number, queued in enumerate(gated):
            if number and number % _GATED_AT_ONCE == 0:
                pause()
            if queued.queue is SubQueue.GATED:
                # A plugin may have failed, or may read more than the pod.
                self._add(queued.pod, queued.pipeline, report=True)
                if not queued.gated:
                    self._scheduler.work.set()

    def _admit_group(self, event: ClusterEvent) -> None:
        """Run PreEnqueue again for gated members of a group that the event may complete."""
        before, after = event.before, event.after
        groups = self._scheduler.state.pod_groups
        about = after if after is not None else before
        if isinstance(about, PodGroup):
            self._admit(groups.get(about.key), changed=True)
            return
        left = groups.key_of(before) if isinstance(before, Pod) else None
        joined = groups.key_of(after) if isinstance(after, Pod) else None
        if isinstance(after, Pod) and event.kind is Kind.POD:
            self._try_again_after(after)
        if isinstance(before, Pod) and left is not None:
            if left != joined:  # the group may no longer be equal to other groups
                self._try_again_after(before)
            group = groups.get(left)
            # Without this pod, or with what it declares now, it may be enough.
            declares_less = group is not None and groups.declared_minimum(before) > group.minimum
            differs = isinstance(after, Pod) and groups.counts_otherwise(before, after)
            if declares_less or (differs and left == joined):
                self._admit(group)
            elif isinstance(after, Pod) and left == joined:
                self._admit(groups.opened(before, after))
        if joined is not None and joined != left and isinstance(after, Pod):
            # Otherwise it is not complete yet, or was before this member came.
            self._admit(groups.completed_by(after))

    def _try_in_hyper_nodes(self) -> None:
        for group in tuple(self._scheduler.state.pod_groups):
            definition = group.definition
            if definition is not None and HYPER_NODE_KEY in definition.topology.keys:
                self._admit(group, changed=True, at_once=0)

    def _admit(
        self, group: PodGroupState | None, *, changed: bool = False, at_once: int = _FOUND_AT_ONCE
    ) -> None:
        """Run PreEnqueue again for gated members; if `changed`, retry the other members, too."""
        if group is None:
            return
        for uid in tuple(islice(group.unscheduled, at_once)):
            self._admit_member(uid, changed=changed)
        if len(group.unscheduled) > at_once:
            members = self._to_admit.get(group.number)
            if members is None:
                left = iter(tuple(group.unscheduled)[at_once:])
                self._to_admit[group.number] = _Members(group, left, changed)
            else:
                members.once_more = True
                members.changed |= changed
        self._find_later(())
        self._scheduler.work.set()

    def _admit_member(self, uid: Uid, *, changed: bool) -> None:
        queued = self._scheduler.queue.get(uid)
        if queued is None:
            return
        if queued.queue is SubQueue.GATED:
            self._add(queued.pod, queued.pipeline)
        elif changed:
            self._scheduler.queue.try_again(uid, self._clock())

    def _admit_next(self, number: int) -> bool:
        members = self._to_admit.get(number)
        if members is None:
            return False
        if (uid := next(members.left, None)) is not None:
            self._admit_member(uid, changed=members.changed)
            return True
        del self._to_admit[number]
        if members.once_more:  # after those of other groups
            left = iter(tuple(members.group.unscheduled))
            self._to_admit[number] = _Members(members.group, left, members.changed)
        return False

    def _try_again_after(self, member: Pod) -> None:
        group = self._scheduler.state.pod_groups.of(member)
        if group is None or group.incomplete is not None:
            return
        if (other := self._member_not_gated(group)) is not None:
            self._scheduler.queue.try_again(other.pod.uid, self._clock())

    def _member_not_gated(self, group: PodGroupState) -> QueuedPod | None:
        known = self._not_gated.get(group)
        if isinstance(known, QueuedPod):
            if self._first_not_gated((known.pod.uid,), group) is known:
                return known
            known = None
        found = self._first_not_gated(group.unscheduled if known is None else known, group)
        if found is not None:
            self._not_gated[group] = found
        elif known is None:
            self._not_gated[group] = tuple(group.assumed)
        return found

    def _first_not_gated(self, uids: Iterable[Uid], group: PodGroupState) -> QueuedPod | None:
        there = (self._scheduler.queue.get(uid) for uid in uids if uid in group.unscheduled)
        return next((queued for queued in there if queued is not None and not queued.gated), None)

    def report(self) -> None:
        """Report the reasons of pods that have waited for some seconds; called periodically.

        Other tasks may run after each pod.
        """
        self._report_gated()
        self._report_pods_without_profile()
        self._report_misspelt()

    def _report_gated(self) -> None:
        until = self._clock() - _GATED_SECONDS
        due = [*takewhile(lambda uid: self._gated_since[uid] <= until, self._gated_since)]
        for uid in due:
            if self._gated_since.pop(uid, None) is None:
                continue  # it has gone meanwhile
            queued = self._scheduler.queue.get(uid)
            if queued is not None and queued.queue is SubQueue.GATED:
                self._add(queued.pod, queued.pipeline, report=True)
            pause()

    def _report_pods_without_profile(self) -> None:
        scheduler, profiles = self._scheduler, self._scheduler.profiles
        waits_long = self._clock() - _WITHOUT_PROFILE_SECONDS
        for pod in tuple(scheduler.without_profile.values()):
            pause()
            if scheduler.without_profile.get(pod.uid) is not pod:
                continue  # it has changed or gone meanwhile
            stray = self._strays[pod.uid]
            if stray.version == profiles.version or stray.since > waits_long:
                continue  # when the scheduler starts, profiles come one by one
            if scheduler.cluster.is_placed(pod):
                continue  # it is being bound
            if self._pipeline_of(pod) is not None:
                self.pending(pod)  # the profile came while the pod was assumed
                continue
            why = profiles.why_none(pod)
            if why is not None and profiles.awaits_namespace(pod, scheduler.cluster):
                why = _UNKNOWN_NAMESPACE
            stray.version = profiles.version
            if why is None:
                stray.perhaps_misspelt = True
            elif why != stray.told:
                stray.told = why
                self._reports.no_profile(pod, why)

    def _report_misspelt(self) -> None:
        before, names = self._clock() - _MISSPELT_SECONDS, set[str]()
        strays = takewhile(lambda each: each[1].since < before, self._strays.items())
        waiting = (uid for uid, stray in strays if stray.perhaps_misspelt)
        for uid in [*islice(waiting, _MISSPELT_AT_ONCE)]:
            pod, stray = self._scheduler.without_profile.get(uid), self._strays[uid]
            if pod is not None and pod.unscheduled_message is None:  # no scheduler knows it
                name = pod.spec.scheduler_name
                if name not in names and len(names) == _NAMES_AT_ONCE:
                    return
                names.add(name)
                meant = self._scheduler.profiles.did_you_mean(name)
                text = f'no SchedulingProfile is for schedulerName "{name}"{meant}'
                if meant and text != stray.told:
                    stray.told = text
                    self._reports.misspelt(pod, text)
            stray.perhaps_misspelt = False

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Pass the events to the queue; retry the groups and gated pods that the events concern."""
        events = tuple(events)
        if any(event.kind is Kind.HYPER_NODE for event in events):
            self._try_in_hyper_nodes()
        for event in events:
            if event.kind is Kind.NAMESPACE and (namespace := _relabelled(event)) is not None:
                self._unsettle(namespace)
            if event.kind in _GROUP_EVENTS:
                self._admit_group(event)
            elif (bound := self._bound_by_another(event)) is not None:
                decisions, node = self._scheduler.decisions, bound.node_name or ""
                decisions.bound_by_another(bound.uid, node, self._clock())
                self._admit_group(event)
            if event.kind is Kind.RESOURCE_CLAIM:
                self._try_after_claim(event)
            elif event.kind is Kind.RESOURCE_SLICE and event.before is event.after is None:
                # All devices are known now. A pod whose claims are not created yet comes in again.
                self._find_later(chain.from_iterable(self._of_claim.values()))
            if event.kind is Kind.POD and self._claims:
                self._forget_claims_after(event)
            self._take_back_after(event)
        if self._scheduler.queue.move_on_events(events, self._clock()):
            self._scheduler.work.set()

    def _note_claims(self, pod: Pod) -> None:
        self._forget_claims(pod.uid)
        keys = dict.fromkeys(claim_keys(pod) if pod.spec.resource_claims else ())
        if keys:
            self._claims[pod.uid] = keys
        for key in keys:
            self._of_claim.setdefault(key, {})[pod.uid] = None

    def _forget_claims(self, uid: Uid) -> None:
        for key in self._claims.pop(uid, ()):
            drop_item(self._of_claim, key, uid)

    def _forget_claims_after(self, event: ClusterEvent) -> None:
        pod = event.after or event.before  # kopf may never report that it is bound or deleted
        if isinstance(pod, Pod) and pod.uid not in self._scheduler.state.unscheduled:
            self._forget_claims(pod.uid)

    def _find_later(self, uids: Iterable[Uid]) -> None:
        self._unsettled.update(dict.fromkeys(uids))
        if self._unsettled or self._to_admit:
            self._is_unsettled.set()

    def _try_after_claim(self, event: ClusterEvent) -> None:
        before, after = event.before, event.after
        claim = after if after is not None else before
        if not isinstance(claim, ResourceClaim):
            return
        # Equal pods have other claims, so the event concerns only the owner.
        if claim.controller_uid and (after is not None or claim.for_extended_resources):
            self._scheduler.queue.try_after(Uid(claim.controller_uid), event, self._clock())
            self._scheduler.work.set()
        if after is None or _gate_of(before) == _gate_of(after):
            return  # a change that PreEnqueue does not read; such changes may be frequent
        pods = iter(tuple(self._of_claim.get(claim.key, ())))
        for uid in islice(pods, _FOUND_AT_ONCE):
            queued = self._scheduler.queue.get(uid)
            if queued is not None and queued.queue is SubQueue.GATED:
                self._add(queued.pod, queued.pipeline)
        self._find_later(pods)
        self._scheduler.work.set()

    def _bound_by_another(self, event: ClusterEvent) -> Pod | None:
        pod = event.after
        if event.kind is not Kind.POD or event.action is not Action.ADD or not isinstance(pod, Pod):
            return None
        placed = self._scheduler.state.pods.get(pod.uid)
        return pod if placed is not None and not placed.assumed else None

    def known(self) -> set[Uid]:
        """Return the uids of all pods without a node that are not in flight.

        Pods without a profile are included.
        """
        # Also of queued pods that another scheduler has bound.
        scheduler = self._scheduler
        known = {*scheduler.state.unscheduled, *scheduler.without_profile, *scheduler.queue.uids()}
        return known - self.in_flight()

    def in_flight(self) -> set[Uid]:
        """Return the uids of the pods with a running attempt, including bindings."""
        return {queued.pod.uid for queued in self._scheduler.queue.in_flight}

    def knows(self, uid: Uid) -> bool:
        """Return whether the pod waits for a node, is being scheduled, or is assumed or bound."""
        scheduler = self._scheduler
        return (
            uid in scheduler.without_profile
            or scheduler.queue.get(uid) is not None
            or scheduler.state.pods.get(uid) is not None
        )

    def _unsettle(self, namespace: str | None) -> None:
        """Find profiles again for the pods in the namespace, or for all pods if it is None."""
        without = self._scheduler.without_profile
        if namespace is None:
            uids: Iterable[Uid] = (*without, *self._scheduler.queue.uids())
        else:
            queued = (queued.pod for queued in self._scheduler.queue)
            pods = (*without.values(), *queued)
            uids = [pod.uid for pod in pods if pod.namespace == namespace]
        self._unsettled.update(dict.fromkeys(uids))
        with Work(self.find_profiles) as work:
            for _ in range(_FOUND_AT_ONCE):
                if work.advance():
                    break
        if self._unsettled:
            self._is_unsettled.set()
            for in_flight in self._scheduler.queue.in_flight:
                if in_flight.pod.uid in self._unsettled:
                    in_flight.outdated = True
        self._scheduler.work.set()

    def _find_profile(self, uid: Uid) -> None:
        queued = self._scheduler.queue.get(uid)
        if queued is not None:
            pipeline = self._pipeline_of(queued.pod)
            if pipeline is None:
                with self._scheduler.state.delivered_after():
                    self._set_aside(queued.pod)
            elif pipeline is not queued.pipeline or queued.gated:
                self._add(queued.pod, pipeline)
        elif (waiting := self._scheduler.without_profile.get(uid)) is not None:
            self.pending(waiting)
        self._scheduler.work.set()

    def _pipeline_of(self, pod: Pod) -> Pipeline | None:
        profiles, cluster = self._scheduler.profiles, self._scheduler.cluster
        if profiles.awaits_namespace(pod, cluster):
            return None  # another profile must not take the pod meanwhile
        profile = profiles.of(pod, cluster)
        return profile.pipeline if profile is not None else None

    def _set_aside(self, pod: Pod) -> None:
        self._scheduler.queue.remove(pod.uid, self._clock())
        # The plugins of its former profile may never answer.
        self._scheduler.waiting.reject(pod.uid, "", "no profile takes the pod any more")
        self._scheduler.state.withdraw(pod.uid)
        self._scheduler.without_profile[pod.uid] = pod
        self._strays.setdefault(pod.uid, _Stray(self._clock()))
        self._scheduler.decisions.without_profile(pod.key, pod.uid, self._clock())

    def _add(self, pod: Pod, pipeline: Pipeline, *, report: bool = False) -> None:
        if self._scheduler.without_profile.pop(pod.uid, None) is not None:
            self._strays.pop(pod.uid, None)
        now, decisions = self._clock(), self._scheduler.decisions
        gate = self._gate(pod, pipeline, report=report)
        gated = gate is not None
        state = self._scheduler.state
        unknown = state.dynamic_resources.unknown is not None and pod.spec.resource_claims
        if gated and not report and (unknown or state.pod_groups.key_of(pod) is not None):
            # It may wait for others: a group that is not complete, or devices that are not known.
            self._gated_since.setdefault(pod.uid, now)
        known = self._scheduler.queue.get(pod.uid)
        times = decisions.seen(pod.key, pod.uid, now, known.times if known is not None else None)
        self._scheduler.queue.add(pod, pipeline, now, gated=gated, times=times)
        if not gated:
            self._note_not_gated(pod)
        decisions.admitted(pod.uid, gate, now)

    def _note_not_gated(self, pod: Pod) -> None:
        group = self._scheduler.state.pod_groups.of(pod) if self._not_gated else None
        if group is not None and isinstance(self._not_gated.get(group), tuple):
            queued = self._scheduler.queue.get(pod.uid)
            if queued is not None:
                self._not_gated[group] = queued

    def _gate(self, pod: Pod, pipeline: Pipeline, *, report: bool) -> str | None:
        """Return the PreEnqueue plugin that rejects the pod, "" for another cause, else None."""
        if (limit := pod.limit_exceeded) is not None:
            queued = self._scheduler.queue.get(pod.uid)
            if queued is None or queued.pod is not pod:
                self._reports.error(pod, limit)  # once for each version of the pod
            return ""
        metrics = pipeline.metrics
        outer = metrics.begin_attempt()
        try:
            with metrics.extension_point(ExtensionPoint.PRE_ENQUEUE, pipeline.profile) as point:
                gate = first_gate(pipeline, pod)
                if gate is None:
                    return None
                plugin, rejection = gate
                point.status = status_of(rejection)
        except PluginFailed as failure:
            self._reports.error(pod, str(failure))
            return ""
        finally:
            metrics.end_attempt(outer)
        if report and plugin != _SCHEDULING_GATES:
            self._reports.gated(pod, rejection.reason)
        return plugin

    def _take_back_after(self, event: ClusterEvent) -> None:
        forgotten = event.before
        if event.kind is Kind.POD and event.after is None and isinstance(forgotten, Pod):
            pod = self._scheduler.without_profile.get(forgotten.uid)
            # The pod lost its profile while it was assumed.
            if pod is not None:
                self.pending(pod)


def _gate_of(claim: object | None) -> Hashable:
    if not isinstance(claim, ResourceClaim):
        return None
    # The fields that PreEnqueue reads.
    return claim.uid, claim.deleting, claim.controller_uid, claim.malformed


@dataclass(slots=True, eq=False)
class _Members:
    """The members of a large group for which PreEnqueue must run again."""

    group: PodGroupState
    left: Iterator[Uid]
    changed: bool
    """Whether members that are not gated are retried, too."""
    once_more: bool = False
    """Whether the group has changed since the first of these members was handled."""


@dataclass(slots=True, eq=False)
class _Stray:
    """A pod without a profile; `told` is its last report."""

    since: float
    version: int = -1
    """The value of `Profiles.version` when it was last checked why no profile takes the pod."""
    told: str | None = None
    perhaps_misspelt: bool = False
    """Whether the scheduler name must still be compared with the names of profiles."""


def _relabelled(event: ClusterEvent) -> str | None:
    before, after = event.before, event.after
    if not isinstance(after, Namespace):
        return None
    known = before.labels if isinstance(before, Namespace) else None
    return after.name if known != after.labels else None
