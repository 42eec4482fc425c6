from dataclasses import replace

import pytest

from bench.figures import Run, compare, rate


def a_run(scheduler: str, seconds: float, *faults: str) -> Run:
    return Run(
        scheduler=scheduler,
        pods=100,
        bound=100,
        seconds=seconds,
        first_bind_seconds=1.0,
        whole_seconds=seconds + 0.5,
        cpu_seconds=3.0,
        drain_cpu_seconds=2.0,
        peak_mib=100.0,
        apiserver_cpu_seconds=1.0,
        etcd_cpu_seconds=1.0,
        evicted=0,
        writes={"POST pods/binding": 100, "POST events": 50},
        faults=faults,
    )


def test_a_rate_is_the_bound_pods_over_the_seconds_they_took() -> None:
    assert a_run("ours", 4.0).pods_per_second == 25.0


def test_a_span_without_time_has_no_rate() -> None:
    assert rate(1, 0.0) == 0.0


def test_cpu_and_writes_are_told_per_bound_pod() -> None:
    run = a_run("ours", 1.0)
    assert run.cpu_us_per_pod == pytest.approx(20_000)
    assert run.writes_per_pod == 1.5


def test_the_ratio_is_that_of_the_medians() -> None:
    runs = [a_run("ours", s) for s in (1.0, 2.0, 100.0)] + [a_run("theirs", 4.0)]
    result = compare(runs, "ours", "theirs", goal=2.0)
    assert result.ratio == 2.0
    assert result.reached


def test_the_cpu_per_pod_is_compared_too() -> None:
    thrifty = replace(a_run("ours", 1.0), drain_cpu_seconds=0.5)
    result = compare([thrifty, a_run("theirs", 1.0)], "ours", "theirs", 1.0)
    assert result.cpu_ratio == 0.25
    assert result.cpu_us_per_pod == pytest.approx(5_000)


def test_the_seconds_from_the_start_are_told_for_both() -> None:
    runs = [a_run("ours", 1.0), a_run("ours", 3.0), a_run("theirs", 8.0)]
    assert compare(runs, "ours", "theirs", 1.0).whole_seconds == (2.5, 8.5)


def test_the_pods_of_a_second_kind_are_compared_alone_if_there_are_any() -> None:
    ours, theirs = a_run("ours", 1.0), a_run("theirs", 2.0)
    assert compare([ours, theirs], "ours", "theirs", 1.0).others_ratio is None
    runs = [
        replace(ours, others=50, others_seconds=0.5),
        replace(theirs, others=50, others_seconds=2),
    ]
    assert compare(runs, "ours", "theirs", 1.0).others_ratio == 4.0


def test_a_goal_that_is_almost_reached_is_missed() -> None:
    runs = [a_run("ours", 1.0), a_run("theirs", 1.99)]
    assert not compare(runs, "ours", "theirs", goal=2.0).reached


@pytest.mark.parametrize("void", ["ours", "theirs"])
def test_one_void_run_makes_the_comparison_void(void: str) -> None:
    runs = [a_run("ours", 1.0), a_run("theirs", 1.0), a_run(void, 1.0, "a pod is not bound")]
    result = compare(runs, "ours", "theirs", goal=1.0)
    assert result.ratio is None
    assert not result.reached


def test_nothing_bound_is_no_ratio_rather_than_a_division_by_zero() -> None:
    runs = [a_run("ours", 1.0), a_run("theirs", 0.0)]
    assert compare(runs, "ours", "theirs", goal=1.0).ratio is None


def test_who_is_as_fast_as_a_client_that_decides_nothing_has_reached_every_goal() -> None:
    runs = [a_run("ours", 10.0), a_run("theirs", 20.0), a_run("limit", 9.0)]
    result = compare(runs, "ours", "theirs", 10.0, "limit")
    assert result.of_limit == pytest.approx(0.9)
    assert result.reached
    slower = compare([*runs[:2], a_run("limit", 8.0)], "ours", "theirs", 10.0, "limit")
    assert slower.of_limit == pytest.approx(0.8)
    assert not slower.reached
    assert compare(runs[:2], "ours", "theirs", 10.0, "limit").of_limit is None
