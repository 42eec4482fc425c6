"""Attempts in two halves, with extenders that are slow, dead, flapping, or that lie."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.processes import free_ports
from engines import until
from extending import Answers, extender
from faults.extender_engine import Engine, Held, Stage, all_pass, staged
from mooring.model.events import Kind
from mooring.model.pod import Uid
from mooring.testing.builders import node, pod, uid_of

GPU = "acme.io/gpu"
GPU_ONLY = {"managedResources": [{"name": GPU}]}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as found:
        yield found


async def test_the_extender_decides_where_the_pod_goes(stage: Stage) -> None:
    answers = Answers(
        filter={"NodeNames": ["b", "c"], "FailedNodes": {"a": "busy"}},
        prioritize=[{"Host": "b", "Score": 2}, {"Host": "c", "Score": 9}],
    )
    engine = await stage.engine(node("a"), node("b"), node("c"), answers=answers)
    engine.pending(pod("web"))
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "c"}
    scores = engine.decisions.of("default/web")[0].scores
    assert scores is not None
    assert 90 in scores["c"].plugins.values()


async def test_no_other_pod_waits_for_an_extender(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(node("a"), answers=Answers(filter=held), **GPU_ONLY)
    engine.put(node("a", resources={GPU: 8}))
    engine.pending(*(pod(f"gpu-{n}", requests={GPU: 1}, priority=9) for n in range(4)))
    await until(lambda: held.calls == 4)
    engine.pending(*(pod(f"plain-{n}") for n in range(20)))
    await until(lambda: len(stage.api.bound) == 20)
    held.go()
    await until(lambda: len(stage.api.bound) == 24)


async def test_a_node_that_fills_up_during_the_call_is_not_chosen(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(
        node("a", cpu="1"), node("b", cpu="1"), answers=Answers(filter=held)
    )
    engine.pending(pod("web", cpu="1"))
    await until(lambda: held.calls == 1)
    engine.put(pod("other", cpu="1", node="a"))
    held.go()
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "b"}


async def test_when_all_that_passed_is_taken_the_extender_is_called_again(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(node("a", cpu="1"), answers=Answers(filter=held))
    engine.pending(pod("web", cpu="1"))
    await until(lambda: held.calls == 1)
    engine.put(pod("other", cpu="1", node="a"))
    engine.put(node("b", cpu="1"))
    held.go()
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "b"}
    assert held.calls == 2


async def test_a_pod_that_is_deleted_during_the_call_is_dropped(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(node("a"), answers=Answers(filter=held))
    engine.pending(pod("web"))
    await until(lambda: held.calls == 1)
    engine.pod_enqueuer.gone(Uid("pod-default-web"))
    held.go()
    engine.pending(pod("next"))
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"next": "a"}
    assert engine.state.queue.get(uid_of("web")) is None
    assert engine.state.state.pods.get(uid_of("web")) is None


async def test_a_pod_whose_profile_changes_during_the_call_is_decided_by_the_new_one(
    stage: Stage,
) -> None:
    held = Held(lambda _arguments: {"NodeNames": []})
    engine = await stage.engine(node("a"), answers=Answers(filter=held))
    engine.pending(pod("web"))
    await until(lambda: held.calls == 1)
    engine.put_profile()
    held.go()
    await until(lambda: stage.api.bound)
    assert engine.decisions.of("default/web")[0].node == "a"
    assert len(engine.decisions.of("default/web")) == 1


async def test_a_scheduler_that_stops_gives_up_what_waits_for_an_extender(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(node("a"), answers=Answers(filter=held))
    engine.pending(pod("web"))
    await until(lambda: held.calls == 1)
    engine.loop.halt()
    await engine.loop.finish(1.0)
    held.go()
    await asyncio.sleep(0)
    assert stage.api.bound == {}


async def test_a_pod_that_an_extender_rejects_is_tried_again_after_any_event(stage: Stage) -> None:
    failed = {"NodeNames": [], "FailedNodes": {"a": "no cards left"}}
    answers = Answers(filter=failed)
    engine = await stage.engine(node("a"), answers=answers)
    engine.pending(pod("web"))
    await until(engine.unschedulable)
    await until(lambda: stage.api.message("web"))
    assert stage.api.message("web").startswith("0/1 nodes are available: 1 no cards left.")
    answers.by_verb["filter"] = all_pass
    engine.put(node("a", labels={"cards": "2"}))
    await until(lambda: stage.api.bound)


@pytest.mark.parametrize("verbs", [("filter",), ("filter", "preempt")], ids=str)
async def test_a_pod_is_tried_again_when_a_node_has_got_room_while_its_extender_was_called(
    stage: Stage, verbs: tuple[str, ...]
) -> None:
    """A node that comes with each call neither hides why the pod waits nor ends its attempts."""
    engines: list[Engine] = []

    def only_d(arguments: dict[str, Any]) -> object:
        names = arguments["NodeNames"]
        engines[0].reports.report_new()  # housekeeping is slower than four attempts
        engines[0].put(node("abcd"[min(len(names), 3)]))
        passed = [name for name in names if name == "d"]
        failed = dict.fromkeys(set(names) - {"d"}, "no cards left")
        return {"NodeNames": passed, "FailedNodes": failed}

    answers = Answers(filter=only_d, preempt={"NodeNameToMetaVictims": {}})
    engines.append(await stage.engine(node("a"), answers=answers, verbs=verbs))
    engines[0].pending(pod("web"))
    await until(lambda: stage.api.message("web"))
    # Another attempt may have ended before the first report, with one node more.
    for why in ("no cards left", "1 node(s) did not fit when the extenders were called"):
        assert why in stage.api.message("web")
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "d"}
    assert [verb for verb, _ in answers.asked].count("filter") == 4


LIES: dict[str, Any] = {
    "status": 500,
    "a redirect": 307,
    "no JSON": b"<html>busy</html>",
    "empty": b"",
    "an error": {"Error": "no cards left"},
    "an unknown node": {"NodeNames": ["elsewhere"]},
    "wrong types": {"NodeNames": {"a": True}},
    "nesting": b'{"NodeNames":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a hundred megabytes": b'{"Error":"' + b"x" * 100 * 2**20 + b'"}',
}


@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_a_lying_filter_is_a_clear_reason_on_the_pod_and_nothing_is_assumed(
    stage: Stage, lie: str
) -> None:
    answers = Answers(filter=LIES[lie])
    engine = await stage.engine(node("a"), answers=answers, httpTimeout="10s")
    engine.pending(pod("web"))
    await until(lambda: stage.api.message("web"))
    assert 'extender "http://127.0.0.1:' in stage.api.message("web")
    assert "failed to filter: " in stage.api.message("web")
    assert len(stage.api.message("web")) < 1500
    assert len(engine.state.state.pods.assumed) == 0
    answers.by_verb["filter"] = all_pass
    await until(lambda: stage.api.bound)


async def test_a_hanging_filter_is_a_clear_reason_on_the_pod_and_nothing_is_assumed(
    stage: Stage,
) -> None:
    held = Held()
    engine = await stage.engine(node("a"), answers=Answers(filter=held), httpTimeout="50ms")
    engine.pending(pod("web"))
    text = "failed to filter: no answer within 0.05 seconds"
    await until(lambda: text in stage.api.message("web"))
    assert len(engine.state.state.pods.assumed) == 0
    held.go()
    await until(lambda: stage.api.bound)


async def test_a_dead_extender_is_a_clear_reason_on_the_pod_unless_it_is_ignorable(
    stage: Stage,
) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    engine = await stage.engine(node("a"), answers=Answers(filter=all_pass), urlPrefix=nobody)
    engine.pending(pod("web"))
    text = f'extender "{nobody}" failed to filter: Connection refused'
    await until(lambda: text in stage.api.message("web"))
    assert len(engine.state.state.pods.assumed) == 0
    engine.put_profile(extenders=[extender(1, "filter", urlPrefix=nobody, ignorable=True)])
    await until(lambda: stage.api.bound)


@pytest.mark.parametrize("lie", LIES, ids=str)
async def test_pods_are_scheduled_without_an_ignorable_extender_that_lies(
    stage: Stage, lie: str
) -> None:
    answers = Answers(filter=LIES[lie], prioritize=LIES[lie])
    engine = await stage.engine(
        node("a"), node("b"), answers=answers, ignorable=True, httpTimeout="10s"
    )
    engine.pending(pod("web"))
    await until(lambda: stage.api.bound)


async def test_a_flapping_extender_delays_pods_and_loses_none(stage: Stage) -> None:
    calls = 0

    def every_third(arguments: dict[str, Any]) -> object:
        nonlocal calls
        calls += 1
        return all_pass(arguments) if calls % 3 else 503

    engine = await stage.engine(node("a"), answers=Answers(filter=every_third))
    engine.pending(*(pod(f"web-{n}") for n in range(30)))
    await until(lambda: len(stage.api.bound) == 30)


async def test_scores_that_lie_do_not_choose_a_node_that_does_not_fit(stage: Stage) -> None:
    scores = [{"Host": "full", "Score": 10**6}, {"Host": "elsewhere", "Score": 10**6}]
    answers = Answers(prioritize=scores)
    full = pod("other", cpu="4", node="full")
    engine = await stage.engine(node("a"), node("b"), node("full"), full, answers=answers)
    engine.pending(pod("web", cpu="1"))
    await until(lambda: stage.api.bound)
    assert stage.api.bound["web"] in {"a", "b"}


async def test_an_extender_binds_in_place_of_mooring(stage: Stage) -> None:
    def binds(arguments: dict[str, Any]) -> object:
        stage.api.bound[arguments["PodName"]] = f"{arguments['Node']} by the extender"
        return {"Error": ""}

    engine = await stage.engine(node("a"), answers=Answers(bind=binds))
    engine.pending(pod("web"))
    await until(lambda: engine.state.queue.get(uid_of("web")) is None)
    assert stage.api.bound == {"web": "a by the extender"}
    assert len(engine.state.state.pods.assumed) == 1


async def test_a_binding_that_the_extender_refuses_frees_the_node_and_is_tried_again(
    stage: Stage,
) -> None:
    answers = Answers(bind={"Error": "the card is taken"})
    engine = await stage.engine(node("a", cpu="1"), answers=answers)
    engine.pending(pod("web", cpu="1"))
    await until(lambda: "the card is taken" in stage.api.message("web"))
    await until(lambda: len(engine.state.state.pods.assumed) == 0)
    answers.by_verb["bind"] = {}
    await until(lambda: engine.state.queue.get(uid_of("web")) is None)


async def test_a_binding_whose_answer_is_lost_counts_if_the_pod_is_bound(stage: Stage) -> None:
    def binds(arguments: dict[str, Any]) -> object:
        stage.api.bound[arguments["PodName"]] = arguments["Node"]
        return 500

    engine = await stage.engine(node("a"), answers=Answers(bind=binds))
    engine.pending(pod("web"))
    await until(lambda: engine.state.queue.get(uid_of("web")) is None)
    assert stage.api.message("web") == ""
    assert len(engine.state.state.pods.assumed) == 1


def keeps(*nodes: str) -> Any:
    """Return a preempt verb that leaves these nodes."""

    def answer(arguments: dict[str, Any]) -> object:
        victims = arguments["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {n: v for n, v in victims.items() if n in nodes}}

    return answer


FULL = (
    node("a", cpu="1"),
    node("b", cpu="1"),
    pod("low", cpu="1", node="a"),
    pod("mid", cpu="1", node="b", priority=1),
)


async def test_an_extender_chooses_among_the_candidates_for_preemption(stage: Stage) -> None:
    answers = Answers(preempt=keeps("b"))
    engine = await stage.engine(*FULL, answers=answers)
    engine.pending(pod("web", cpu="1", priority=10))
    await until(lambda: stage.api.deleted)
    assert stage.api.deleted == ["mid"]
    (_, arguments) = answers.asked[0]
    assert sorted(arguments["NodeNameToMetaVictims"]) == ["a", "b"]


async def test_an_extender_that_leaves_no_candidate_ends_the_preemption(stage: Stage) -> None:
    engine = await stage.engine(*FULL, answers=Answers(preempt=keeps()))
    engine.pending(pod("web", cpu="1", priority=10))
    await until(engine.unschedulable)
    await until(lambda: stage.api.message("web"))
    assert stage.api.message("web").endswith("preemption: no candidate node for preemption")
    assert stage.api.deleted == []


@pytest.mark.parametrize("lie", ["status", "no JSON", "empty", "nesting", "a hundred megabytes"])
async def test_a_lying_preempt_extender_evicts_nothing(stage: Stage, lie: str) -> None:
    engine = await stage.engine(*FULL, answers=Answers(preempt=LIES[lie]), httpTimeout="10s")
    engine.pending(pod("web", cpu="1", priority=10))
    await until(lambda: "failed to preempt" in stage.api.message("web"))
    assert stage.api.deleted == []


async def test_a_candidate_whose_victim_has_gone_meanwhile_is_left_out(stage: Stage) -> None:
    held = Held(keeps("a"))
    engine = await stage.engine(*FULL, answers=Answers(preempt=held))
    engine.pending(pod("web", cpu="1", priority=10))
    await until(lambda: held.calls == 1)
    engine.state.state.delete(Kind.POD, uid_of("low"))
    held.go()
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "a"}
    assert stage.api.deleted == []


async def test_a_nominated_pod_is_bound_to_its_node_if_the_extender_passes_it(
    stage: Stage,
) -> None:
    answers = Answers(filter=all_pass, preempt=keeps("b"))
    engine = await stage.engine(*FULL, answers=answers)
    engine.pending(pod("web", cpu="1", priority=10))
    await until(lambda: stage.api.deleted == ["mid"])
    await until(engine.unschedulable)
    engine.state.state.delete(Kind.POD, uid_of("mid"))
    await until(lambda: stage.api.bound)
    assert stage.api.bound == {"web": "b"}
    last = [arguments["NodeNames"] for verb, arguments in answers.asked if verb == "filter"][-1]
    assert last == ["b"]
