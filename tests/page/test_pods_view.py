"""All information about one pod."""

import asyncio
from itertools import count
from typing import Any

from deciding import keep
from mooring.framework.decision import Decision, PodRef
from mooring.model.pod import Uid, parse_pod
from mooring.observe.documents import plain
from mooring.observe.records import DecisionLog
from mooring.page.pods_view import Pods
from mooring.scheduling.pod_report import PodReportBuilder
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod, pod_group, uid_of
from scheduler_states import put_profile, scheduler_state


def pods(shared: SchedulerState, log: DecisionLog | None = None) -> Pods:
    reports = PodReportBuilder(shared)
    return Pods(shared, log or DecisionLog(), reports.of, now=lambda: 0.0)


async def found(shown: Pods, key: str) -> dict[str, Any]:
    answer = await shown.of(key)
    assert answer is not None
    found: dict[str, Any] = plain(answer)
    return found


async def test_a_pending_pod_has_its_report_and_a_decision_now() -> None:
    shared = scheduler_state(node("a", cpu="1"))
    pipeline = put_profile(shared).pipeline
    shared.queue.add(parse_pod(pod("web", cpu="4")), pipeline, 0.0)
    answer = await found(pods(shared), "default/web")
    assert answer["report"]["state"] == "active"
    assert answer["now"]["node"] is None
    assert "Insufficient cpu" in answer["now"]["message"]


async def test_a_bound_pod_is_decided_as_if_it_were_not_there() -> None:
    shared = scheduler_state(node("a", cpu="1"), pod("web", cpu="1", node="a"))
    put_profile(shared)
    answer = await found(pods(shared), "default/web")
    assert answer["report"] == {"state": "bound", "node": "a"}
    assert answer["now"]["node"] == "a"
    assert shared.cluster.pod(uid_of("web")) is not None


async def test_a_pod_of_another_scheduler_has_no_decision() -> None:
    other = pod("web", node="a", spec={"schedulerName": "other"})
    shared = scheduler_state(node("a"), other)
    put_profile(shared)
    assert (await found(pods(shared), "default/web"))["now"] is None


async def test_there_is_no_decision_about_a_gated_pod() -> None:
    shared = scheduler_state(node("a"))
    pipeline = put_profile(shared).pipeline
    shared.queue.add(
        parse_pod(pod("web", spec={"schedulingGates": [{"name": "shop/quota"}]})),
        pipeline,
        0.0,
        gated=True,
    )
    answer = await found(pods(shared), "default/web")
    assert answer["report"]["heldBack"] == "waiting for scheduling gates: [shop/quota]"
    assert answer["now"] is None


async def test_there_is_no_decision_about_a_member_without_its_group() -> None:
    shared = scheduler_state(node("a"), pod_group("train", 2))
    pipeline = put_profile(shared).pipeline
    member = parse_pod(pod("m0", group="train"))
    shared.state.put_unscheduled(member)
    shared.queue.add(member, pipeline, 0.0)
    assert (await found(pods(shared), "default/m0"))["now"] is None


async def test_a_decision_now_does_not_preempt() -> None:
    shared = scheduler_state(node("a", cpu="1"), pod("low", cpu="1", node="a"))
    pipeline = put_profile(shared).pipeline
    shared.queue.add(parse_pod(pod("web", cpu="1", priority=9)), pipeline, 0.0)
    answer = await found(pods(shared), "default/web")
    assert answer["now"]["nominatedNode"] is None


async def test_after_a_decision_for_a_viewer_other_work_runs_for_longer_than_it_took() -> None:
    shared = scheduler_state(node("a", cpu="1"), pod("web", cpu="1", node="a"))
    put_profile(shared)
    reports, ticks = PodReportBuilder(shared), count(0.0, 0.01)
    shown = Pods(shared, DecisionLog(), reports.of, now=lambda: 0.0, clock=lambda: next(ticks))
    answer = asyncio.create_task(found(shown, "default/web"))
    others = 0
    while not answer.done():
        others += 1
        await asyncio.sleep(0)
    assert others > 5
    assert (await answer)["now"]["node"] == "a"


async def test_an_ended_pod_has_its_last_decisions() -> None:
    log = DecisionLog()
    keep(
        log,
        Uid("u1"),
        Decision(PodRef.of_key("shop/gone"), "mooring", "n1", None, (), None, {}, None),
        1.0,
    )
    answer = await found(pods(scheduler_state(), log), "shop/gone")
    assert answer["report"] is None
    assert answer["now"] is None
    assert answer["decisions"][0]["node"] == "n1"


async def test_an_unknown_pod_is_none() -> None:
    assert await pods(scheduler_state()).of("default/web") is None
