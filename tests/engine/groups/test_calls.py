"""Which extenders are called about the members of a group, and what ends the calls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from deciding import Deciding
from driving import driven
from extending import Answers, GivenObjects, extender
from mooring.engine.extenders.client import ExtenderError
from mooring.engine.extenders.extenders import Extenders
from mooring.engine.groups.answers import MOST_DIFFERENT
from mooring.engine.groups.calls import GroupCalls
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod

SECONDS = 120.0
GPU = "acme.io/gpu"


class Stage:
    """Calls about the members of a group in a cluster, with extenders on loopback."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.objects = GivenObjects()

    async def calls(
        self, *nodes: dict[str, Any], extenders: list[tuple[Answers, Any]]
    ) -> GroupCalls:
        ports = [
            await self._stack.enter_async_context(answers.serving()) for answers, _ in extenders
        ]
        given = [
            extender(port, *answers.by_verb, **fields)
            for port, (answers, fields) in zip(ports, extenders, strict=True)
        ]
        self.deciding = Deciding(*nodes, extenders=given)
        called = Extenders(self.objects)
        self._stack.push_async_callback(called.close)
        return GroupCalls(
            called, self.deciding.pipeline, self.deciding.cluster, self.deciding.shared
        )

    def passed(self, calls: GroupCalls, member: Pod) -> list[str]:
        found = calls.answers.on(self.deciding.cluster)[member.uid]
        names = self.deciding.cluster.node_names
        return [names[row] for row, passed in enumerate(found.passed) if passed]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(stack)


def members(count: int, **fields: Any) -> list[Pod]:
    return [parse_pod(pod(f"w{i}", **fields)) for i in range(count)]


def all_pass(arguments: dict[str, Any]) -> object:
    return {"NodeNames": arguments["NodeNames"]}


def by_name(arguments: dict[str, Any]) -> object:
    """Pass only the node that has the pod's number."""
    number = arguments["Pod"]["metadata"]["name"].removeprefix("w")
    return {"NodeNames": [name for name in arguments["NodeNames"] if name == f"n{number}"]}


async def test_extenders_are_called_for_each_of_equal_members(stage: Stage) -> None:
    answers = Answers(filter=by_name)
    calls = await stage.calls(*(node(f"n{i}") for i in range(3)), extenders=[(answers, {})])
    group = members(3)
    await calls.run(group, SECONDS)
    assert [stage.passed(calls, member) for member in group] == [["n0"], ["n1"], ["n2"]]
    assert not any(map(calls.lacks, group))


async def test_nodes_that_fit_only_beside_other_members_are_sent(stage: Stage) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "lead"}},
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    answers = Answers(filter=all_pass)
    nodes = (node("a"), node("b", cpu="1"), node("c", taints=["own:NoSchedule"]))
    calls = await stage.calls(*nodes, extenders=[(answers, {})])
    await calls.run(members(1, affinity=near, cpu="2"), SECONDS)
    ((_, arguments),) = answers.asked
    assert arguments["NodeNames"] == ["a"]


async def test_an_extender_is_not_called_about_a_member_that_fits_nowhere(stage: Stage) -> None:
    answers = Answers(filter=all_pass)
    calls = await stage.calls(node("a", cpu="1"), extenders=[(answers, {})])
    (large,) = members(1, cpu="2")
    await calls.run([large], SECONDS)
    assert answers.asked == []
    assert not calls.lacks(large)
    assert stage.passed(calls, large) == []


async def test_members_that_no_extender_filters_or_scores_are_passed_over(stage: Stage) -> None:
    gpu, binder = Answers(filter=all_pass), Answers(bind={})
    managed = {"managedResources": [{"name": GPU}]}
    nodes = (node("a", resources={GPU: 8}),)
    calls = await stage.calls(*nodes, extenders=[(gpu, managed), (binder, {})])
    plain, with_gpu = parse_pod(pod("plain")), parse_pod(pod("gpu", requests={GPU: 1}))
    assert not calls.lacks(plain)
    assert calls.lacks(with_gpu)
    await calls.run([plain, with_gpu], SECONDS)
    assert [arguments["Pod"]["metadata"]["name"] for _, arguments in gpu.asked] == ["gpu"]
    assert plain.uid not in calls.answers.on(stage.deciding.cluster)


async def test_the_failure_of_an_extender_ends_the_calls(stage: Stage) -> None:
    calls = await stage.calls(node("a"), extenders=[(Answers(filter=500), {})])
    with pytest.raises(ExtenderError, match="failed to filter: it answered with status 500"):
        await calls.run(members(40), SECONDS)


async def test_an_ignorable_extender_that_fails_is_called_about_no_more_members(
    stage: Stage,
) -> None:
    broken, works = Answers(filter=500), Answers(filter=all_pass, prioritize=500)
    calls = await stage.calls(
        node("a"), node("b"), extenders=[(broken, {"ignorable": True}), (works, {})]
    )
    group = members(100)
    await calls.run(group, SECONDS)
    assert len(broken.asked) <= 16
    verbs = Counter(verb for verb, _ in works.asked)
    assert verbs["filter"] == 100
    assert verbs["prioritize"] <= 16
    assert {tuple(stage.passed(calls, member)) for member in group} == {("a", "b")}


