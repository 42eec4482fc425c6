"""What happens between two readings of the metrics, and how it is shown."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console

from cli.running import Running, serving
from mooring.cli.top import Reading, interval, rendered, top

BEFORE = """\
leader_election_master_status{name="mooring"} 1.0
scheduler_schedule_attempts_total{profile="a",result="scheduled"} 100.0
scheduler_schedule_attempts_total{profile="b",result="scheduled"} 10.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.01"} 50.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.02"} 100.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="+Inf"} 110.0
"""
AFTER = """\
leader_election_master_status{name="mooring"} 1.0
scheduler_pending_pods{queue="active"} 1200.0
scheduler_pending_pods{queue="unschedulable"} 7.0
scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="a"} 5.0
scheduler_unschedulable_pods{plugin="TaintToleration",profile="default-scheduler"} 6.0
scheduler_schedule_attempts_total{profile="a",result="scheduled"} 120.0
scheduler_schedule_attempts_total{profile="b",result="scheduled"} 20.0
scheduler_schedule_attempts_total{profile="b",result="unschedulable"} 4.0
scheduler_preemption_attempts_total 1.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.01"} 70.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.02"} 130.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="+Inf"} 140.0
mooring_bindings_in_flight 3.0
mooring_pod_groups{phase="Pending"} 2.0
"""


def view(before: str = BEFORE, after: str = AFTER, seconds: float = 10.0) -> dict[str, object]:
    return interval(Reading.of(before, 0.0), Reading.of(after, seconds))


def lines(shown: dict[str, object], width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(rendered(shown))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_rates_are_those_of_the_interval_summed_over_profiles() -> None:
    assert view()["attemptsPerSecond"] == {"scheduled": 3.0, "unschedulable": 0.4, "error": 0.0}
    assert view()["preemptionsPerSecond"] == 0.1


def test_latencies_are_those_of_the_interval() -> None:
    assert view()["secondsUntilBound"] == {"p50": 0.01, "p99": 0.02}


def test_without_a_bound_pod_there_is_no_latency() -> None:
    assert view(AFTER, AFTER)["secondsUntilBound"] == {"p50": None, "p99": None}


def test_the_largest_cause_comes_first() -> None:
    assert lines(view())[-5:] == [
        "PODS  REJECTED BY       PROFILE",
        "   6  TaintToleration   default-scheduler",
        "   5  NodeResourcesFit  a",
        "",
        "mooring explain POD says what would make it fit",
    ]


def test_the_summary_fits_into_80_columns() -> None:
    assert lines(view())[:5] == [
        "QUEUE     active 1,200   backoff 0   unschedulable 7   gated 0",
        "ATTEMPTS  scheduled 3.0/s   unschedulable 0.4/s   error 0.0/s",
        "BOUND     in half of the cases within 0.01 s, in 99 % within 0.02 s",
        "          3 being bound   preemptions 0.1/s",
        "GROUPS    Pending 2",
    ]


def test_long_names_are_folded_and_not_cut() -> None:
    name = "a-profile-whose-name-is-as-long-as-a-name-of-an-object-in-kubernetes-may-be-" * 2
    after = AFTER.replace('profile="a"', f'profile="{name}"')
    shown = lines(view(BEFORE, after))
    assert max(map(len, shown)) <= 80
    assert name in "".join(line[24:].strip() for line in shown)


def test_a_replica_that_does_not_lead_says_so() -> None:
    assert lines(view("", ""))[0] == "this replica does not lead: its numbers stay at zero"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def test_one_interval_of_a_running_scheduler_is_printed_as_json(running: Running) -> None:
    result = await running.answer(top, "--once", "--every=1", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["queues"]["active"] == 0


async def test_one_interval_of_a_running_scheduler_is_printed_for_people(
    running: Running,
) -> None:
    result = await running.answer(top, "--once", "--every=1")
    assert "QUEUE     active 0" in result.stdout
    assert result.stdout.endswith("\n")


async def test_who_may_not_read_the_metrics_is_told_so(running: Running) -> None:
    result = await running.answer(top, "--once", user="bob")
    assert result.exit_code == 2
    assert 'User "bob" cannot get path "/metrics"' in result.stderr
