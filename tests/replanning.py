"""A cluster, a profile with a section `rebalancing`, and the plans made from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deciding import Deciding
from mooring.framework.decision import PodRef
from mooring.groups.model.pod_group import GroupKey
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.policy.reading import read
from mooring.policy.rebalancing import Rebalancing
from mooring.rebalancing.plan import Plan
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.planner import make_plan, takes_of
from mooring.scheduling.result_cache import ResultCache
from mooring.testing.builders import pod

MANY: Final = 1_000_000
"""Decisions: more than any test needs."""
NOW: Final = 1_800_000_000.0
"""When plans are made: all pods of the builders are old enough by then."""


def owned(name: str, owner: str = "web", kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    return pod(name, owner={"kind": kind, "name": owner, "uid": f"{kind}-{owner}"}, **fields)


class Replanning(Deciding):
    """Makes plans for the pods of one profile.

    `rebalancing` is the section that a user writes, `waiting` are pods without a node. All other
    arguments are those of `Deciding`.
    """

    def __init__(
        self,
        *objects: Mapping[str, Any],
        rebalancing: Mapping[str, Any] | None = None,
        waiting: Sequence[Mapping[str, Any]] = (),
        **spec: Any,
    ) -> None:
        super().__init__(*objects, **spec)
        self.section = read(Rebalancing, dict(rebalancing or {}), "rebalancing")
        self.waiting = [parse_pod(raw) for raw in waiting]
        for each in self.waiting:
            self.state.put_unscheduled(each)

    def planning(self, budget: SearchBudget | None = None) -> Planning:
        """Return the shared data of one plan's searches; all pods belong to the profile."""
        budget = budget or SearchBudget(MANY)
        return Planning(
            ResultCache(self.cluster),
            self.pipeline,
            self.section,
            lambda _: True,
            now=lambda: NOW,
            budget=budget,
        )

    def plan(
        self,
        only_for: PodRef | GroupKey | None = None,
        *,
        pending: Sequence[Pod] | None = None,
        position: int = 0,
        **arguments: Any,
    ) -> Plan:
        """Return the plan; for `only_for` see `make_plan`, for other arguments `PlanTrial`."""
        profiles = self.scheduler.profiles
        (entry,) = profiles.in_force.values()
        planning = Planning(
            ResultCache(self.cluster),
            self.pipeline,
            self.section,
            takes_of(profiles, entry, self.cluster),
            pending=self.waiting if pending is None else pending,
            position=position,
            **{"now": lambda: NOW, "budget": SearchBudget(MANY), **arguments},
        )
        return make_plan(planning, only_for=only_for)

    def carry_out(self, plan: Plan) -> None:
        """Move the pods of the plan to their targets, one after the other."""
        for move in plan.moves:
            self.carry_out_move(move.pod, move.target)

    def carry_out_move(self, moved: Pod, target: str) -> None:
        self.state.put(Kind.POD, moved.uid, replace(moved, node_name=target))


def moves(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the pod's name, the source and the target of each move."""
    return [(move.pod.name, move.source, move.target) for move in plan.moves]
