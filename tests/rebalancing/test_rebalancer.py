"""Plans are made periodically, shown, and executed while the profile allows it."""

from collections.abc import Callable
from functools import partial

import pytest

from kube.api_server import Request
from mooring.kube.client import ApiClient
from mooring.kube.status_writer import SECTION_SECONDS
from mooring.rebalancing.profile_rebalancing import FIRST_SECONDS
from mooring.testing.builders import uid_of
from rebalancing_stage import PROFILE, UID, Api, Stage, running, until, working
from scheduler_states import put_profile

"""After a thousand seconds, at which the clock of the tests begins."""


@pytest.fixture
def stage(connected: ApiClient) -> Stage:
    stage = Stage(connected, running("web-1", "a"), running("web-2", "a"))
    stage.rebalancer.profile_found("default-scheduler", UID, {})
    return stage


def replace_at(stage: Stage, node: str) -> Callable[[str], None]:
    """Return a function that replaces an evicted pod on the node, as controller and kubelet do."""
    return lambda name: stage.replaced(name, node)


async def test_a_plan_is_made_at_once_and_after_each_interval(stage: Stage, api: Api) -> None:
    async with working(stage):
        await until(stage, lambda: stage.plans == 1, within=FIRST_SECONDS + 5)
        began = stage.clock.time
        await until(stage, lambda: stage.plans == 2, within=400)
        assert 295 <= stage.clock.time - began <= 305
    assert api.evicted == []


async def test_in_mode_plan_moves_are_shown_and_none_is_carried_out(stage: Stage, api: Api) -> None:
    stage.put_profile(mode="Plan")
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.status.get("planned") == 1)
        assert stage.rebalancer.planned() == {"default-scheduler": 1}
        [report] = stage.rebalancer.report()
        assert report.plan is not None
        assert [move.pod.name for step in report.plan.steps for move in step.moves] == ["web-1"]
    assert api.evicted == []
    assert api.status["message"] == "1 move is planned; mode Plan carries out none"


async def test_a_plan_that_could_not_look_at_all_pods_says_so(stage: Stage, api: Api) -> None:
    stage.examined = 1
    async with working(stage):
        await until(stage, lambda: api.status.get("message"))
    assert api.status["message"] == (
        "no move was found; the decisions that a plan may cost were spent before all was looked "
        "at: 1 of 2 running pods were, and the next plan goes on with the others"
    )


async def test_in_mode_apply_pods_are_evicted_and_counted(stage: Stage, api: Api) -> None:
    api.evict = replace_at(stage, "b")
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: api.status.get("done") == 2)
        await until(stage, lambda: api.status.get("message", "").startswith("all"))
    assert api.evicted == ["web-1", "web-2"]
    status = api.status
    assert (status["evictedInLastHour"], status["underWay"]) == (2, [])
    assert [move["result"] for move in status["lastMoves"]] == ["moved", "moved"]
    assert status["message"] == "all moves of the last plan were carried out"


async def test_the_status_tells_of_a_move_before_the_pod_is_evicted(stage: Stage, api: Api) -> None:
    told: list[list[str]] = []
    api.evict = lambda _name: told.append([m["pod"] for m in api.status["underWay"]])
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: told)
    assert told == [["default/web-1"]]


async def test_a_status_is_written_after_the_one_before_has_arrived(stage: Stage, api: Api) -> None:
    """With two writes in flight, the older one could arrive last and hide a move."""
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    held = api.held = []
    api.evict = replace_at(stage, "b")
    async with working(stage):
        await until(stage, lambda: held)
        began = stage.clock.time
        await until(stage, lambda: stage.clock.time > began + 2 * SECTION_SECONDS)
        assert stage.plans == 1
        assert (len(held), api.evicted) == (1, [])
        api.held = None
        held[0].reply(PROFILE)
        await until(stage, lambda: api.evicted)
    assert any(status["underWay"] for status in api.statuses)


async def test_what_was_moved_is_left_alone_by_the_next_plans(stage: Stage, api: Api) -> None:
    api.evict = replace_at(stage, "b")
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: stage.plans == 2)
        assert stage.resting == {uid_of("web-1-new")}
        stage.put_profile(minimumGain=20)
        await until(stage, lambda: stage.plans == 3)
        assert stage.resting == {uid_of("web-1-new")}
        await until(stage, lambda: not stage.resting, within=4000)
    assert api.evicted == ["web-1"]


