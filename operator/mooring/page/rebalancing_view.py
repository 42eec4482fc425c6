"""Shows the last plan of each profile in the view Rebalancing, and makes plans on request."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from mooring.framework.plugin import by_priority
from mooring.framework.verdicts import PluginError
from mooring.groups.search.search_budget import TURN_SECONDS, SearchBudget
from mooring.kube.timestamps import rfc3339
from mooring.page.turns import Turns
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.process.time_slices import REST, TimeSlices
from mooring.rebalancing.plan import Why
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.report import (
    PlannedStep,
    PlanReport,
    RebalancingReport,
    plan_report,
    with_nodes,
)
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.simulate.manifests import InputError

_MOST_DECISIONS: Final = 5_000
"""The most decisions of a plan on request, which then says that its budget is used up."""
_MOST_PENDING: Final = 200
"""The most pending pods, the highest priority first, for which a plan on request makes room."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan; without `goals`, the goals of the profile apply."""

    profile: str
    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownProfile:
    """A profile, its plan, and the moves of this plan.

    Attributes:
        mode: None if the profile has no section `rebalancing`.
        done: How many moves of all its plans ended with a ready replacement on the target.
        message: The current activity, or why the last plan was not carried out to its end.
        under_way: The moves that have begun and not ended.
    """

    profile: str
    mode: str | None
    goals: tuple[str, ...]
    done: int
    message: Why
    under_way: tuple[PlannedStep, ...]
    latest: PlanReport | None


@dataclass(eq=False, repr=False)
class PlansView:
    """Reads the plans of the leader; `reports` returns them.

    `clock` is monotonic, `now` the time since the epoch, both in seconds.
    """

    scheduler: SchedulerState
    reports: Callable[[], Iterable[RebalancingReport]]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    _turns: Turns = field(default_factory=Turns, init=False)

    def document(self) -> Mapping[str, Any]:
        """Return the profiles in force with their plans, as a document."""
        reports = {report.profile: report for report in self.reports()}
        in_force = sorted(self.scheduler.profiles.in_force.items())
        return {"profiles": [self._profile(*each, reports.get(each[0])) for each in in_force]}

    def _profile(
        self, name: str, entry: ActiveProfile, report: RebalancingReport | None
    ) -> ShownProfile:
        section = entry.profile.spec.rebalancing
        mode, goals = (section.mode, tuple(section.goals)) if section is not None else (None, ())
        if report is None or section is None:
            return ShownProfile(name, mode, goals, 0, "", (), None)
        cluster, plan = self.scheduler.cluster, report.plan
        latest = with_nodes(plan, cluster) if plan is not None else None
        return ShownProfile(
            name, mode, goals, report.done, report.message, report.under_way, latest
        )

    async def planned(self, wanted: PlanRequest) -> PlanReport:
        """Make a plan now and return it.

        Raises InputError for an unknown profile or contradictory goals, TrialsBusy if too many
        requests wait, and TooLongError if the plan takes too long.
        """
        async with self._turns.turn("choose fewer goals"):
            entry = self.scheduler.profiles.in_force.get(wanted.profile)
            if entry is None:
                raise InputError(f'there is no profile "{wanted.profile}" in force')
            section = _section(entry, wanted.goals)
            rest = TimeSlices(0.0, rest=REST, clock=self.clock)
            try:
                made = partial(self._report, entry, section)
                report = await self.scheduler.turn.run(made, rest)
            except PluginError as error:
                raise InputError(str(error)) from None
            await rest.pause()
            return replace(report, time=rfc3339(self.now()))

    def _report(self, entry: ActiveProfile, section: Rebalancing) -> PlanReport:
        from mooring.rebalancing.planner import (  # noqa: PLC0415 - few ask for plans
            make_plan,
            takes_of,
        )

        scheduler, cluster = self.scheduler, self.scheduler.cluster
        waiting = [
            queued
            for queued in scheduler.queue
            if queued.pipeline is entry.pipeline and queued.times.state is PodState.UNSCHEDULABLE
        ]
        until = self.clock() + TURN_SECONDS
        planning = Planning(
            ResultCache(cluster),
            entry.pipeline,
            section,
            takes_of(scheduler.profiles, entry, cluster),
            now=self.now,
            budget=SearchBudget(_MOST_DECISIONS, lambda: self.clock() >= until),
            pending=[queued.pod for queued in sorted(waiting, key=by_priority)[:_MOST_PENDING]],
        )
        report = plan_report(entry.profile.name, section, make_plan(planning))
        return with_nodes(report, cluster)


def _section(entry: ActiveProfile, goals: tuple[Goal, ...]) -> Rebalancing:
    section = entry.profile.spec.rebalancing or Rebalancing()
    if not goals:
        return section
    chosen = section.model_copy(update={"goals": tuple(dict.fromkeys(goals))})
    for mistake in chosen.mistakes():
        raise InputError(str(mistake))
    return chosen
