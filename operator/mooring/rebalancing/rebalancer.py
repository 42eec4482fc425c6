"""Plans moves for each profile with a section `rebalancing`, and makes them in mode Apply.

It works while this replica leads. `profile_rebalancing.py` handles the plans and moves of one
profile.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from mooring.kube.status_writer import ProfileSectionWriter
from mooring.rebalancing.profile_rebalancing import LOOK_SECONDS, Parts, ProfileRebalancing
from mooring.rebalancing.record import RecentEvictions, Record
from mooring.rebalancing.report import RebalancingReport


class Rebalancer:
    """Rebalances the profiles that are in force; writes and shows their statuses."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._records: dict[str, Record] = {}
        self._works: dict[str, tuple[ProfileRebalancing, asyncio.Task[NoReturn]]] = {}
        """Maps the name of a profile in force to the object that makes its plans, and to the
        object's task."""
        self._statuses = ProfileSectionWriter(
            parts.profiles,
            "rebalancing",
            self._works.keys,
            self._status,
            turn=parts.scheduler.turn,
            sleep=parts.scheduler.sleep,
        )

    async def run(self) -> None:
        """Work until cancelled; then stop all moves and release the room of their replacements."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._parts.scheduler.turn.between(self._follow))
                tasks.create_task(self._statuses.run())
        finally:
            left = [*(task for _, task in self._works.values()), *self._parts.moves]
            self._works.clear()
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
            self._parts.scheduler.turn.post(self._forget_moves)

    def _forget_moves(self) -> None:
        # Their tasks were cancelled before they ran.
        for under_way in tuple(self._parts.expected.moves):
            self._parts.expected.forget(under_way)

    async def finish(self, seconds: float) -> None:
        """Wait for the answers to evictions that were sent; cancel them after `seconds`."""
        if self._parts.evictions:
            _, late = await asyncio.wait(self._parts.evictions, timeout=max(0.0, seconds))
            for task in late:
                task.cancel()

    def profile_found(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Record the profile's uid; on the first call for a profile also its stored status.

        Call it before the profile is put in force.
        """
        if name not in self._records:
            self._records[name] = self._new_record(name)
            self._records[name].found = status.get("rebalancing")
        self._records[name].uid = uid

    def report(self) -> tuple[RebalancingReport, ...]:
        """Return a report for each profile with a section `rebalancing`, sorted by profile name."""
        works = (work for work, _ in self._works.values())
        reports = (work.record.report(work.entry.profile) for work in works)
        return tuple(sorted(reports, key=lambda report: report.profile))

    def planned(self) -> dict[str, int]:
        """Return the number of moves in the last plan of each profile, by name."""
        plans = {name: work.record.plan for name, (work, _) in self._works.items()}
        return {name: plan.moves for name, plan in plans.items() if plan is not None}

    def _new_record(self, name: str) -> Record:
        scheduler, expected = self._parts.scheduler, self._parts.expected
        return Record(
            name, expected, scheduler.now, scheduler.clock, RecentEvictions(scheduler.clock)
        )

    async def _follow(self) -> NoReturn:
        """Run a task for each profile with rebalancing; cancel the tasks of older versions."""
        parts = self._parts
        while True:
            in_force = parts.scheduler.profiles.in_force
            for name, (work, task) in tuple(self._works.items()):
                if in_force.get(name) is not work.entry:
                    task.cancel()
                    del self._works[name]
                    for under_way in work.record.under_way:
                        parts.expected.give_back(under_way)  # its replacement is still awaited
            for name, entry in in_force.items():
                section = entry.profile.spec.rebalancing
                if section is not None and name not in self._works:
                    record = self._records.setdefault(name, self._new_record(name))
                    write = partial(self._statuses.write, name)
                    work = ProfileRebalancing(entry, section, record, parts, write)
                    steps = parts.scheduler.turn.between(work.run)
                    self._works[name] = work, asyncio.create_task(steps)
            for name, record in tuple(self._records.items()):
                if name not in self._works and not record.in_flight and not len(record.evictions):
                    del self._records[name]
            await parts.scheduler.sleep(LOOK_SECONDS)

    def _status(self, name: str) -> dict[str, Any] | None:
        known = self._works.get(name)
        return known[0].record.status() if known is not None else None