async def test_other_work_goes_on_while_no_extender_is_left_to_call(stage: Stage) -> None:
    broken = Answers(filter=500)
    calls = await stage.calls(node("a"), extenders=[(broken, {"ignorable": True})])
    group, known, most = members(300), 0, 0
    running = asyncio.create_task(calls.run(group, SECONDS))
    while not running.done():
        await asyncio.sleep(0)
        before, known = known, sum(not calls.lacks(each) for each in group)
        most = max(most, known - before)
    await running
    assert known == 300
    assert most <= 2 * 16


async def test_an_extender_that_was_ignored_is_called_again_in_the_next_run(stage: Stage) -> None:
    flapping = Answers(filter=500)
    calls = await stage.calls(node("a"), extenders=[(flapping, {"ignorable": True})])
    await calls.run(members(1), SECONDS)
    flapping.by_verb["filter"] = {"NodeNames": []}
    await calls.run(members(1), SECONDS)
    assert stage.passed(calls, members(1)[0]) == []


async def test_a_group_that_gives_way_goes_on_where_it_stopped(stage: Stage) -> None:
    broken, works = Answers(filter=500), Answers(filter=all_pass)
    calls = await stage.calls(node("a"), extenders=[(broken, {"ignorable": True}), (works, {})])
    group = members(40)
    rounds = 0
    while not await calls.run(filter(calls.lacks, group), SECONDS, lambda: True):
        rounds += 1
        assert len(works.asked) == 16 * rounds
    assert rounds == 2
    assert not any(map(calls.lacks, group))
    assert Counter(a["Pod"]["metadata"]["name"] for _, a in works.asked) == {
        member.name: 1 for member in group
    }
    assert len(broken.asked) <= 16


@pytest.mark.parametrize(("number", "whom"), [(3, "all 3 members"), (1, "the only member")])
async def test_calls_that_take_too_long_end(stage: Stage, number: int, whom: str) -> None:
    go = asyncio.Event()

    async def held(arguments: dict[str, Any]) -> object:
        await go.wait()
        return all_pass(arguments)

    calls = await stage.calls(node("a"), extenders=[(Answers(filter=held), {})])
    with pytest.raises(ExtenderError, match=f"have not answered about {whom} in time"):
        await calls.run(members(number), 0.1)
    go.set()


async def test_too_many_different_answers_are_an_error(stage: Stage) -> None:
    number = MOST_DIFFERENT + 1
    nodes = (node(f"n{i}") for i in range(number))
    calls = await stage.calls(*nodes, extenders=[(Answers(filter=by_name), {})])
    with pytest.raises(ExtenderError, match="extenders answer in more than 500 different ways"):
        await calls.run(members(number), SECONDS)


async def test_members_that_have_gone_are_noted(stage: Stage) -> None:
    calls = await stage.calls(node("a"), extenders=[(Answers(filter=all_pass), {})])
    first, second = members(2)
    stage.objects.gone.add(first.name)
    await calls.run([first, second], SECONDS)
    assert calls.gone == {first.uid}
    assert not calls.lacks(second)


async def test_at_most_sixteen_members_are_called_about_at_a_time(stage: Stage) -> None:
    running, most, some = 0, 0, asyncio.Event()

    async def counted(arguments: dict[str, Any]) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 16:
            some.set()
        await some.wait()
        running -= 1
        return all_pass(arguments)

    calls = await stage.calls(node("a"), extenders=[(Answers(filter=counted), {})])
    await calls.run(members(100), SECONDS)
    assert most == 16


async def test_members_whose_passed_nodes_were_taken_are_called_about_again_a_few_times(
    stage: Stage,
) -> None:
    answers = Answers(filter=all_pass)
    nodes = (node(f"n{i}", cpu="1") for i in range(6))
    calls = await stage.calls(*nodes, extenders=[(answers, {})])
    group, again = members(2, cpu="1"), list[bool]()
    for number in range(5):
        await calls.run(filter(calls.lacks, group), SECONDS)
        stage.deciding.place(pod(f"other-{number}", cpu="1"), f"n{number}")
        again.append(calls.drop_lost(group))
    assert again == [True, True, True, True, False]
    assert len(answers.asked) == 10


async def test_members_whose_passed_nodes_all_fit_are_not_called_about_again(
    stage: Stage,
) -> None:
    calls = await stage.calls(node("a"), node("b"), extenders=[(Answers(filter=all_pass), {})])
    group = members(2, cpu="1")
    await calls.run(group, SECONDS)
    stage.deciding.place(pod("other", cpu="1"), "a")
    assert not calls.drop_lost(group)
    assert not any(map(calls.lacks, group))


async def test_members_with_requirements_of_their_own_are_looked_at_in_slices(
    stage: Stage,
) -> None:
    calls = await stage.calls(node("a"), extenders=[(Answers(filter=all_pass), {})])
    group = [parse_pod(pod(f"w{i}", cpu=f"{i + 1}m")) for i in range(5)]
    await calls.run(group, SECONDS)
    again, pauses = driven(partial(calls.drop_lost, group))
    assert (again, pauses) == (False, 5)