async def test_a_replacement_that_lands_elsewhere_stops_the_plan_with_an_event(
    stage: Stage, api: Api
) -> None:
    """The Event is in the namespace default, so its text must not name pods."""
    api.evict = replace_at(stage, "a")
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: len(api.events) == 2)
        await until(stage, lambda: "web-1-new" in api.status["message"])
        await until(stage, lambda: stage.plans == 2)
    assert api.evicted == ["web-1"]
    assert "rs-web" in stage.resting, "its next pod would end the next plan"
    told = {event["reason"]: event for event in api.events}
    assert told["Rebalanced"]["note"] == (
        "Evicted from node a by profile default-scheduler, so that it runs on node b "
        "(Pack): node a is emptied"
    )
    stopped = told["RebalancingStopped"]
    assert stopped["regarding"]["uid"] == UID
    assert stopped["note"] == "a pod, the replacement of a pod, is on node a and not on b"


async def test_the_pods_of_a_controller_without_a_replacement_are_left_alone(
    stage: Stage, api: Api
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: stage.plans == 2)
    assert api.evicted == ["web-1"]
    assert stage.resting == {"rs-web"}


@pytest.mark.parametrize("does", ["mode Plan", "no section", "deleted"])
async def test_places_are_given_back_when_the_profile_says_so(
    stage: Stage, api: Api, does: str
) -> None:
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: api.evicted)
        assert [*stage.nominated().values()] == ["b"]
        if does == "deleted":
            stage.scheduler.profiles.remove("default-scheduler")
        elif does == "mode Plan":
            stage.put_profile(mode="Plan")
        else:
            stage.put_profile_without_section()
        await until(stage, lambda: not stage.nominated(), within=2)
        assert api.evicted == ["web-1"]


async def test_a_move_of_the_former_version_of_a_profile_counts_for_the_limits(
    stage: Stage, api: Api
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
        stage.put_profile(minimumGain=20)
        stage.steps = [stage.step(stage.move("web-2", "b"))]
        await until(stage, lambda: stage.plans == 2)
        await stage.clock.advance(60)
        assert api.evicted == ["web-1"]
        stage.gone("web-1")
        stage.come("web-1-new")
        stage.show(running("web-1-new", "b"))
        await until(stage, lambda: len(api.evicted) == 2)


async def test_a_leader_that_stops_gives_its_places_back(stage: Stage, api: Api) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
        assert stage.nominated()


async def test_a_pod_that_the_api_server_refuses_to_evict_is_left_alone_and_others_are_moved(
    stage: Stage, api: Api
) -> None:
    api.evict = replace_at(stage, "b")
    api.answers["web-1"] = partial(
        Request.refuse,
        status=403,
        reason="Forbidden",
        message="the budget is spoilt",
    )
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: stage.plans == 2)
    assert api.evicted == ["web-1", "web-2"]
    assert stage.resting == {uid_of("web-1"), uid_of("web-2-new")}
    assert "the budget is spoilt" in api.status["message"]


async def test_a_spoilt_status_holds_nothing_up(
    stage: Stage, connected: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    other = Stage(connected, running("web-1", "a"))
    other.rebalancer.profile_found("default-scheduler", UID, {"rebalancing": {"done": "x"}})
    async with working(other):
        await until(other, lambda: other.plans)
    assert "the status of rebalancing of profile default-scheduler is unreadable" in caplog.text
    assert stage.plans == 0


async def test_a_planner_that_fails_is_told_and_tried_again(
    stage: Stage, caplog: pytest.LogCaptureFixture, api: Api
) -> None:
    stage.breaks = True
    async with working(stage):
        await until(stage, lambda: stage.plans == 1)
        await until(stage, lambda: api.status.get("message") == "no plan: broken")
        stage.breaks = False
        await until(stage, lambda: stage.plans == 2)
    assert "rebalancing for profile default-scheduler failed" in caplog.text


async def test_plans_of_a_shadow_profile_are_shown_only(stage: Stage, api: Api) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    stage.put_profile(mode="Plan", profile_mode="Shadow")
    async with working(stage):
        await until(stage, lambda: api.status.get("planned") == 1)
    assert api.evicted == []


async def test_a_status_is_written_only_when_something_has_changed(stage: Stage, api: Api) -> None:
    async with working(stage):
        await until(stage, lambda: api.status.get("plannedTime"))
        count, began = len(api.statuses), stage.clock.time
        await until(stage, lambda: stage.clock.time > began + 10 * SECTION_SECONDS)
        assert len(api.statuses) == count
        await until(stage, lambda: len(api.statuses) == count + 1)
    assert stage.plans == 2


async def test_a_profile_may_go_while_the_status_of_another_is_written(
    stage: Stage, api: Api
) -> None:
    section = {"mode": "Plan", "goals": ["Pack"]}
    put_profile(stage.scheduler, "other", match={"schedulerNames": ["other"]}, rebalancing=section)
    held = api.held = []
    async with working(stage):
        await until(stage, lambda: held)
        stage.scheduler.profiles.remove("other")
        await until(stage, lambda: len(stage.rebalancer.report()) == 1)
        api.held = None
        held[0].reply(PROFILE)
        await until(stage, lambda: stage.plans == 3)
