"""Pod groups with extenders that are slow, dead, flapping, or reject members, in the loop."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engines import until
from extending import Answers
from faults.extender_engine import Engine, Held, Stage, all_pass, staged
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.groups.search import extender_calls as calls
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.testing.builders import coscheduling_pod_group, node, pod, pod_group, uid_of
from pod_terms import near, to_pods

Raw = dict[str, Any]

GPU = "acme.io/gpu"
GPU_ONLY = {"managedResources": [{"name": GPU}]}
SAID = {"conditions": [{"type": "PodGroupScheduled", "status": "False", "message": "no node"}]}
"""The status of a PodGroup."""


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as found:
        yield found


def members(count: int, **fields: Any) -> list[Raw]:
    return [pod(f"g-{i}", **{"group": "g", "cpu": "1", **fields}) for i in range(count)]


def nodes(names: str, **fields: Any) -> list[Raw]:
    return [node(name, **{"cpu": "2", **fields}) for name in names]


def passes(*names: str) -> Callable[[Raw], object]:
    """Return a filter that passes these nodes and says that the others are busy."""

    def answer(arguments: Raw) -> object:
        sent = arguments["NodeNames"]
        failed = {name: "busy" for name in sent if name not in names}
        return {"NodeNames": [name for name in sent if name in names], "FailedNodes": failed}

    return answer


def called_about(answers: Answers, verb: str = "filter") -> Counter[str]:
    """Return how often the extender was called about each pod."""
    return Counter(a["Pod"]["metadata"]["name"] for what, a in answers.asked if what == verb)


def group_changes(engine: Engine, raw: Raw) -> None:
    name = f"default/{raw['metadata']['name']}"
    engine.state.state.put(Kind.POD_GROUP, name, parse_object(Kind.POD_GROUP, raw))


def left_in_flight(engine: Engine) -> bool:
    return any(queued.queue is None for queued in engine.state.queue)


async def during_the_calls(
    stage: Stage, *objects: Raw, answer: Callable[[Raw], object] = all_pass, **fields: Any
) -> tuple[Engine, Answers, Held]:
    """Return an engine whose extender is called about both members and does not answer yet.

    `fields` are those of the members.
    """
    held = Held(answer)
    answers = Answers(filter=held)
    engine = await stage.engine(*objects, pod_group("g", 2), answers=answers)
    engine.pending(*members(2, **fields))
    await until(lambda: held.calls == 2)
    return engine, answers, held


async def test_a_gang_is_placed_whole_where_the_extender_passes_its_members(stage: Stage) -> None:
    answers = Answers(filter=passes("b", "d"))
    engine = await stage.engine(*nodes("abcd"), pod_group("g", 4), answers=answers)
    engine.pending(*members(4))
    await until(lambda: len(stage.api.bound) == 4)
    assert Counter(stage.api.bound.values()) == {"b": 2, "d": 2}
    assert called_about(answers) == {f"g-{i}": 1 for i in range(4)}


async def test_the_scores_of_the_extender_choose_among_nodes(stage: Stage) -> None:
    scores = [{"Host": name, "Score": 9 * (name == "c")} for name in "abc"]
    answers = Answers(filter=all_pass, prioritize=scores)
    engine = await stage.engine(
        *nodes("abc", cpu="8"), pod_group("g", 3), answers=answers, weight=9
    )
    engine.pending(*members(3))
    await until(lambda: len(stage.api.bound) == 3)
    assert set(stage.api.bound.values()) == {"c"}


async def test_no_member_is_placed_if_the_extender_passes_too_few_nodes(stage: Stage) -> None:
    engine = await stage.engine(
        *nodes("abcd"), pod_group("g", 4), answers=Answers(filter=passes("b"))
    )
    engine.pending(*members(4))
    await until(lambda: stage.api.message("g-0"))
    message = stage.api.message("g-0")
    text = "; the group of 4 does not fit: 2 of 4 members fit, needs 2 CPUs more."
    assert message.startswith(f"minCount (4) cannot be satisfied: 2 scheduled, 1 remaining{text}")
    assert "1 Insufficient cpu, 3 extender http://127.0.0.1:" in message
    assert ": busy." in message
    assert stage.api.bound == {}
    assert not engine.state.state.pods.assumed


async def test_no_other_pod_waits_and_nothing_is_assumed_during_the_calls(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(
        *nodes("a", cpu="4", resources={GPU: 8}),
        pod_group("g", 2, priority=9),
        answers=Answers(filter=held),
        **GPU_ONLY,
    )
    engine.pending(*members(2, requests={GPU: 1}, priority=9), pod("plain", cpu="100m"))
    await until(lambda: held.calls == 2 and stage.api.bound)
    assert stage.api.bound == {"plain": "a"}
    assert [*engine.state.state.pods.assumed] == [uid_of("plain")]
    held.go()
    await until(lambda: len(stage.api.bound) == 3)


async def test_members_that_need_each_other_are_sent_before_any_is_placed(stage: Stage) -> None:
    beside = near(to_pods({"app": "lead"}))
    engine = await stage.engine(
        *nodes("abc"), pod_group("g", 2), answers=Answers(filter=passes("c"))
    )
    lead = pod("g-lead", group="g", cpu="1", labels={"app": "lead"})
    engine.pending(pod("g-near", group="g", cpu="1", affinity=beside), lead)
    await until(lambda: len(stage.api.bound) == 2)
    assert stage.api.bound == {"g-lead": "c", "g-near": "c"}


async def test_a_group_of_which_a_member_is_deleted_during_the_calls_is_not_placed(
    stage: Stage,
) -> None:
    held = Held()
    engine = await stage.engine(*nodes("a"), pod_group("g", 2), answers=Answers(filter=held))
    raws = members(2)
    engine.pending(*raws)
    await until(lambda: held.calls == 2)
    engine.pod_enqueuer.gone(parse_pod(raws[1]).uid)
    held.go()
    await until(lambda: "1 of 2 members exist" in stage.api.message("g-0"))
    assert stage.api.bound == {}
    assert not left_in_flight(engine)


async def test_a_group_is_placed_without_a_member_that_it_does_not_need(stage: Stage) -> None:
    held = Held()
    engine = await stage.engine(*nodes("ab"), pod_group("g", 2), answers=Answers(filter=held))
    raws = members(3)
    engine.pending(*raws)
    await until(lambda: held.calls == 3)
    engine.pod_enqueuer.gone(parse_pod(raws[0]).uid)
    held.go()
    await until(lambda: len(stage.api.bound) == 2)
    assert stage.api.bound.keys() == {"g-1", "g-2"}


async def test_a_group_that_is_deleted_during_the_calls_is_not_placed(stage: Stage) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("a"))
    engine.state.state.delete(Kind.POD_GROUP, "default/g")
    held.go()
    await until(lambda: "does not exist" in stage.api.message("g-1"))
    assert stage.api.bound == {}
    assert not left_in_flight(engine)


async def test_a_group_whose_minimum_is_raised_during_the_calls_is_decided_about_with_it(
    stage: Stage,
) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("a"))
    group_changes(engine, pod_group("g", 3))
    held.go()
    await until(lambda: "2 of 3 members exist" in stage.api.message("g-0"))
    assert stage.api.bound == {}
    engine.put(node("b", cpu="2"))
    engine.pending(pod("g-2", group="g", cpu="1"))
    await until(lambda: len(stage.api.bound) == 3)


async def test_a_member_that_comes_during_the_calls_is_not_decided_about_alone(
    stage: Stage,
) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("abc"))
    engine.pending(pod("g-late", group="g", cpu="1"))
    await until(lambda: engine.state.queue.counts()["backoff"] == 1)
    assert stage.api.message("g-late") == ""
    held.go()
    await until(lambda: len(stage.api.bound) == 3)


async def test_extenders_are_called_again_about_a_member_whose_labels_changed(
    stage: Stage,
) -> None:
    engine, answers, held = await during_the_calls(stage, *nodes("ab"))
    engine.pending(pod("g-1", group="g", cpu="1", labels={"app": "new"}))
    held.go()
    await until(lambda: len(stage.api.bound) == 2)
    assert called_about(answers) == {"g-0": 1, "g-1": 2}


async def test_a_member_that_leaves_the_group_during_the_calls_is_placed_by_itself(
    stage: Stage,
) -> None:
    held, label = Held(), {COSCHEDULING_LABEL: "g"}
    group = coscheduling_pod_group("g", 2)
    engine = await stage.engine(*nodes("ab"), group, answers=Answers(filter=held))
    small = [pod(name, cpu="1", labels=label) for name in ("g-0", "g-1")]
    engine.pending(*small, pod("g-large", cpu="9", labels=label))
    await until(lambda: held.calls == 2)
    engine.pending(pod("g-1", cpu="1"))
    held.go()
    await until(lambda: {"g-0", "g-1"} <= stage.api.bound.keys() | stage.api.statuses.keys())
    await until(lambda: stage.api.bound)
    assert stage.api.bound.keys() == {"g-1"}
    assert stage.api.message("g-0").startswith("the group of 2 does not fit")


async def test_a_change_of_the_groups_status_does_not_end_the_calls(stage: Stage) -> None:
    engine, answers, held = await during_the_calls(stage, *nodes("ab"))
    group_changes(engine, pod_group("g", 2, status=SAID))
    held.go()
    await until(lambda: len(stage.api.bound) == 2)
    assert called_about(answers) == {"g-0": 1, "g-1": 1}


async def test_extenders_are_called_again_when_what_they_passed_is_taken(stage: Stage) -> None:
    engine, answers, held = await during_the_calls(
        stage, *nodes("abc"), answer=passes("a", "b"), cpu="2"
    )
    engine.put(pod("other", node="a", cpu="2"))
    answers.by_verb["filter"] = passes("b", "c")
    held.go()
    await until(lambda: len(stage.api.bound) == 2)
    assert sorted(stage.api.bound.values()) == ["b", "c"]
    assert called_about(answers) == {"g-0": 2, "g-1": 2}
    assert len(engine.decisions.of("default/g-0")) == 1


async def test_a_member_that_another_scheduler_binds_during_the_calls_is_not_bound_again(
    stage: Stage,
) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("ab"))
    engine.put(pod("g-0", group="g", cpu="1", node="b"))
    held.go()
    await until(lambda: stage.api.bound)
    assert stage.api.bound.keys() == {"g-1"}
    await until(lambda: not left_in_flight(engine))


async def test_a_group_whose_profile_changes_during_the_calls_is_decided_by_the_new_one(
    stage: Stage,
) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("a"), answer=passes())
    engine.put_profile()
    held.go()
    await until(lambda: len(stage.api.bound) == 2)


async def test_the_extender_of_a_former_profile_is_called_about_no_more_members(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MOST_AT_A_TIME", 16)
    held = Held()
    answers = Answers(filter=held)
    engine = await stage.engine(*nodes("a", cpu="64"), pod_group("g", 40), answers=answers)
    engine.pending(*members(40))
    await until(lambda: held.calls == 16)
    engine.put_profile()
    held.go()
    await until(lambda: len(stage.api.bound) == 40)
    assert called_about(answers).total() == 16


async def test_a_scheduler_that_stops_gives_up_a_group_that_waits_for_an_extender(
    stage: Stage,
) -> None:
    engine, _, held = await during_the_calls(stage, *nodes("a"))
    engine.loop.halt()
    await engine.loop.finish(1.0)
    held.go()
    assert not engine.state.state.pods.assumed
    assert stage.api.bound == {}
    assert stage.api.statuses == {}


async def test_the_failure_of_an_extender_is_the_reason_of_every_member(stage: Stage) -> None:
    engine = await stage.engine(*nodes("a"), pod_group("g", 2), answers=Answers(filter=500))
    engine.pending(*members(2))
    await until(lambda: stage.api.message("g-0") and stage.api.message("g-1"))
    for name in ("g-0", "g-1"):
        assert stage.api.message(name).startswith('extender "http://127.0.0.1:')
        assert stage.api.message(name).endswith("failed to filter: it answered with status 500")
        (condition,) = stage.api.statuses[name]["conditions"]
        assert condition["reason"] == "SchedulerError"
    assert stage.api.bound == {}


async def test_a_group_is_placed_without_an_ignorable_extender_that_fails(stage: Stage) -> None:
    engine = await stage.engine(
        *nodes("a"), pod_group("g", 2), answers=Answers(filter=500), ignorable=True
    )
    engine.pending(*members(2))
    await until(lambda: len(stage.api.bound) == 2)


async def test_a_flapping_extender_delays_a_group_and_loses_no_member(stage: Stage) -> None:
    calls = 0

    def flapping(arguments: Raw) -> object:
        nonlocal calls
        calls += 1
        return 500 if calls % 7 == 0 else all_pass(arguments)

    engine = await stage.engine(
        *nodes("abcd", cpu="3"), pod_group("g", 6), answers=Answers(filter=flapping, prioritize=500)
    )
    engine.pending(*members(6), *(pod(f"single-{i}", cpu="100m") for i in range(6)))
    await until(lambda: len(stage.api.bound) == 12)


async def test_a_group_that_an_extender_rejects_is_tried_again_after_any_event(
    stage: Stage,
) -> None:
    answers = Answers(filter=passes())
    engine = await stage.engine(*nodes("a"), pod_group("g", 2), answers=answers)
    engine.pending(*members(2))
    await until(lambda: engine.unschedulable() == 2)
    answers.by_verb["filter"] = all_pass
    engine.put(pod("other", node="a", cpu="0"))
    await until(lambda: len(stage.api.bound) == 2)


async def test_an_extender_binds_the_members_in_place_of_mooring(stage: Stage) -> None:
    answers = Answers(filter=all_pass, bind={})
    engine = await stage.engine(*nodes("a"), pod_group("g", 2), answers=answers)
    engine.pending(*members(2))
    await until(lambda: len([verb for verb, _ in answers.asked if verb == "bind"]) == 2)
    await until(lambda: not engine.loop.binding)
    assert stage.api.bound == {}
    assert len(engine.state.state.pods.assumed) == 2


async def test_a_binding_of_a_member_that_the_extender_refuses_is_repeated(stage: Stage) -> None:
    refused = Counter[str]()

    def bind(arguments: Raw) -> object:
        name = arguments["PodName"]
        refused[name] += 1
        return {"Error": "not now"} if name == "g-1" and refused[name] == 1 else {}

    engine = await stage.engine(*nodes("a"), pod_group("g", 2), answers=Answers(bind=bind))
    engine.pending(*members(2))
    await until(lambda: refused == {"g-0": 1, "g-1": 2} and not engine.loop.binding)
    assert len(engine.state.state.pods.assumed) == 2


FULL = (*nodes("ab"), *(pod(f"low-{name}", cpu="2", node=name) for name in "ab"))


async def test_a_group_preempts_though_an_extender_filters_its_nodes(stage: Stage) -> None:
    answers = Answers(filter=passes("b", "c"))
    engine = await stage.engine(
        *FULL, node("c", cpu="2"), pod_group("g", 2, priority=9), answers=answers
    )
    engine.pending(*members(2, cpu="2", priority=9))
    await until(lambda: stage.api.deleted)
    for name in stage.api.deleted:
        engine.state.state.delete(Kind.POD, uid_of(name))
    await until(lambda: len(stage.api.bound) == 2 or len(stage.api.deleted) == 2)
    assert set(stage.api.bound.values()) <= {"b", "c"}


async def test_a_group_preempts_though_a_member_is_deleted_during_the_calls(
    stage: Stage,
) -> None:
    held = Held()
    answers = Answers(filter=held)
    engine = await stage.engine(*FULL, node("c"), pod_group("g", 2, priority=9), answers=answers)
    raws = members(3, cpu="2", priority=9)
    engine.pending(*raws)
    await until(lambda: held.calls == 3)
    engine.put(pod("low-c", cpu="4", node="c"))
    engine.pod_enqueuer.gone(parse_pod(raws[2]).uid)
    held.go()
    await until(lambda: stage.api.deleted)
    assert called_about(answers) == {"g-0": 1, "g-1": 1, "g-2": 1}


async def test_a_group_evicts_nobody_where_the_extender_rejects_its_members(stage: Stage) -> None:
    low = pod("low", cpu="1", node="a")
    engine = await stage.engine(
        *nodes("a"), low, pod_group("g", 2, priority=9), answers=Answers(filter=passes())
    )
    engine.pending(*members(2, priority=9))
    await until(lambda: "preemption" in stage.api.message("g-0"))
    assert stage.api.message("g-0").endswith(
        "preemption: the group does not fit without the pods of lower priority either."
    )
    assert stage.api.deleted == []


@pytest.mark.parametrize("verbs", [{"filter": all_pass, "preempt": {}}, {"preempt": {}}])
async def test_a_group_does_not_preempt_if_an_extender_takes_part_in_preemption(
    stage: Stage, verbs: Raw
) -> None:
    answers = Answers(**verbs)
    engine = await stage.engine(*FULL, pod_group("g", 2, priority=9), answers=answers)
    engine.pending(*members(2, cpu="2", priority=9))
    await until(lambda: "preemption" in stage.api.message("g-0"))
    text = "has a preemptVerb, and is not called for pod groups"
    assert stage.api.message("g-0").endswith(text)
    assert stage.api.deleted == []


async def test_a_new_group_does_not_wait_for_the_calls_about_a_former_one_of_its_name(
    stage: Stage,
) -> None:
    engine, answers, held = await during_the_calls(stage, *nodes("a"))
    for number in range(2):
        engine.pod_enqueuer.gone(uid_of(f"g-{number}"))
    engine.state.state.delete(Kind.POD_GROUP, "default/g")
    answers.by_verb["filter"] = all_pass
    group_changes(engine, pod_group("g", 2))
    engine.pending(*(pod(f"new-{number}", group="g", cpu="10m") for number in range(2)))
    await until(lambda: len(stage.api.bound) == 2)
    held.go()
