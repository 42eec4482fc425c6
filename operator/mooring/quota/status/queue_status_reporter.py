"""Writes the statuses of Queues that have changed, once per second if few have changed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NoReturn

from mooring.kube.api_resources import QUEUE, SIGS_ELASTIC_QUOTA, Resource
from mooring.kube.client import ApiClient
from mooring.kube.status_writer import StatusWriter
from mooring.kube.timestamps import rfc3339
from mooring.model.events import Kind
from mooring.model.resources import CPU
from mooring.pausing import pause
from mooring.quota.model.queue import Queue
from mooring.quota.state.queues import Queues
from mooring.quota.status.queue_status import (
    Amounts,
    QueueView,
    amount_quantity,
    queue_views,
    status_of,
)
from mooring.scheduling.scheduler_state import SchedulerState

ROUND_SECONDS: Final = 1.0
_PATCHED_AT_ONCE: Final = 5
"""The most statuses that are written in one round of ROUND_SECONDS. `views` is updated again only
when all changed statuses are written."""
_Served = Callable[[], Mapping[Kind, Resource]]
_LANES: Final = 2
"""The maximum number of status patches in flight; others wait."""
_COUNTED_PER_SECOND: Final = 5_000
"""The most waiting pods that are counted per second on average: after N of them, the next count
comes N / _COUNTED_PER_SECOND seconds later."""


class QueueStatusReporter:
    """Writes the statuses of Queues; `served` returns the API server's resources by kind.

    Attributes:
        views: The last known state of each Queue, by name.
    """

    def __init__(self, scheduler: SchedulerState, client: ApiClient, served: _Served) -> None:
        self.views: Mapping[str, QueueView] = {}
        self._scheduler = scheduler
        self._client = client
        self._served = served
        self._statuses = StatusWriter[str](
            "queues", self._write, lanes=_LANES, turn=scheduler.turn, sleep=scheduler.sleep
        )
        self._waiting: Mapping[str, int] = {}
        self._count_at = 0.0
        self._seen: object = None
        """The inputs from which `views` was computed last."""

    def nominal(self) -> dict[tuple[str, str], float]:
        """Return the quota of each Queue and resource in cores, bytes or counts."""
        return self._amounts(lambda amounts: amounts.nominal)

    def used(self) -> dict[tuple[str, str], float]:
        """Return the usage of each Queue and resource in cores, bytes or counts."""
        return self._amounts(lambda amounts: amounts.used)

    def waiting(self) -> dict[str, int]:
        """Return how many pods wait in each Queue, including the Queues below it."""
        return {name: view.waiting for name, view in self.views.items()}

    def _amounts(self, read: Callable[[Amounts], int]) -> dict[tuple[str, str], float]:
        return {
            (name, resource): read(amounts) / (1000 if resource == CPU else 1)
            for name, view in self.views.items()
            for resource, amounts in view.amounts.items()
        }

    async def run(self) -> None:
        """Write the statuses until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._statuses.run())
            tasks.create_task(self._look_at_all())

    async def _look_at_all(self) -> NoReturn:
        while True:
            changed = await self._scheduler.turn.run(self._update_views)
            for first in range(0, max(len(changed), 1), _PATCHED_AT_ONCE):
                self._statuses.note(*changed[first : first + _PATCHED_AT_ONCE])
                await self._statuses.settled()
                await self._scheduler.sleep(ROUND_SECONDS)

    def _update_views(self) -> list[str]:
        queues = self._scheduler.cluster.queues
        written = queues.written()
        if not written and not self.views:
            return []
        self._count_waiting(queues)
        versions = [(queue.uid, queue.generation) for queue in written.values()]
        if self._seen == (seen := (versions, queues.changes, self._waiting)):
            return []
        self._seen = seen
        before, self.views = self.views, queue_views(written, queues, self._waiting)
        for name, view in before.items():
            if name not in self.views or self.views[name].uid != view.uid:
                self._statuses.forget(name)
        return [name for name, view in self.views.items() if view != before.get(name)]

    def _count_waiting(self, queues: Queues) -> None:
        now = self._scheduler.clock()
        if now < self._count_at:
            return
        waiting, pods = Counter[str](), tuple(self._scheduler.queue)
        for queued in pods:
            pause()
            pod = queued.pod
            if queued.queue is None and self._scheduler.cluster.is_placed(pod):
                continue  # it is being bound
            state, label = queues.of(pod), queues.name_in(pod)
            if label and label not in queues.states:
                waiting[label] += 1
            elif state is not None:
                waiting[state.name] += 1
        self._waiting, self._count_at = waiting, now + len(pods) / _COUNTED_PER_SECOND

    async def _write(self, name: str) -> None:
        queue = self._scheduler.state.objects.of(Kind.QUEUE).get(name)
        if (view := self.views.get(name)) is None:
            return
        if queue is None:
            await self._write_elastic(name, view)
            return
        if queue.uid != view.uid:
            return  # it was created again; the next update of `views` finds it
        status = status_of(queue, view, rfc3339(self._scheduler.now()))
        if self._statuses.has_patched(name) or status != queue.status:
            patch = {"status": status}
            await self._statuses.patch(
                name, status, lambda: self._client.patch(QUEUE, name, patch, subresource="status")
            )

    async def _write_elastic(self, name: str, view: QueueView) -> None:
        elastic: Mapping[str, Queue] = self._scheduler.state.objects.of(Kind.ELASTIC_QUOTA)
        found = ((key, queue) for key, queue in elastic.items() if queue.uid == view.uid)
        key, quota = next(found, ("", None))
        if quota is None or (resource := self._served().get(Kind.ELASTIC_QUOTA)) is None:
            return
        amounts, before = view.amounts, quota.status.get("used") or {}
        named = amounts if quota.namespaces is None else quota.quotas
        used = {r: amount_quantity(r, amounts[r].used) for r in named if r in amounts}
        if self._statuses.has_patched(name) or used != before:
            namespace, _, own = key.partition("/")
            patch = {"status": {"used": dict.fromkeys(before) | used}}
            part = None if resource == SIGS_ELASTIC_QUOTA else "status"  # as in Koordinator's CRD
            write = partial(self._client.patch, resource, own, patch, subresource=part)
            await self._statuses.patch(name, used, partial(write, namespace=namespace))
