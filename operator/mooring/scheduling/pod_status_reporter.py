"""Reports attempts to users: events and the PodScheduled condition.

Only the newest report about a pod is written. The first report that a pod is unschedulable waits
for up to a second: many pods have a node by then.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from mooring.kube.errors import (
    ApiError,
    ConflictError,
    KubeError,
    NotFoundError,
    denied_by_admission,
    exceeds_quota,
)
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.status_writer import RETRIED, StatusWriter
from mooring.kube.timestamps import rfc3339
from mooring.kube.writes import PodWriter
from mooring.model.objects import is_older
from mooring.model.pod import Pod
from mooring.model.workloads import PriorityClass
from mooring.pausing import pause
from mooring.policy.profile_status import LONGEST_MESSAGE

_LANES: Final = 4
"""The most status patches in flight; others wait. kube-scheduler has no such limit, so its patches
delayed bindings (kubernetes#142123)."""
_MOST_CLASSES: Final = 3
"""The most PriorityClasses with one value that an event names; it omits the others."""
_NOMINATION: Final = "nominatedNodeName"
"""The field of a pod's status that names the nominated node."""


class PodScheduledReason(StrEnum):
    """The reason if a pod's PodScheduled condition is False.

    A cluster autoscaler adds nodes for UNSCHEDULABLE only, so every other reason means that new
    nodes would not help.
    """

    UNSCHEDULABLE = "Unschedulable"
    """No node fits now, as in kube-scheduler."""
    SCHEDULER_ERROR = "SchedulerError"
    """The attempt failed, or the pod exceeds a limit; as in kube-scheduler."""
    SCHEDULING_GATED = "SchedulingGated"
    """A PreEnqueue plugin holds the pod back. For scheduling gates the API server writes the
    condition."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota forbids a write of the binding."""
    ADMISSION_DENIED = "AdmissionDenied"
    """An admission policy or webhook forbids a write of the binding."""
    BINDING_CONFLICT = "BindingConflict"
    """The API server has the pod or a volume in another state than the binding expected."""
    NO_PROFILE = "NoProfile"
    """The pod had a profile of Mooring before, and no profile takes it now."""


def failure_reason(error: KubeError) -> PodScheduledReason:
    """Return the reason for the condition of a pod whose binding ended with this error."""
    if exceeds_quota(error):
        return PodScheduledReason.QUOTA_EXCEEDED
    if denied_by_admission(error):
        return PodScheduledReason.ADMISSION_DENIED
    if isinstance(error, ConflictError):
        return PodScheduledReason.BINDING_CONFLICT
    return PodScheduledReason.SCHEDULER_ERROR


@dataclass(eq=False, repr=False)
class PodStatusReporter:
    """Writes the statuses of pods, and events about pods.

    Most methods only store a report, which `run` writes. `priority_classes` has the cluster's
    current PriorityClasses by name.
    """

    writer: PodWriter
    recorder: EventRecorder
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._statuses = StatusWriter[str]("pods", self._write, lanes=_LANES, sleep=self.sleep)
        self._new: dict[str, tuple[Pod, str]] = {}
        """The unschedulable pods without a report, with the reasons, by the pod's uid."""
        self._pending: dict[str, tuple[Pod, dict[str, Any]]] = {}
        """The pods, with the fields of their statuses that are still to be written, by uid."""
        self._told: dict[str, _Told] = {}
        """The status that each pod will have when the pending fields are written, by uid."""
        self._nominating: dict[str, str] = {}
        """By uid, the version that the pod got when its nomination was written; "" until then."""

    async def run(self) -> None:
        """Write reports until the task is cancelled."""
        await self._statuses.run()

    async def written(self, pod: Pod) -> None:
        """Wait until no report about the pod is being written."""
        await self._statuses.written(pod.uid)

    def scheduled(self, pod: Pod, node: str) -> None:
        """Report that the pod is bound."""
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self.recorder.record(_reference(pod), "Normal", "Scheduled", "Binding", note)

    def unschedulable(self, pod: Pod, message: str, nominated: str | None = None) -> None:
        """Report that no node fits the pod now.

        The first report about a pod without a nomination waits for `report_new`.
        """
        # Other schedulers must know a nomination soon.
        if nominated is None and self._told_about(pod) == _NOTHING:
            self._new[pod.uid] = pod, message
        else:
            self._failed(pod, PodScheduledReason.UNSCHEDULABLE, message, nominated)

    def report_new(self) -> None:
        """Report the pods that have become unschedulable; the caller calls it each second."""
        for uid in [*self._new]:
            if (new := self._new.get(uid)) is not None:
                self._failed(new[0], PodScheduledReason.UNSCHEDULABLE, new[1], None)
            pause()

    def error(
        self,
        pod: Pod,
        message: str,
        reason: PodScheduledReason = PodScheduledReason.SCHEDULER_ERROR,
    ) -> None:
        """Report that the attempt ended with an error, or that there will be no attempt."""
        self._failed(pod, reason, message, None)

    def gated(self, pod: Pod, message: str) -> None:
        """Report why the pod may not enter the queue yet, once for each message."""
        if self._told_about(pod).message != message:
            # A cluster autoscaler adds no nodes for this reason: new nodes would not help.
            reason = PodScheduledReason.SCHEDULING_GATED
            self._failed(pod, reason, message, pod.nominated_node)

    def no_profile(self, pod: Pod, message: str) -> None:
        """Report that no profile takes the pod any more; the pod loses its nomination."""
        self._failed(pod, PodScheduledReason.NO_PROFILE, message, None)

    def misspelt(self, pod: Pod, message: str) -> None:
        """Record an event: the scheduler name may be misspelt. The status stays unchanged."""
        self._record_failure(pod, message)

    def preempted(self, victim: Pod, preemptor: Pod, node: str, why: str = "") -> None:
        """Record an event about the victim: which pod preempts it, and why.

        Without `why`, the event says the priorities of both pods.
        """
        priority, own = self._priority(preemptor), self._priority(victim)
        why = f"because {why}" if why else f"to make room for priority {priority}; its own is {own}"
        self.recorder.record(
            _reference(victim),
            "Normal",
            "Preempted",
            "Preempting",
            f"Preempted by pod {preemptor.uid} on node {node} {why}",
            related=_reference(preemptor),
        )

    def preempting(self, preemptor: Pod, victims: Sequence[Pod], node: str) -> None:
        """Record an event about the preemptor: which victims are evicted for it."""
        chosen = ", ".join(f"{v.key} (priority {self._priority(v)})" for v in victims)
        note = f"Making room on node {node} by evicting {chosen}"
        self.recorder.record(_reference(preemptor), "Normal", "Preempting", "Preempting", note)

    def preemption_failed(self, preemptor: Pod, why: str) -> None:
        """Record an event about the preemptor: why its victims are not evicted."""
        note = f"Preemption is abandoned: {why}"
        self.recorder.record(
            _reference(preemptor), "Warning", "FailedPreemption", "Preempting", note
        )

    async def mark_disrupted(
        self,
        victim: Pod,
        preemptor: Pod,
        wanted: Callable[[], bool] | None = None,
        *,
        why: str = "",
    ) -> None:
        """Write into the victim's status that the victim is about to be deleted, and why.

        Without `why`, the reason is the preemptor's higher priority.

        Raises:
            NotWantedError: `wanted` returned False, so nothing was sent.
            ApiError: The API server rejected the write.
        """
        why = f"because {why}" if why else "to accommodate a higher priority pod"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{preemptor.spec.scheduler_name}: preempting {why}",
            "lastTransitionTime": rfc3339(self.now()),
            **_observed(victim),
        }
        with suppress(ConflictError, NotFoundError):  # the victim changed or is gone
            await self.writer.patch_pod_status(
                victim.namespace,
                victim.name,
                victim.uid,
                {"conditions": [condition]},
                wanted=wanted,
            )

    def nomination_cleared(self, pod: Pod) -> None:
        """Report that the pod's nomination was withdrawn."""
        self._told[pod.uid] = self._told_about(pod)._replace(nominated=None)
        self._write_soon(pod, {_NOMINATION: None})

    def is_nominated_by_status(self, pod: Pod) -> bool:
        """Remember the nomination in the pod's status; return whether it is the newest nomination.

        Returns False until the watch has shown the nomination that this scheduler wrote last.
        """
        if (told := self._told.get(pod.uid)) is not None:
            self._told[pod.uid] = told._replace(nominated=pod.nominated_node)
        written = self._nominating.get(pod.uid)
        if written is not None and (not written or is_older(pod.version, written)):
            return False
        self._nominating.pop(pod.uid, None)
        return True

    def _priority(self, pod: Pod) -> str:
        value = pod.spec.priority
        classes = self.priority_classes.values()
        names = sorted(known.name for known in classes if known.value == value)
        return f"{value} ({', '.join(names[:_MOST_CLASSES])})" if names else str(value)

    def forget(self, uid: str) -> None:
        """Drop unwritten reports about a pod that was deleted or bound, or is about to be bound."""
        self._new.pop(uid, None)
        self._told.pop(uid, None)
        self._pending.pop(uid, None)
        self._nominating.pop(uid, None)
        self._statuses.forget(uid)

    def _failed(
        self, pod: Pod, reason: PodScheduledReason, message: str, nominated: str | None
    ) -> None:
        self._new.pop(pod.uid, None)
        self._record_failure(pod, message)
        before, told = self._told_about(pod), _Told(reason, _valid(message), nominated)
        if told == before:
            return
        first = pod.unscheduled_message is None and pod.uid not in self._told
        self._told[pod.uid] = told
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": told.message,
            # Left out later: only the message changes, and the condition's other fields stay.
            **({"lastTransitionTime": rfc3339(self.now())} if first else {}),
            **_observed(pod),
        }
        nomination = {_NOMINATION: nominated} if nominated != before.nominated else {}
        self._write_soon(pod, {"conditions": [condition], **nomination})

    def _record_failure(self, pod: Pod, message: str) -> None:
        note = _valid(message)
        self.recorder.record(_reference(pod), "Warning", "FailedScheduling", "Scheduling", note)

    def _told_about(self, pod: Pod) -> "_Told":
        if (told := self._told.get(pod.uid)) is not None:
            return told
        return _Told(pod.unscheduled_reason, pod.unscheduled_message or "", pod.nominated_node)

    def _write_soon(self, pod: Pod, status: dict[str, Any]) -> None:
        _, pending = self._pending.get(pod.uid, (pod, {}))
        self._pending[pod.uid] = pod, {**pending, **status}
        if _NOMINATION in status:
            self._nominating[pod.uid] = ""
        self._statuses.note(pod.uid)

    async def _write(self, uid: str) -> None:
        if uid not in self._pending:
            return
        pod, status = self._pending.pop(uid)
        try:
            version = await self.writer.patch_pod_status(pod.namespace, pod.name, uid, status)
        except RETRIED:
            if uid in self._told:
                _, newer = self._pending.get(uid, (pod, {}))
                self._pending[uid] = pod, {**status, **newer}
            raise
        except (NotFoundError, ConflictError):
            self.forget(uid)  # the pod is gone
            raise
        except ApiError:
            self._told.pop(uid, None)
            self._answered(uid, status, "")
            raise
        self._answered(uid, status, version)

    def _answered(self, uid: str, status: Mapping[str, Any], version: str) -> None:
        newer = self._pending[uid][1] if uid in self._pending else {}
        if _NOMINATION in status and _NOMINATION not in newer and uid in self._nominating:
            self._nominating[uid] = version
            if not version:  # the write failed
                del self._nominating[uid]


class _Told(NamedTuple):
    """The reason and message of a pod's condition, and its nominated node."""

    reason: str | None
    message: str
    nominated: str | None


_NOTHING: Final = _Told(None, "", None)


def _observed(pod: Pod) -> dict[str, int]:
    return {"observedGeneration": pod.generation} if pod.generation else {}


def _valid(message: str) -> str:
    return message[:LONGEST_MESSAGE].encode(errors="replace").decode()


def _reference(pod: Pod) -> ObjectRef:
    return ObjectRef("Pod", pod.name, pod.namespace, pod.uid)
