"""The command `mooring top` shows the changes between two readings of the metrics."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.running import Running, serving
from mooring.cli.scrape import Reading
from mooring.cli.top import interval, rendered, top


def cause(text: str, pods: int, **states: int) -> dict[str, Any]:
    return {"cause": text, "pods": pods, "states": states, "oldestSeconds": 3720}


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
scheduler_unschedulable_pods{plugin="NodeUnschedulable",profile="a"} 7.0
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


PENDING: dict[str, Any] = {
    "states": {"without a profile": 2, "unschedulable": 7, "active": 1200},
    "causes": [
        cause("not decided yet", 1200, active=1200),
        cause("Insufficient cpu", 5, unschedulable=5),
        cause("no profile takes the pod", 2, **{"without a profile": 2}),
        cause("node(s) had untolerated taint {gpu}", 2, unschedulable=2),
    ],
    "otherCauses": 3,
}


def view(
    before: str = BEFORE, after: str = AFTER, pending: dict[str, Any] | None = PENDING
) -> dict[str, object]:
    return interval(Reading.of(before, 0.0), Reading.of(after, 10.0), pending)


def lines(shown: dict[str, object], width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(rendered(shown))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_rates_are_those_of_the_interval_summed_over_profiles() -> None:
    assert view()["attemptsPerSecond"] == {"scheduled": 3.0, "unschedulable": 0.4, "error": 0.0}
    assert view()["preemptionsPerSecond"] == 0.1


def test_no_rate_is_negative_when_a_profile_goes() -> None:
    """A deleted profile's metrics are missing in the second reading."""
    without = "".join(line for line in AFTER.splitlines(keepends=True) if 'profile="b"' not in line)
    shown = view(BEFORE.replace("} 10.0", "} 1000.0"), without)
    assert shown["attemptsPerSecond"] == {"scheduled": 2.0, "unschedulable": 0.0, "error": 0.0}


def test_no_rate_is_negative_when_another_replica_leads() -> None:
    """The counters of the new leader begin at zero."""
    new = """\
leader_election_master_status{name="mooring"} 1.0
scheduler_schedule_attempts_total{profile="a",result="scheduled"} 5.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.01"} 0.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="0.02"} 5.0
scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="+Inf"} 5.0
"""
    shown = view(BEFORE, new)
    assert shown["attemptsPerSecond"] == {"scheduled": 0.5, "unschedulable": 0.0, "error": 0.0}
    assert shown["secondsUntilBound"] == {"p50": 0.02, "p99": 0.02}


def test_latencies_are_those_of_the_interval() -> None:
    assert view()["secondsUntilBound"] == {"p50": 0.01, "p99": 0.02}


def test_without_a_bound_pod_there_is_no_latency() -> None:
    assert view(AFTER, AFTER)["secondsUntilBound"] == {"p50": None, "p99": None}


def test_pods_are_counted_by_what_keeps_them_from_a_node_as_on_the_page() -> None:
    assert lines(view())[-8:] == [
        " PODS  OLDEST  WAIT FOR",
        "1,200  1h2m    not decided yet",
        "    5  1h2m    Insufficient cpu",
        "    2  1h2m    no profile takes the pod",
        "    2  1h2m    node(s) had untolerated taint {gpu}",
        "    3          causes that none of your pods has",
        "",
        "mooring explain POD says what would make it fit",
    ]


def test_the_number_of_reserved_nodes_is_beside_the_groups() -> None:
    assert "GROUPS    Pending 2" in lines(view())
    with_reserved = lines(view(after=AFTER + "mooring_reserved_nodes 14.0\n"))
    assert "GROUPS    Pending 2   14 nodes reserved" in with_reserved


def test_who_may_not_read_the_causes_is_told_what_is_missing() -> None:
    shown = lines(view(pending=None))
    assert shown[-1] == (
        "causes: need the right to get /debug/pending (ClusterRole mooring-explain)"
    )
    assert "without a profile" not in shown[0]


def test_the_summary_fits_into_80_columns() -> None:
    assert lines(view())[:6] == [
        "QUEUE     active 1,200   backoff 0   unschedulable 7   gated 0",
        "          without a profile 2",
        "ATTEMPTS  scheduled 3.0/s   unschedulable 0.4/s   error 0.0/s",
        "BOUND     in half of the cases within 0.01 s, in 99 % within 0.02 s",
        "          3 being bound   preemptions 0.1/s",
        "GROUPS    Pending 2",
    ]


def test_long_names_are_folded_and_not_cut() -> None:
    name = "a-label-whose-name-is-as-long-as-a-name-of-an-object-in-kubernetes-may-be-" * 2
    shown = lines(view(pending={"states": {}, "causes": [cause(name, 5)], "otherCauses": 0}))
    assert max(map(len, shown)) <= 80
    assert name in "".join(line[13:].strip() for line in shown)


def test_a_replica_that_does_not_lead_says_so() -> None:
    assert lines(view("", "", None))[0] == "this replica does not lead: its numbers stay at zero"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, pending=PENDING) as running:
        yield running


async def test_one_interval_of_a_running_scheduler_is_printed_as_json(running: Running) -> None:
    result = await running.answer(top, "--once", "--every=1", "-o", "json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["queues"]["active"] == 0
    assert shown["pending"] == PENDING


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
