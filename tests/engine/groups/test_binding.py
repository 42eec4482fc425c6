"""Members of a group meet before PreBind and before Bind, and are called off together."""

import asyncio

import pytest

from mooring.engine.groups.binding import CalledOff, GroupBinding
from mooring.model.pod_group import GroupKey, GroupSource, parse_pod_group
from mooring.state.pod_groups import PodGroupState
from mooring.testing.builders import pod_group

SECONDS = 10.0


class FailedError(Exception):
    """A binding failed; `gone` says that the pod does not exist any more."""

    def __init__(self, *, gone: bool = False) -> None:
        super().__init__("refused")
        self.gone = gone


def group_of(minimum: int) -> PodGroupState:
    """A group of which no member is on a node."""
    group = PodGroupState(GroupKey(GroupSource.KUBERNETES, "default", "g"))
    group.definition = parse_pod_group(pod_group("g", minimum))
    return group


def binding(members: int, *, needed: int) -> GroupBinding:
    return GroupBinding(group_of(needed), members)


async def arrived(*tasks: "asyncio.Task[None]") -> int:
    """How many of the tasks have ended after everything that can happen now has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


async def test_members_go_on_when_all_have_come() -> None:
    group = binding(2, needed=2)
    first = asyncio.create_task(group.all_permitted())
    assert await arrived(first) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(first, group.all_permitted())


async def test_a_member_that_is_not_needed_is_not_waited_for_once_it_has_failed() -> None:
    group = binding(3, needed=2)
    waiting = [asyncio.create_task(group.all_ready()) for _ in range(2)]
    assert await arrived(*waiting) == 0
    group.failed("no volume")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*waiting)


async def test_the_others_are_called_off_when_a_needed_member_fails() -> None:
    group = binding(2, needed=2)
    waiting = asyncio.create_task(group.all_permitted())
    await arrived(waiting)
    group.failed("no volume")
    with pytest.raises(CalledOff, match="no volume"):
        await waiting


async def test_all_are_called_off_if_the_minimum_is_raised_before_the_first_is_bound() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, 2)
    waiting = asyncio.create_task(group.all_ready())
    assert await arrived(waiting) == 0
    definition.definition = group_of(3).definition
    async with asyncio.timeout(SECONDS):
        ended = await asyncio.gather(group.all_ready(), waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["the minimum of the group is 3 now"] * 2


async def test_all_are_called_off_if_one_fails_that_a_raised_minimum_needs() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, 3)
    waiting = [asyncio.create_task(group.all_ready()) for _ in range(2)]
    assert await arrived(*waiting) == 0
    definition.definition = parse_pod_group(pod_group("g", 3))
    group.failed("no volume")
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["no volume"] * 2


async def test_none_is_called_off_if_the_minimum_is_raised_once_the_first_may_be_bound() -> None:
    """The members that are bound would stay bound, and be fewer."""
    definition = group_of(2)
    group = GroupBinding(definition, 2)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(group.all_ready(), group.all_ready())
    definition.definition = group_of(3).definition
    group.join(1)
    async with asyncio.timeout(SECONDS):
        await group.all_ready()
    assert group.called_off is None


async def test_a_member_that_leaves_a_meeting_is_not_counted_there() -> None:
    group = binding(3, needed=2)
    leaving = asyncio.create_task(group.all_ready())
    await arrived(leaving)
    leaving.cancel()
    await arrived(leaving)
    group.failed("deleted")
    waiting = asyncio.create_task(group.all_ready())
    assert await arrived(waiting) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(waiting, group.all_ready())


async def test_a_binding_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.engine.groups.binding._PAUSES_SECONDS", (0.0, 0.0))
    group, calls = binding(1, needed=1), 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise FailedError
        return "bound"

    assert await group.bind(call, FailedError) == "bound"
    assert calls == 3


async def test_a_pod_that_is_gone_is_not_bound_again() -> None:
    group, calls = binding(1, needed=1), 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise FailedError(gone=True)

    with pytest.raises(FailedError):
        await group.bind(call, FailedError)
    assert calls == 1


async def test_a_binding_that_has_not_begun_is_called_off() -> None:
    group = binding(2, needed=2)
    group.failed("quota")

    async def call() -> None:
        raise AssertionError

    with pytest.raises(CalledOff, match="quota"):
        await group.bind(call, FailedError)


async def test_members_of_a_large_group_go_on_a_few_at_a_time() -> None:
    """What each does next would else hold up everything else."""
    group, passed = binding(300, needed=300), 0

    async def member() -> None:
        nonlocal passed
        await group.all_permitted()
        passed += 1

    waiting = [asyncio.create_task(member()) for _ in range(299)]
    assert await arrived(*waiting) == 0
    waiting.append(asyncio.create_task(member()))
    async with asyncio.timeout(SECONDS):
        most = 0
        while passed < 300:
            before = passed
            await asyncio.sleep(0)
            most = max(most, passed - before)
    assert 0 < most <= 64


async def test_members_of_a_large_group_are_called_off_a_few_at_a_time() -> None:
    group, called_off = binding(200, needed=200), 0

    async def member() -> None:
        nonlocal called_off
        with pytest.raises(CalledOff):
            await group.all_ready()
        called_off += 1

    waiting = [asyncio.create_task(member()) for _ in range(199)]
    assert await arrived(*waiting) == 0
    group.failed("no volume")
    async with asyncio.timeout(SECONDS):
        most = 0
        while called_off < 199:
            before = called_off
            await asyncio.sleep(0)
            most = max(most, called_off - before)
    assert 0 < most <= 64
