"""Tests the tables and the verdict of `bench.live`."""

import json
from pathlib import Path

from rich.console import Console

from bench.live import LiveRun, cpu_share, live_table, write_json


def run(scheduler: str, rate: float, bound: int, cpu: float, *latencies: float) -> LiveRun:
    return LiveRun(scheduler, rate, 100, bound, cpu, latencies, events=7, attempts=9)


def printed(*runs: LiveRun) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(live_table(runs))
    return capture.get()


def test_cpu_is_counted_for_the_pods_that_were_bound() -> None:
    assert run("mooring", 50.0, 50, 0.1).cpu_ms_per_pod == 2.0
    assert run("mooring", 50.0, 0, 0.1).cpu_ms_per_pod == 100.0


def test_a_latency_is_between_those_of_the_pods() -> None:
    some = run("mooring", 50.0, 3, 0.1, 0.010, 0.020, 0.090)
    assert some.latency_ms(50) == 20.0
    assert 80.0 < some.latency_ms(99) < 90.0
    assert run("mooring", 50.0, 1, 0.1, 0.010).latency_ms(99) == 10.0


def test_a_row_has_the_medians_of_a_schedulers_runs_at_one_rate() -> None:
    text = printed(
        run("mooring", 50.0, 100, 0.1, 0.01, 0.01),
        run("kube-scheduler", 50.0, 100, 0.4, 0.02, 0.02),
        run("mooring", 50.0, 100, 0.3, 0.03, 0.03),
        run("mooring", 0.0, 90, 0.9, 0.5),
    )
    (ours,) = [line for line in text.splitlines() if "50 pods/s" in line and "mooring" in line]
    assert [cell.strip() for cell in ours.split("│")[2:-1]] == [
        "mooring",
        "100",
        "100",
        "9",
        "7",
        "0.20",
        "2.00",
        "20.0",
        "20.0",
        "20",
    ]
    (churn,) = [line for line in text.splitlines() if "names come and go" in line]
    cells = ["90", "100", "9", "7", "0.90", "10.00", "500.0", "500.0", "500"]
    assert [cell.strip() for cell in churn.split("│")[3:-1]] == cells


def test_the_share_of_the_cpu_is_that_of_the_medians_and_takes_both_schedulers() -> None:
    ours = [run("mooring", 0.0, 90, cpu) for cpu in (0.2, 0.3, 9.0)]
    theirs = [run("kube-scheduler", 0.0, 90, cpu) for cpu in (0.5, 0.1, 0.6)]
    assert cpu_share([*ours, *theirs]) == 0.3 / 0.5
    assert cpu_share(ours) is None


def test_the_file_has_each_latency_of_each_run(tmp_path: Path) -> None:
    path = write_json(tmp_path, [run("mooring", 50.0, 2, 0.1, 0.01, 0.02)])
    written = json.loads(path.read_text())
    assert written["python"].startswith("Python 3")
    (found,) = written["runs"]
    assert (found["scheduler"], found["latencies"]) == ("mooring", [0.01, 0.02])
