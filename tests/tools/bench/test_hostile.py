"""The hostile pods are scheduled, so the benchmark measures real abilities of a tenant."""

import asyncio
import gc
from collections.abc import Mapping

import pytest

from bench.device_holds import tainted_driver
from bench.full_replica import FullReplica
from bench.holds import (
    BOUND,
    CASES,
    Case,
    Wait,
    hostile_pod,
    longest_hold,
)
from bench.hostile import hostile_pods, measure
from bench.pod_holds import POD_CASES

NODES = 4
HOSTILE = [hostile_pod(what, found) for what, found in hostile_pods().items()]


def test_no_hostile_pod_exceeds_a_limit() -> None:
    exceeded = {what: hostile.limit_exceeded for what, hostile in hostile_pods().items()}
    assert set(exceeded.values()) == {None}


async def test_every_case_runs_and_leaves_no_pod_that_waits() -> None:
    replica = FullReplica(NODES)
    placed = len(replica.state.pods)
    for case in (*CASES, *POD_CASES, tainted_driver, *HOSTILE):
        for work in case(replica):
            await work
        assert not replica.scheduler.queue.uids(), case.__doc__
        confirmed = len(replica.state.pods) - len(replica.state.pods.assumed)
        assert confirmed == placed, case.__doc__
        assert [*replica.scheduler.profiles.in_force] == ["mooring"], case.__doc__
    await replica.client.close()


@pytest.mark.parametrize("case", [*CASES, *POD_CASES, tainted_driver, *HOSTILE])
def test_every_case_says_in_one_line_what_is_done(case: Case) -> None:
    assert case.__doc__ is not None
    assert len(case.__doc__.splitlines()) == 1
    assert len(case.__doc__) <= 92


class Clock:
    """A clock that advances by a millisecond at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


async def test_the_longest_step_is_measured() -> None:
    clock = Clock()

    async def busy() -> None:
        await asyncio.sleep(0)
        clock.now += 3.0
        await asyncio.sleep(0)

    hold = await longest_hold(busy(), clock)
    assert hold.seconds == pytest.approx(3.0, abs=0.1)
    assert hold.task.endswith("busy")


async def test_a_walk_over_the_oldest_generation_is_not_part_of_a_step() -> None:
    clock = Clock()

    def walks(phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            clock.now += 2.0

    async def work() -> None:
        gc.collect()
        clock.now += 1.0

    gc.callbacks.append(walks)
    try:
        hold = await longest_hold(work(), clock)
    finally:
        gc.callbacks.remove(walks)
    assert hold.walk == pytest.approx(2.0, abs=0.1)
    assert hold.seconds == pytest.approx(1.0, abs=0.1)


async def test_cases_are_chosen_by_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = await measure(NODES, "Scrape")
    assert [what for what, _, _ in found] == ["Scrape the metrics"]
    assert f"{1000 * BOUND:.0f}" in capsys.readouterr().out


async def test_an_ordinary_pod_of_another_namespace_waits_behind_slow_pods_for_a_while() -> None:
    replica = FullReplica(NODES)
    clock = Clock()
    wait = Wait(replica, clock)
    (case,) = [case for case in HOSTILE if "an ordinary pod" in (case.__doc__ or "")]
    for work in case(replica):
        await wait.beside(work)
    assert 0.0 < wait.seconds < 1.0
    assert not replica.scheduler.queue.uids()
    await replica.client.close()
