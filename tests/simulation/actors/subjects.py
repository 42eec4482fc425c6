"""Decides whether a run is about one subject, without the steps of most other actors.

Among many actors, rare situations hardly occur, and the expected result is often unknown. So in
some runs all steps drawn before are removed except the network's quality, and in half of these runs
the faults stay too. Then the subject's actor draws its nodes, its profile and its pods. To add a
subject: write an actor whose `draw` returns at once unless `plan.subject` is its name, and add the
name here.
"""

from typing import Final

from simulation.actors.faults import Faults
from simulation.scenario import Actor, Plan

_SUBJECTS: Final = (
    *("preemption", "preemption", "moves", "moves", "volumes", "accelerators", "loners"),
    *("queues", "queues"),
)


class Subjects(Actor):
    """Draws the subject, if any, and removes the steps of other actors."""

    name = "subjects"

    def draw(self, plan: Plan) -> None:
        """Remove the steps drawn so far, except the network's quality and perhaps the faults."""
        if not plan.chance(0.35):
            return
        plan.subject = plan.random.choice(_SUBJECTS)
        with_faults = plan.chance(0.5)
        plan.steps = [
            step
            for step in plan.steps
            if step.actor == Faults.name and (with_faults or step.does == "weather")
        ]
        plan.moments = [step.at for step in plan.steps if step.at]
        plan.step(0.0, "profiles", "create", spec=0, cards=False, extender="")
