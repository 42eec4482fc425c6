"""Slow requests run one after the other."""

import asyncio

import pytest

from mooring.page.turns import TooLongError, TrialsBusy, Turns


async def test_of_four_requests_one_is_worked_on_and_a_fifth_is_refused() -> None:
    turns, going_on, inside = Turns(most=4), asyncio.Event(), list[int]()

    async def request(number: int) -> None:
        async with turns.turn("ask for less"):
            inside.append(number)
            await going_on.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(request(number))
        await asyncio.sleep(0)
        assert inside == [0]
        with pytest.raises(TrialsBusy, match="other requests are worked on; try again"):
            async with turns.turn("ask for less"):
                raise AssertionError
        going_on.set()
    assert inside == [0, 1, 2, 3]


async def test_users_take_turns_whoever_asks_most() -> None:
    turns, going_on, inside = Turns(), asyncio.Event(), list[str]()

    async def request(user: str) -> None:
        async with turns.turn("ask for less", user):
            inside.append(user)
            await going_on.wait()

    async with asyncio.TaskGroup() as tasks:
        for user in ("eve", "eve", "bob"):
            tasks.create_task(request(user))
        await asyncio.sleep(0)
        for user in ("eve", "bob"):
            with pytest.raises(TrialsBusy, match="a request of this user waits already"):
                async with turns.turn("ask for less", user):
                    raise AssertionError
        tasks.create_task(request("ann"))
        going_on.set()
    assert inside == ["eve", "eve", "bob", "ann"]


async def test_the_time_of_others_is_not_the_requests_own() -> None:
    turns, began = Turns(seconds=0.1), asyncio.Event()

    async def request() -> None:
        async with turns.turn("ask for less"):
            began.set()
            await asyncio.Event().wait()

    slow = asyncio.create_task(request())
    await began.wait()
    async with turns.turn("ask for less"):
        await asyncio.sleep(0)
    with pytest.raises(TooLongError):
        await slow


async def test_who_waits_for_too_long_is_told_that_others_are_in_work() -> None:
    turns = Turns(seconds=0.0)
    await turns._one_at_a_time.acquire()
    with pytest.raises(TrialsBusy, match="other requests are worked on") as busy:
        async with turns.turn("ask for less"):
            raise AssertionError
    assert not isinstance(busy.value, TooLongError)


async def test_what_takes_too_long_ends_and_says_what_to_do() -> None:
    turns = Turns(seconds=0.0)
    with pytest.raises(TooLongError, match="this takes longer than 0 s; ask for less"):
        async with turns.turn("ask for less"):
            await asyncio.Event().wait()
