import io
import json
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Comparison, Run
from bench.report import costs, runs_table, summary_table, verdict, write_json
from bench.workloads import WORKLOADS

RUN = Run(
    scheduler="mooring",
    pods=100,
    bound=100,
    seconds=0.5,
    first_bind_seconds=1.25,
    whole_seconds=1.7,
    cpu_seconds=1.0,
    drain_cpu_seconds=0.04,
    peak_mib=99.6,
    apiserver_cpu_seconds=2.0,
    etcd_cpu_seconds=3.0,
    evicted=7,
    writes={"POST pods/binding": 100},
)
VOID = replace(RUN, faults=("node n1 is over its allocatable cpu",))


def rows(table: Table) -> list[list[str]]:
    output = io.StringIO()
    Console(file=output, width=140).print(table)
    lines = [line for line in output.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_a_run_is_a_row_of_its_figures() -> None:
    assert rows(runs_table(WORKLOADS["basic"], [RUN])) == [
        ["mooring", "200", "1.25", "1.00", "400", "100", "2.00", "3.00", "1.00"]
    ]


def test_evictions_are_shown_where_there_are_any() -> None:
    ((*_, evicted),) = rows(runs_table(WORKLOADS["preempt"], [RUN]))
    assert evicted == "7"


def test_a_void_run_shows_no_figures_and_its_faults_are_told() -> None:
    ((_, word, *others),) = rows(runs_table(WORKLOADS["basic"], [VOID]))
    assert word == "void"
    assert not any(others)
    assert verdict(Comparison(None, None, 1.0), [RUN, VOID]) == [
        "void:",
        "mooring: node n1 is over its allocatable cpu",
    ]


def test_a_verdict_says_what_all_programs_cost_and_how_many_pods_the_cores_allow() -> None:
    runs = [
        replace(RUN, scheduler=name, beside_cpu_seconds=beside)
        for name, beside in (("mooring", 0.96), ("kube-scheduler", 4.96))
    ]
    cores = os.cpu_count() or 1
    costs = "CPU of all programs per pod: mooring 60 ms, kube-scheduler 100 ms"
    rates = f"{cores} cores allow {1000 * cores / 60:.0f}, {10 * cores} pods/s"
    assert verdict(Comparison(1.5, 0.25, 2.0), runs)[1:] == [f"{costs}; {rates}"]


def test_a_verdict_says_both_ratios_and_whether_the_goal_is_reached() -> None:
    (line,) = verdict(Comparison(1.5, 0.25, 2.0), [RUN])
    assert "1.50 times the pods/s (goal 2.0: missed)" in line
    assert "0.25 times the CPU per pod" in line


def test_the_verdict_tells_the_seconds_from_the_start_of_the_process() -> None:
    *_, last = verdict(Comparison(3.1, 0.25, 3.0, whole_seconds=(47.6, 498.1)), [RUN])
    assert last == "from the start to the last binding: 48 s and 498 s"


def test_the_verdict_tells_the_pods_of_a_second_kind_apart() -> None:
    *_, last = verdict(Comparison(1.5, 0.25, 2.0, others_ratio=7.5), [RUN])
    assert last == "of the pods of the second kind: 7.50 times the pods/s"


def test_the_summary_has_a_row_per_workload() -> None:
    results = [
        (WORKLOADS["basic"], Comparison(1.2, 0.8, 1.0)),
        (WORKLOADS["preempt"], Comparison(None, None, 3.0)),
    ]
    assert rows(summary_table(results)) == [
        ["basic", "1.20", "1.0", "reached", "0.80"],
        ["preempt", "void", "3.0", "missed", "void"],
    ]


def test_what_a_workload_may_cost_is_compared_with_the_other_one_if_that_ran() -> None:
    plain = (WORKLOADS["plain-5000"], Comparison(1.5, 0.7, 1.5, 2000.0))
    shared = WORKLOADS["gpu-mem"]
    dear, cheap = (Comparison(1.0, 1.0, 1.0, cpu) for cpu in (3100.0, 3000.0))
    assert costs([plain, (shared, dear)]) == [
        ("gpu-mem: 1.55 times the CPU per pod of plain-5000 (goal at most 1.5: missed)", False)
    ]
    assert costs([plain, (shared, cheap)])[0][1]
    assert not costs([plain, (shared, Comparison(None, None, 1.0))])[0][1]
    assert costs([(shared, cheap)]) == []


def test_the_file_says_what_was_run_and_on_what(tmp_path: Path) -> None:
    workload = WORKLOADS["anti-host"]
    path = write_json(tmp_path, workload, [RUN], Comparison(5.0, 0.2, 4.0))
    written = json.loads(path.read_text())
    assert path.name == "anti-host.json"
    assert written["workload"]["kind"]["constraint"] == "alone_on_its_host"
    assert written["machine"]["cpus"] >= 1
    assert written["kubernetes"].startswith("v1.")
    assert written["runs"][0]["pods_per_second"] == 200.0
    assert written["comparison"] == {
        "ratio": 5.0,
        "cpu_ratio": 0.2,
        "goal": 4.0,
        "reached": True,
        "cpu_us_per_pod": None,
        "whole_seconds": None,
        "others_ratio": None,
        "of_limit": None,
    }


def test_the_verdict_tells_the_share_of_the_servers_limit() -> None:
    first, last = verdict(Comparison(3.0, 0.5, 10.0, of_limit=0.75), [RUN])
    assert "(goal 10.0, or 0.9 times the API server's limit: missed)" in first
    assert last == "0.75 times the pods/s of the API server's limit"
