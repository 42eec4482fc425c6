"""Handles the objects that kopf reads: pods without a node, SchedulingProfiles, PriorityClasses."""

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mooring.handlers.profile_handler import ProfileStatusWriter
from mooring.mirroring.mirror import ACTIONS, parsed_or_none
from mooring.model.events import Action, Kind, event_label
from mooring.model.objects import identity, object_key
from mooring.model.pod import Pod, Uid
from mooring.pausing import worked
from mooring.policy.profile import API_VERSION, KIND
from mooring.policy.rules.rule import plan_one_by_one
from mooring.process.time_slices import TimeSlices
from mooring.process.turn import Turn
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.state.cluster import ClusterState

logger = logging.getLogger(__name__)

_USUAL_BYTES: Final = 4096
"""The number of bytes to assume for a pod's event if kopf does not tell the size."""


@dataclass(eq=False, repr=False)
class ObjectHandlers:
    """Handles the objects that kopf reads; the methods `on_...` are kopf's handlers.

    The state changes only while no other task holds the lock `turn`. `listed` is called when kopf
    has listed a resource again, `seen` with each queued pod and its raw object, and `handled` after
    each event of a pod, with the event's label and the seconds taken.
    """

    pod_enqueuer: PodEnqueuer
    profiles: ProfileStatusWriter
    state: ClusterState
    turn: Turn
    listed: Callable[[], None]
    seen: Callable[[Pod, Mapping[str, Any]], None] = lambda _pod, _raw: None
    handled: Callable[[str, float], None] = lambda _event, _seconds: None
    clock: Callable[[], float] = time.monotonic

    async def on_pod(self, event: Mapping[str, Any], **_: Any) -> None:
        """Queue a pod, or remove it if it got a node or was deleted, once the `turn` is free."""
        # kopf gives no type to what it lists, which is new to it.
        action = ACTIONS.get(event["type"], Action.ADD)
        self._note_listing(event)
        take_in = partial(self._take_in_event, action, event["object"])
        size = event.get("size", _USUAL_BYTES)
        await self.turn.deliver(take_in, size, TimeSlices(clock=self.clock))

    async def on_pods(self, pods: list[dict[str, Any]]) -> None:
        """Queue the pods of kopf's first list; other tasks run in between."""
        self.listed()
        slices = TimeSlices(clock=self.clock)
        for raw in pods:
            raw.update(kind="Pod", apiVersion="v1")  # which items of a list do not have
            async with self.turn:
                await slices.run(partial(self._take_in_event, Action.ADD, raw))
            await slices.pause()

    async def pod_read(self, raw: Mapping[str, Any]) -> None:
        """Queue a pod that was read with GET, unless the watch has shown the pod meanwhile."""
        await self.turn.between(self._pod_read, raw)

    async def _pod_read(self, raw: Mapping[str, Any]) -> None:
        with self.pod_enqueuer.departures.meanwhile() as gone:
            pod = await TimeSlices(clock=self.clock).run(partial(parsed_or_none, Kind.POD, raw))
        if pod is not None and pod.uid not in gone and not self.pod_enqueuer.knows(pod.uid):
            self._take_in(pod, raw)

    def _take_in_event(self, action: Action, raw: Mapping[str, Any]) -> None:
        began = worked(self.clock)
        try:
            if action is Action.DELETE:
                self.pod_enqueuer.gone(Uid(identity(Kind.POD, raw)))
            elif (pod := parsed_or_none(Kind.POD, raw)) is not None:
                self._take_in(pod, raw)
        except Exception:  # as kopf does with what a handler raises
            logger.exception("a pod is not queued: %.300r", raw)
        else:
            seconds = worked(self.clock) - began
            self.handled(event_label(Kind.UNSCHEDULED_POD, action), seconds)

    def _take_in(self, pod: Pod, raw: Mapping[str, Any]) -> None:
        if pod.node_name is not None or pod.finished:
            return
        # Of a terminating pod, only an earlier version may be in the queue.
        if not pod.terminating or self.pod_enqueuer.knows(pod.uid):
            self.seen(pod, raw)
            self.pod_enqueuer.pending(pod)

    async def on_profile(self, event: Mapping[str, Any], **_: Any) -> None:
        """Put a profile in force or take it out of force."""
        await self.turn.between(self._on_profile, event)

    async def _on_profile(self, event: Mapping[str, Any]) -> None:
        raw = event["object"]
        self._note_listing(event)
        if event["type"] == "DELETED":
            await self.profiles.gone(raw["metadata"]["name"], raw["metadata"]["uid"])
        else:
            await TimeSlices(clock=self.clock).run(partial(plan_one_by_one, raw))
            await self.profiles.found(raw)

    async def profiles_read(
        self, profiles: Iterable[Mapping[str, Any]], gone: Container[str]
    ) -> None:
        """Put `profiles` in force, except known profiles and profiles with a uid in `gone`."""
        slices = TimeSlices(clock=self.clock)
        for item in profiles:
            raw = {"apiVersion": API_VERSION, "kind": KIND, **item}  # which a list may leave out
            try:
                await slices.run(partial(plan_one_by_one, raw))
                if raw["metadata"]["uid"] not in gone:
                    await self.profiles.read(raw)
            except Exception:
                logger.exception("a profile is not put in force: %.300r", raw)
            await slices.pause()

    async def on_priority_class(self, event: Mapping[str, Any], **_: Any) -> None:
        """Put a PriorityClass into the state, or remove it."""
        self.turn.post(partial(self._take_in_priority_class, event))

    def _take_in_priority_class(self, event: Mapping[str, Any]) -> None:
        raw = event["object"]
        key = object_key(Kind.PRIORITY_CLASS, raw)
        if event["type"] == "DELETED":
            self.state.delete(Kind.PRIORITY_CLASS, key)
        elif (value := parsed_or_none(Kind.PRIORITY_CLASS, raw)) is not None:
            self.state.put(Kind.PRIORITY_CLASS, key, value)

    def _note_listing(self, event: Mapping[str, Any]) -> None:
        if event["type"] is None:
            self.listed()
