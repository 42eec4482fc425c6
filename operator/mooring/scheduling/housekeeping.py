"""Does the periodic work of the scheduler."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.kube.api_resources import POD
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.model.events import Kind
from mooring.model.manifest_error import ManifestError
from mooring.model.objects import parse_object
from mooring.model.pod import Pod
from mooring.process.time_slices import TimeSlices
from mooring.scheduling.assumed import unreserve
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.evictions import OLDER_SECONDS

logger = logging.getLogger(__name__)

PERMIT_SECONDS: Final = 1.0
CONFIRMATION_SECONDS: Final = 5.0
"""The seconds between two searches for bindings that the watch has not shown in time."""
ASK_AGAIN_SECONDS: Final = 60.0
"""The seconds after which a bound pod is read again if the watch still has not shown it."""


@dataclass(eq=False, repr=False)
class Housekeeping:
    """Runs the periodic work: ends waits at Permit, and reads pods that the watch shows too late.

    `periodic` maps further functions to their intervals in seconds. `unbound` is called with a pod
    that was reported as bound but has no node.
    """

    scheduler: SchedulerState
    client: ApiClient
    periodic: Mapping[Callable[[], object], float]
    unbound: Callable[[Pod], None]

    def __post_init__(self) -> None:
        self._clock = self.scheduler.clock

    async def run(self) -> None:
        """Do the periodic work until cancelled; a long call does not delay other work."""
        scheduler = self.scheduler
        own: dict[Callable[[], object], float] = {
            lambda: scheduler.waiting.expire(self._clock()): PERMIT_SECONDS,
            lambda: scheduler.state.grow_older(): OLDER_SECONDS,  # noqa: PLW0108 - its turn is later
        }
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(CONFIRMATION_SECONDS, self._settle_overdue))
            for work, seconds in {**own, **self.periodic}.items():
                tasks.create_task(self._every(seconds, self._run, work))

    async def _every(
        self, seconds: float, work: Callable[..., Coroutine[Any, Any, None]], *args: Any
    ) -> None:
        while True:
            await self.scheduler.sleep(seconds)
            await self.scheduler.turn.between(work, *args)

    async def _run(self, work: Callable[[], object]) -> None:
        await TimeSlices(clock=self._clock).run(work)

    async def _settle_overdue(self) -> None:
        # The watches never show a pod that ended just before the API server bound it.
        for pod in self.scheduler.state.overdue(self._clock()):
            try:
                await self._settle(pod)
            except (ApiError, ManifestError) as error:
                text = explain(error) if isinstance(error, ApiError) else str(error)
                logger.warning("pod %s is still unconfirmed: %s", pod.key, text)

    async def _settle(self, pod: Pod) -> None:
        """Ask the API server whether an assumed pod was bound, and correct the state."""
        with self.scheduler.departures.meanwhile() as gone:
            found = await self._read(pod)
            state = self.scheduler.state
            placed = state.pods.assumed.get(pod.uid)
            if placed is None:
                return  # the watches have shown something newer
            if found is None or found.finished:
                logger.warning(
                    "pod %s was bound and has gone; its node's resources are free", pod.key
                )
                self._undo(placed.pod)
                state.delete_unscheduled(pod.uid)
            elif found.node_name is None:
                logger.warning("pod %s was said to be bound and is not; it is tried again", pod.key)
                self._undo(placed.pod)
                if pod.uid not in gone:
                    self.unbound(found)
            elif found.node_name == placed.pod.node_name:
                # Still assumed: only the watch shows the later changes in their order.
                state.expect_confirmation(pod, self._clock() + ASK_AGAIN_SECONDS)
            else:
                state.put(Kind.POD, pod.uid, found)

    def _undo(self, pod: Pod) -> None:
        state = self.scheduler.state
        profile = self.scheduler.profiles.of(pod, self.scheduler.cluster)
        if profile is not None and pod.node_name is not None:
            unreserve(profile.pipeline, pod, pod.node_name)
        state.forget(pod)

    async def _read(self, pod: Pod) -> Pod | None:
        try:
            raw = await self.client.get(POD, pod.name, pod.namespace)
        except NotFoundError:
            return None
        found = parse_object(Kind.POD, raw)
        return found if found.uid == pod.uid else None
