"""Prometheus' own tool evaluates the alerts: each fires with fitting series, and not without."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controlplane.build import TOOLS_MODULE, programs_folder
from e2e.conftest import Cluster

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "manifests" / "monitoring" / "alerts.yaml").read_text())["spec"]
LEADS: Final = 'leader_election_master_status{name="mooring",pod="%s"}'
READY: Final = 'mooring_profile_ready{profile="packed",pod="a"}'
ATTEMPTS: Final = 'scheduler_schedule_attempts_total{result="%s",profile="mooring"}'
ACTIVE: Final = 'scheduler_pending_pods{queue="active",pod="a"}'
REJECTED: Final = 'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="mooring"}'
LAG: Final = 'mooring_watch_lag_seconds{resource="nodes",pod="a"}'
FAILURES: Final = (
    'mooring_plugin_failures_total{plugin="Mine",extension_point="Score",kind="error"}'
)
CALLS: Final = 'mooring_extender_calls_total{extender="http://e",verb="filter",result="%s"}'
EVICTED: Final = 'scheduler_preemption_goroutines_execution_total{result="%s"}'
RESTARTS: Final = 'mooring_kopf_restarts_total{pod="a"}'
HELD: Final = 'mooring_event_loop_held_seconds_count{pod="a"}'
HELD_FOR_A_SECOND: Final = 'mooring_event_loop_held_seconds_bucket{le="1.0",pod="a"}'
DROPPED: Final = 'mooring_events_dropped_total{pod="a"}'


@dataclass(frozen=True)
class Case:
    """Series with one value per minute, in promtool's notation, until a minute.

    With `fires` the alert fires then, with these labels and this summary; with `quiet` it does not.
    """

    alert: str
    minute: int
    fires: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str]
    summary: str
    since: int = 0
    """The first minute in which it is quiet."""


CASES = [
    Case(
        "MooringHasNoLeader",
        5,
        fires={LEADS % "a": "0x10", LEADS % "b": "0x10"},
        quiet={LEADS % "a": "1x10", LEADS % "b": "0x10"},
        labels={"severity": "critical"},
        summary="No replica of Mooring leads, so no pod is scheduled.",
    ),
    Case(
        "MooringHasTwoLeaders",
        5,
        fires={LEADS % "a": "1x10", LEADS % "b": "1x10"},
        quiet={LEADS % "a": "1x10", LEADS % "b": "0x10"},
        labels={"severity": "critical"},
        summary="More than one replica of Mooring says that it leads.",
    ),
    Case(
        "MooringPodsUnschedulable",
        35,
        fires={REJECTED: "3x40"},
        quiet={REJECTED: "3x20 0x20"},
        labels={"severity": "warning", "plugin": "NodeResourcesFit", "profile": "mooring"},
        summary="3 pods of profile mooring are rejected by NodeResourcesFit.",
    ),
    Case(
        "MooringQueueDoesNotDrain",
        20,
        fires={ACTIVE: "7x30"},
        quiet={ACTIVE: "7 7 7 7 0 7 7 7 7 0 7 7 7 7 0 7 7 7 7 0 7"},
        labels={"severity": "warning", "queue": "active", "pod": "a"},
        summary="7 pods or more have waited to be tried for 10 minutes.",
    ),
    Case(
        "MooringProfileNotInForce",
        10,
        fires={READY: "0x15"},
        quiet={READY: "0x3 1x12"},
        labels={"severity": "warning", "profile": "packed"},
        summary="The newest spec of the profile packed is invalid and not in force.",
    ),
    Case(
        "MooringEvictionsFail",
        15,
        fires={EVICTED % "error": "0x5 1x20", EVICTED % "success": "0+5x20"},
        quiet={EVICTED % "error": "1x20", EVICTED % "success": "0+5x20"},
        labels={"severity": "warning"},
        summary="Preemptions could not evict their victims.",
    ),
    Case(
        "MooringWatchLags",
        5,
        fires={LAG: "0 60 120 180 240 300 360"},
        quiet={LAG: "0 60 0 0 60 0 0"},
        labels={"severity": "warning", "resource": "nodes"},
        summary="The watch of nodes has not worked for 300 seconds.",
    ),
    Case(
        "MooringAttemptsFail",
        20,
        fires={ATTEMPTS % "error": "0+60x30"},
        quiet={ATTEMPTS % "error": "0+1x30", ATTEMPTS % "scheduled": "0+900x30"},
        labels={"severity": "warning", "profile": "mooring"},
        summary="Attempts to schedule pods of profile mooring end in errors.",
    ),
    Case(
        "MooringPluginFails",
        25,
        fires={FAILURES: "_x20 1x10"},
        quiet={FAILURES: "1x30"},
        labels={"severity": "warning", "plugin": "Mine", "extension_point": "Score"},
        summary="Plugin Mine fails at Score.",
        since=16,
    ),
    Case(
        "MooringExtenderFails",
        20,
        fires={CALLS % "timeout": "0+1x30"},
        quiet={CALLS % "timeout": "0 1x30", CALLS % "success": "0+9x30"},
        labels={"severity": "warning", "extender": "http://e", "verb": "filter"},
        summary="Calls of the extender http://e (filter) fail.",
    ),
    Case(
        "MooringKopfRestarts",
        15,
        fires={RESTARTS: "0+1x20"},
        quiet={RESTARTS: "0x5 1x20"},
        labels={"severity": "warning", "pod": "a"},
        summary="Mooring cannot watch pods or profiles and begins again and again.",
    ),
    Case(
        "MooringEventsDropped",
        10,
        fires={DROPPED: "0x5 9x10"},
        quiet={DROPPED: "9x20"},
        labels={"severity": "info", "pod": "a"},
        summary="Kubernetes Events were lost because too many waited to be written.",
    ),
    Case(
        "MooringNodesReserved",
        45,
        fires={"mooring_reserved_nodes": "0x5 2x60"},
        quiet={"mooring_reserved_nodes": "2x20 0x5 2x20"},
        labels={"severity": "warning"},
        summary="2 nodes have been reserved for pod groups for 30 minutes.",
    ),
    Case(
        "MooringEventLoopHeld",
        15,
        fires={HELD_FOR_A_SECOND: "7x5 8x30", HELD: "7x5 9x30"},
        quiet={HELD_FOR_A_SECOND: "7+1x30", HELD: "8+1x30"},
        labels={"severity": "warning", "pod": "a"},
        summary="Nothing else could run in a for more than a second.",
    ),
]


def promtool(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    program = programs_folder(TOOLS_MODULE) / "promtool"
    return subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the rules as Prometheus reads them, without the object around them."""
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(yaml.safe_dump(RULES))
    return file


def unit_test(case: Case, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    expected = {
        "exp_labels": case.labels,
        "exp_annotations": {"runbook_url": "docs/metrics.md#alerts", "summary": case.summary},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": case.alert,
                "exp_alerts": [expected] if fires else [],
            }
            for minute in ([case.minute] if fires else range(case.since, case.minute + 1))
        ],
    }


def test_every_alert_has_a_case() -> None:
    alerts = [alert["alert"] for group in RULES["groups"] for alert in group["rules"]]
    assert sorted(case.alert for case in CASES) == sorted(alerts)


def test_the_rules_are_what_prometheus_reads(rules: Path) -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_with_fitting_series_and_not_without(
    case: Case, rules: Path, tmp_path: Path
) -> None:
    file = tmp_path / "test.yaml"
    tests = [unit_test(case, case.fires, fires=True), unit_test(case, case.quiet, fires=False)]
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_scrape_is_what_prometheus_wants_metrics_to_be(cluster: Cluster) -> None:
    status, page = cluster.scheduler.get("/metrics")
    assert status == 200
    checked = promtool("check", "metrics", stdin=page)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
