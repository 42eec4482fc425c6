"""Readers who ask for suggestions, for plans of moves, and for the nodes of new pods.

The answers come from trials on the live state, between decisions about other pods.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import orjson

from mooring.framework.verdicts import PluginError
from mooring.kube.api_resources import POD, POD_GROUP
from mooring.page.rebalancing_view import PlanRequest, PlansView
from mooring.page.trials import TryRequest, WhatIfRunner
from mooring.page.turns import TrialsBusy
from mooring.policy.rebalancing import Goal
from mooring.scheduling.pod_report import PodReportBuilder
from mooring.simulate.manifests import InputError
from mooring.testing.builders import pod, pod_group
from simulation.actors.rebalancing import MOVED
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from mooring.run.build import Engine
    from simulation.replica import Replica
    from simulation.world import World


QUESTIONS: Final = ("explain", "group", "plan", "try")
"""What may be asked."""
_GROUP: Final = "tried"


class Readers(Actor):
    """Asks all replicas at once, in some runs."""

    name = "readers"

    def draw(self, plan: Plan) -> None:
        """Draw the questions and their times."""
        random = plan.random
        if not plan.chance(0.3):
            return
        for _ in range(random.choice((2, 5, 10))):
            does = random.choice(("explain", *QUESTIONS))
            plan.step(plan.time(), self.name, does, number=random.randrange(20))

    def act(self, world: "World", step: Step) -> None:
        """Let each replica that mirrors the cluster answer the question."""
        world.coverage.note_question(world, step.does)
        for replica in world.replicas.values():
            scheduler = replica.scheduler
            if not replica.running or scheduler is None:
                continue
            engine = scheduler.engine
            # Not asked of one whose attempt pauses: to look notes what devices are known.
            if engine.scheduler.turn.holder is not None or scheduler.is_current():
                asked = engine.scheduler.turn.between(self._asked, world, replica, engine, step)
                replica.answer(asked)

    async def _asked(
        self, world: "World", replica: "Replica", engine: "Engine", step: Step
    ) -> None:
        number: int = step.args["number"]
        ask = {
            "explain": self._explain,
            "group": self._explain_group,
            "plan": self._plan,
            "try": self._try,
        }[step.does]
        try:
            await ask(world, replica, engine, number)
        except (InputError, PluginError, TrialsBusy):
            pass  # what people are told
        except Exception as error:  # noqa: BLE001 - a mistake of Mooring's own
            world.fail(f"whoever asks is answered: {step.does}: {error!r} (at {world.now:.3f})")

    async def _explain(
        self, world: "World", _replica: "Replica", engine: "Engine", number: int
    ) -> None:
        pods = [*world.server.storage.all(POD)]
        waiting = [raw for raw in pods if not raw["spec"].get("nodeName")] or pods
        if waiting:
            metadata = waiting[number % len(waiting)]["metadata"]
            await _reports(engine).of(f"{metadata['namespace']}/{metadata['name']}")

    async def _explain_group(
        self, world: "World", _replica: "Replica", engine: "Engine", number: int
    ) -> None:
        if groups := [*world.server.storage.all(POD_GROUP)]:
            metadata = groups[number % len(groups)]["metadata"]
            await _reports(engine).of_groups(metadata["namespace"], metadata["name"])

    async def _plan(
        self, _world: "World", replica: "Replica", engine: "Engine", number: int
    ) -> None:
        scheduler, report = engine.scheduler, engine.rebalancer.report
        view = PlansView(scheduler, report, clock=replica.clock, now=replica.now)
        rest = Goal.PACK if number % 2 else Goal.SPREAD
        goals = (Goal.VIOLATIONS, Goal.MAKE_ROOM, rest)
        await view.planned(PlanRequest(MOVED if number % 3 else SCHEDULER, goals))

    async def _try(
        self, _world: "World", replica: "Replica", engine: "Engine", number: int
    ) -> None:
        runner = WhatIfRunner(
            engine.scheduler, engine.registry, clock=replica.clock, now=replica.now
        )
        text = b"\n".join(map(orjson.dumps, _tried(number)))
        await runner.tried(TryRequest(text.decode(), profile=SCHEDULER), _everything)


async def _everything(namespaces: Iterable[str]) -> set[str]:
    return set(namespaces)


def _reports(engine: "Engine") -> PodReportBuilder:
    return PodReportBuilder(engine.scheduler, groups=engine.group_reports.report)


def _tried(number: int) -> list[dict[str, Any]]:
    """Return pods to try; some preempt, some are in a gang."""
    fields: dict[str, Any] = {"namespace": NAMESPACE, "cpu": "1", "priority": number % 4 * 500}
    pods = [pod(f"tried-{index}", **fields) for index in range(1 + number % 3)]
    if number % 5:
        return pods
    members = [pod(f"member-{index}", group=_GROUP, **fields) for index in range(3)]
    return [pod_group(_GROUP, 2, namespace=NAMESPACE), *members, *pods]
