"""Plans for a group: made again until one can be committed."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from deciding import Deciding
from mooring.engine.assumed import PodRejected, assume_and_reserve
from mooring.engine.groups import plan
from mooring.engine.groups.budget import SearchBudget
from mooring.engine.groups.decision import GroupDecision
from mooring.engine.groups.plan import place_group
from mooring.model.events import Kind
from mooring.model.pod import Uid, parse_pod
from mooring.testing.builders import node, pod, pod_group
from storage_builders import pv, pvc, storage_class

Raw = dict[str, Any]


class Planning:
    """One attempt about a group; so many of its plans are rejected."""

    def __init__(self, deciding: Deciding, *raws: Raw, rejections: int = 0) -> None:
        self.deciding = deciding
        self.pods = {member.uid: member for member in map(parse_pod, raws)}
        for member in self.pods.values():
            deciding.state.put_unscheduled(member)
        self.left, self.plans = rejections, list[Mapping[Uid, int]]()
        self.after_a_rejection: Callable[[], object] = lambda: None
        self.reserved = list[ExitStack]()

    def commit(self, rows: Mapping[Uid, int]) -> None:
        self.plans.append(rows)
        if self.left:
            self.left -= 1
            name = self.deciding.state.nodes.names[next(iter(rows.values()))]
            self.after_a_rejection()
            raise PodRejected("Limits", "no", name, self.pods[next(iter(rows))])
        pipeline, state = self.deciding.pipeline, self.deciding.state
        for uid, row in rows.items():
            self.reserved.append(assume_and_reserve(self.pods[uid], row, pipeline, state))

    def decision(self) -> GroupDecision:
        deciding, pods = self.deciding, [*self.pods.values()]
        group = deciding.state.pod_groups.of(pods[0])
        assert group is not None
        about = deciding.pipeline, deciding.cluster, deciding.shared
        return place_group(group, pods, *about, self.commit, seed=0)


def members(count: int, **fields: Any) -> list[Raw]:
    return [pod(f"g-{i}", group="g", **fields) for i in range(count)]


def test_a_plan_is_made_again_without_the_node_that_rejects_a_member() -> None:
    nodes = [node("a", cpu="2"), node("b", cpu="2")]
    planning = Planning(Deciding(*nodes, pod_group("g", 1)), *members(1, cpu="1"), rejections=1)
    decision = planning.decision()
    assert [len(rows) for rows in planning.plans] == [1, 1]
    assert planning.plans[0] != planning.plans[1] == decision.rows


def test_a_group_is_planned_eight_times_at_most() -> None:
    nodes = [node(f"n{i}") for i in range(20)]
    planning = Planning(Deciding(*nodes, pod_group("g", 2)), *members(2), rejections=100)
    decision = planning.decision()
    assert len(planning.plans) == 8
    assert not decision.rows
    assert decision.plugins == {"Limits"}
    assert decision.bounded


def test_plans_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members with host ports are placed one by one, each in one step."""
    monkeypatch.setattr(plan, "SearchBudget", partial(SearchBudget, 20))
    nodes = [node(f"n{i}") for i in range(10)]
    raws = members(4, ports=(80,))
    planning = Planning(Deciding(*nodes, pod_group("g", 4)), *raws, rejections=100)
    planning.decision()
    assert 0 < len(planning.plans) <= 5


def test_a_node_that_rejects_a_member_may_go_before_the_group_is_planned_again() -> None:
    deciding = Deciding(node("small", cpu="1"), node("large"), pod_group("g", 1))
    planning = Planning(deciding, pod("m", cpu="2", group="g"), rejections=1)
    planning.after_a_rejection = partial(deciding.state.delete, Kind.NODE, "large")
    decision = planning.decision()
    assert not decision.rows
    assert decision.message == "member default/m: 0/1 nodes are available: 1 no."


def test_members_with_local_volumes_are_reserved_by_the_first_plan() -> None:
    """All prefer the largest node; each plan that fails would tell of one member and node."""
    nodes = [node(f"n{i}", cpu=str(64 - i)) for i in range(6)]
    volumes = [pv(f"v{i}", nodes=(f"n{i}",), storage_class="static") for i in range(6)]
    claims = [pvc(f"data-{i}", storage_class="static") for i in range(6)]
    deciding = Deciding(*nodes, storage_class("static"), *volumes, *claims, pod_group("g", 6))
    raws = (pod(f"m{i}", group="g", cpu="10m", claims=[f"data-{i}"]) for i in range(6))
    planning = Planning(deciding, *raws)
    assert len({*planning.decision().rows.values()}) == 6
    assert (len(planning.plans), len(planning.reserved)) == (1, 6)
