"""What another leader makes of the moves that a former one began."""

from typing import Any

import pytest

from mooring.engine.rebalancing.profile_rebalancing import FIRST_SECONDS
from mooring.kube.client import ApiClient
from mooring.testing.builders import uid_of
from rebalancing_stage import OWNER, UID, Api, Stage, running, until, working

NEW = "1970-01-01T00:17:00Z"
"""After a thousand seconds, at which the clock of the tests begins."""
DATABASE = {**OWNER, "name": "db", "uid": "rs-db"}


@pytest.fixture
def stage(connected: ApiClient) -> Stage:
    stage = Stage(connected, running("web-1", "a"), running("web-2", "a"))
    stage.rebalancer.profile_found("default-scheduler", UID, {})
    return stage


async def test_another_leader_keeps_to_the_limits(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    """The first one evicts and ends; the next one waits for the replacement before it goes on."""
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    status = api.status
    terminating = running("web-1", "a", terminating=True)
    others = running("web-2", "a"), running("db-1", "a", owner=DATABASE)
    second = Stage(connected, terminating, *others)
    second.clock.time = stage.clock.time
    second.rebalancer.profile_found("default-scheduler", UID, {"rebalancing": status})
    second.steps = [second.step(second.move("db-1", "b"))]
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 60)
        assert (second.plans, api.evicted) == (0, ["web-1"])
        second.gone("web-1")
        second.come("web-1-new", created=NEW)
        await until(second, lambda: second.clock.time > stage.clock.time + 90)
        assert second.plans == 0
        second.show(running("web-1-new", "b", created=NEW))
        await until(second, lambda: len(api.evicted) == 2)
        await until(second, lambda: second.plans == 2)
        assert uid_of("web-1-new") in second.resting
        assert not second.resting & {"rs-web", uid_of("web-2")}


async def test_a_controller_whose_pods_do_not_become_ready_is_left_alone_by_another_leader(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = Stage(connected, running("web-2", "a"))
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    async with working(second):
        second.come("web-1-new", node_selector={"no": "node"})
        await until(second, lambda: second.plans)
        assert second.clock.time >= stage.clock.time + 280
    assert second.resting == {"rs-web"}


async def test_a_pod_of_another_namespace_that_names_the_controller_holds_no_leader_up(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = Stage(connected, running("web-1-new", "b", created=NEW))
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    second.come("lies", namespace="mallory", node_selector={"no": "node"})
    async with working(second):
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new")}


async def taken_over(
    stage: Stage, api: Api, connected: ApiClient, *left: dict[str, Any], owner: str = "ReplicaSet"
) -> Stage:
    """Have a leader evict web-1 and end; return the next one, with what is left of the pods."""
    stage.show(running("web-1", "a", owner={**OWNER, "kind": owner}))
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    stage.put_profile(pods={"owners": ["ReplicaSet", "StatefulSet"]})
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = Stage(connected, *left)
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    return second


async def test_a_move_of_a_former_leader_goes_on_while_its_replacement_does_not_exist(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    """All pods of the controller that exist are ready, and one is missing."""
    second = await taken_over(stage, api, connected, running("web-2", "a"))
    second.steps = [second.step(second.move("web-2", "b"))]
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert (second.plans, api.evicted) == (0, ["web-1"])
        second.show(running("web-1-new", "b", created=NEW))
        await until(second, lambda: len(api.evicted) == 2)
    assert api.evicted == ["web-1", "web-2"]


async def test_a_move_of_a_former_leader_has_ended_though_other_pods_are_not_ready(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    left = running("web-1-new", "b", created=NEW), running("web-2", "a", status={})
    second = await taken_over(stage, api, connected, *left)
    async with working(second):
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new")}


async def test_a_pod_that_was_new_before_the_move_of_a_former_leader_is_no_replacement(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    second = await taken_over(
        stage, api, connected, running("web-2", "a", created="1970-01-01T00:16:40Z")
    )
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0


async def test_only_the_pod_of_its_name_replaces_one_of_a_stateful_set(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    of_set: dict[str, Any] = {"owner": {**OWNER, "kind": "StatefulSet"}, "created": NEW}
    second = await taken_over(
        stage, api, connected, running("web-2", "a", **of_set), owner="StatefulSet"
    )
    again = running("web-1", "b", **of_set)
    again["metadata"]["uid"] = "the second"
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0
        second.show(again)
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {"the second"}


async def test_each_move_of_a_former_leader_ends_with_a_replacement_of_its_own(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.put_profile(limits={"movesAtATime": 2, "movesAtATimePerWorkload": 2})
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: len(api.evicted) == 2)
    second = Stage(connected, running("web-1-new", "b", created=NEW))
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0
        second.show(running("web-2-new", "b", created=NEW))
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new"), uid_of("web-2-new")}


async def test_an_eviction_that_a_former_leader_did_not_send_is_not_awaited(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = Stage(connected, running("web-1", "a"))
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    async with working(second):
        await until(second, lambda: second.plans, within=FIRST_SECONDS + 5)
