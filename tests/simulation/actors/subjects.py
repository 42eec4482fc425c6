"""Decides whether a run is about one subject, without the crowd of all other actors.

In a crowd rare situations drown, and what a feature is for can seldom be said. So in a part of the
runs everything that was drawn before is left out but the weather, and in half of these the faults
stay too. Then the actor of the subject draws its nodes, its profile and its pods. How to add a
subject: an actor whose `draw` returns at once unless `plan.subject` is its name, and its name here.
"""

from typing import Final

from simulation.actors.faults import Faults
from simulation.scenario import Actor, Plan

_SUBJECTS: Final = (
    *("preemption", "preemption", "moves", "moves", "volumes", "accelerators", "loners"),
    *("queues", "queues"),
)


class Subjects(Actor):
    """Draws the subject, if there is one, and sends the crowd away."""

    name = "subjects"

    def draw(self, plan: Plan) -> None:
        """Leave out what was drawn; keep the weather, and perhaps the faults."""
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
