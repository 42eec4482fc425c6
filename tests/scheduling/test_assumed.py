"""Assume, Reserve and Permit, and their undoing."""

import asyncio

import pytest

from assuming import WEB, Stage, Step
from mooring.framework.verdicts import PluginError, Unschedulable, Wait
from mooring.model.events import Action, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.outcome import PodRejected
from mooring.testing.builders import pod


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_rejection_at_reserve_unreserves_all_as_in_kube_scheduler(stage: Stage) -> None:
    one, three = stage.step("One"), stage.step("Three")
    two = stage.step("Two", reserve=Unschedulable("the licences are gone"))
    with pytest.raises(PodRejected) as rejected:
        stage.take(reserve=[one, two, three])
    assert rejected.value.plugin == "Two"
    assert rejected.value.message == "0/1 nodes are available: 1 the licences are gone."
    assert stage.said == [
        "reserve One",
        "reserve Two",
        "unreserve Three",
        "unreserve Two",
        "unreserve One",
    ]
    assert not stage.is_assumed()


def test_an_error_in_unreserve_does_not_stop_the_unreserve_of_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    one = stage.step("One")
    two = stage.step("Two", reserve=Unschedulable("no"), unreserve=RuntimeError("stuck"))
    with pytest.raises(PodRejected):
        stage.take(reserve=[one, two])
    assert stage.said[-1] == "unreserve One"
    assert not stage.is_assumed()
    (message,) = caplog.messages
    assert message.startswith("plugin Two of acme: failed at Unreserve: RuntimeError: stuck (")


def test_a_rejection_at_permit_forgets_the_pod(stage: Stage) -> None:
    with pytest.raises(PodRejected) as rejected:
        stage.take(
            reserve=[stage.step("One")], permit=[stage.step("Gang", permit=Unschedulable("no"))]
        )
    assert rejected.value.plugin == "Gang"
    assert stage.said == ["reserve One", "permit Gang", "unreserve One"]
    assert not stage.is_assumed()


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_pod_that_is_rejected_at_once_causes_no_event(stage: Stage, point: str) -> None:
    points = {point: [stage.step("One", **{point: Unschedulable("no")})]}
    with pytest.raises(PodRejected):
        stage.take(0, **points)
    assert stage.heard_actions() == []


def test_a_pod_that_waits_at_permit_is_announced(stage: Stage) -> None:
    async def take() -> None:
        stage.take(permit=[stage.step("Gang", permit=Wait(10.0))])

    asyncio.run(take())
    assert stage.heard_actions() == [Action.ADD]


@pytest.mark.parametrize(("accepted", "more"), [(True, [Action.ADD]), (False, [])])
def test_a_pod_assumed_on_another_node_frees_its_nominated_node(
    stage: Stage, more: list[Action], *, accepted: bool
) -> None:
    stage.scheduler_state.state.nominate(WEB, "a")
    step = stage.step("One", reserve=None if accepted else Unschedulable("no"))
    if accepted:
        stage.take(1, reserve=[step])
    else:
        with pytest.raises(PodRejected):
            stage.take(1, reserve=[step])
    assert stage.heard_actions() == [Action.DELETE, *more]
    withdrawn = stage.heard[0].before
    assert isinstance(withdrawn, Pod)
    assert withdrawn.nominated_node == "a"


def test_a_rejected_pod_whose_nomination_is_lost_frees_its_node_for_others(stage: Stage) -> None:
    stage.scheduler_state.state.nominate(WEB, "a")
    with pytest.raises(PodRejected):
        stage.take(0, reserve=[stage.step("One", reserve=Unschedulable("no"))])
    assert stage.heard_actions() == [Action.DELETE]
    assert len(stage.scheduler_state.state.nominations) == 0


def test_a_predecessor_stays_on_its_node_until_the_watch_shows_its_end(stage: Stage) -> None:
    raw = pod("web", node="a")
    raw["metadata"]["uid"] = "predecessor"
    stage.scheduler_state.state.put(Kind.POD, "predecessor", parse_pod(raw))
    stage.heard.clear()
    with pytest.raises(PodRejected):
        stage.take(reserve=[stage.step("One", reserve=Unschedulable("no"))])
    assert stage.heard_actions() == []
    assert [placed.pod.uid for placed in stage.scheduler_state.state.pods] == ["predecessor"]


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_plugin_that_fails_is_named_and_everything_is_undone(stage: Stage, point: str) -> None:
    one, broken = stage.step("One"), stage.step("Broken", **{point: KeyError("licence")})
    points: dict[str, list[Step]] = {"reserve": [one], point: [one, broken]}
    named = f"running {point.capitalize()} plugin \"Broken\": 'licence'"
    with pytest.raises(PluginError, match=named):
        stage.take(0, **points)
    assert stage.said[-1] == "unreserve One"
    assert not stage.is_assumed()
    assert stage.heard_actions() == []


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_result_of_the_wrong_type_fails(stage: Stage, point: str) -> None:
    points = {point: [stage.step("Odd", **{point: "yes"})]}
    with pytest.raises(PluginError, match=f"plugin Odd of acme: {point} returned str"):
        stage.take(0, **points)
    assert not stage.is_assumed()


@pytest.mark.parametrize(("seconds", "deadline"), [(10.0, 10.0), (1e9, 900.0)])
async def test_a_pod_waits_at_permit_for_15_minutes_at_most(
    stage: Stage, seconds: float, deadline: float
) -> None:
    stage.take(permit=[stage.step("Gang", permit=Wait(seconds))])
    (waiting,) = stage.scheduler_state.waiting
    assert waiting.pending == {"Gang": deadline}
