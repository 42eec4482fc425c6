"""Finds pods by a part of their names, to complete a name on the page."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from mooring.pausing import pause
from mooring.process.time_slices import REST, TimeSlices
from mooring.scheduling.scheduler_state import SchedulerState

MOST_FOUND: Final = 10

_Ranked = dict[tuple[bool, str], str | None]
"""The node of each pod, or None. The key sorts pods whose name begins with the text first: it is
(False if the name begins with the text, "namespace/name")."""


@dataclass(eq=False, repr=False)
class PodSearch:
    """Finds pods by text, one search at a time; `clock` is monotonic, in seconds."""

    scheduler: SchedulerState
    clock: Callable[[], float] = time.monotonic
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def find(
        self, text: str, may_see: Callable[[Iterable[str]], Awaitable[frozenset[str]]]
    ) -> dict[str, Any]:
        """Return the first pods whose "namespace/name" contains the text, as JSON values.

        Pods whose name begins with the text come first. `may_see` returns which of the given
        namespaces the user may see; pods of other namespaces are left out.
        """
        if not text:
            return {"pods": [], "more": False}
        async with self._one_at_a_time:
            of_namespaces = await self._of_namespaces(text)
        namespaces = sorted(of_namespaces, key=lambda name: min(of_namespaces[name]))
        visible = await may_see(namespaces)
        found = sorted(chain.from_iterable(of_namespaces[name].items() for name in visible))
        return {
            "pods": [{"pod": key, "node": node} for (_, key), node in found[:MOST_FOUND]],
            "more": len(found) > MOST_FOUND,
        }

    async def _of_namespaces(self, text: str) -> dict[str, _Ranked]:
        """Return, by namespace, the first pods whose "namespace/name" contains `text`."""
        found: dict[str, _Ranked] = {}

        def steps() -> None:
            for namespace, name, node in self._pods():
                pause()
                key = f"{namespace}/{name}"
                if text in key:
                    inside = not (name.startswith(text) or key.startswith(text))
                    ranked = found.setdefault(namespace, {})
                    ranked[inside, key] = node
                    if len(ranked) > 20 * MOST_FOUND:
                        found[namespace] = _first(ranked)

        await TimeSlices(rest=REST, clock=self.clock).run(steps)
        return {namespace: _first(ranked) for namespace, ranked in found.items()}

    def _pods(self) -> Iterator[tuple[str, str, str | None]]:
        # A pod that is bound meanwhile may come twice.
        scheduler = self.scheduler
        for queued in scheduler.queue:
            yield queued.pod.namespace, queued.pod.name, None
        for pod in tuple(scheduler.without_profile.values()):
            yield pod.namespace, pod.name, None
        for placed in tuple(scheduler.state.pods):
            yield placed.pod.namespace, placed.pod.name, placed.pod.node_name


def _first(ranked: _Ranked) -> _Ranked:
    return {order: ranked[order] for order in sorted(ranked)[: MOST_FOUND + 1]}
