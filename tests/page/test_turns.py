"""Requests that take long are worked on one after the other."""

import asyncio

import pytest

from mooring.page.turns import TooLongError, TrialsBusy, Turns


async def test_of_four_requests_one_is_worked_on_and_a_fifth_is_refused() -> None:
    turns, going_on, inside = Turns(), asyncio.Event(), list[int]()

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


async def test_one_user_does_not_keep_others_from_asking() -> None:
    turns, going_on = Turns(), asyncio.Event()

    async def request(user: str) -> None:
        async with turns.turn("ask for less", user):
            await going_on.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(request("eve"))
        await asyncio.sleep(0)
        with pytest.raises(TrialsBusy, match="2 requests of this user are worked on"):
            async with turns.turn("ask for less", "eve"):
                raise AssertionError
        tasks.create_task(request("ann"))
        going_on.set()
    async with turns.turn("ask for less", "eve"):
        pass


async def test_what_takes_too_long_ends_and_says_what_to_do() -> None:
    turns = Turns(seconds=0.0)
    with pytest.raises(TooLongError, match="this takes longer than 0 s; ask for less"):
        async with turns.turn("ask for less"):
            await asyncio.Event().wait()
