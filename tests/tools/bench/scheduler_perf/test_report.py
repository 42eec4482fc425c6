import io
import json
from pathlib import Path

from rich.console import Console

from bench.scheduler_perf.__main__ import WIDTH, typical
from bench.scheduler_perf.reading import Operation, Workload
from bench.scheduler_perf.report import Result, faults, results_table, write_json
from bench.scheduler_perf.stage import PerfRun
from bench.scheduler_perf.throughput import Throughput

FAST = Throughput(pods=100, samples=(40.0, 60.0), whole_seconds=2.0, cpu_seconds=0.2)
SLOW = Throughput(pods=100, samples=(20.0,), whole_seconds=4.0, cpu_seconds=0.4)
SHORT = Throughput(pods=10, samples=(), whole_seconds=0.5, cpu_seconds=0.1)


def workload(
    name: str = "Case/500Nodes", objects: int = 10, obstacles: tuple[str, ...] = ()
) -> Workload:
    operations = [Operation("createNodes", {"count": objects})]
    return Workload(
        name,
        Path(),
        frozenset({"performance"}),
        gates={"A": True},
        threshold=30.0,
        operations=() if obstacles else operations,
        obstacles=obstacles,
    )


def result(ours: Throughput, theirs: Throughput, fault: str = "") -> Result:
    runs = [PerfRun("mooring", (ours,)), PerfRun("kube-scheduler", (theirs,), fault)]
    return Result(workload(), [*runs, *reversed(runs)])


def shown(*results: Result) -> str:
    output = io.StringIO()
    Console(file=output, width=WIDTH).print(results_table(results))
    return output.getvalue()


def row(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("Case/"))
    return line.split()


def test_a_row_has_both_averages_the_threshold_and_three_ratios() -> None:
    assert row(shown(result(FAST, SLOW))) == [
        "Case/500Nodes",
        "50",
        "20",
        "30",
        "2.50",
        "2.00",
        "0.50",
    ]


def test_a_run_that_was_too_short_for_upstreams_average_is_compared_as_a_whole() -> None:
    assert row(shown(result(SHORT, SHORT))) == [
        "Case/500Nodes",
        "short",
        "short",
        "30",
        "1.00",
        "1.00",
    ]


def test_a_workload_that_did_not_come_to_its_end_shows_no_figures_and_its_fault_is_told() -> None:
    void = result(FAST, SLOW, fault="3 of 5 pods are scheduled")
    assert row(shown(void)) == ["Case/500Nodes", "void"]
    assert faults([void]) == ["Case/500Nodes, kube-scheduler: 3 of 5 pods are scheduled"] * 2


def test_the_table_fits_a_terminal() -> None:
    long = Result(workload("Case" * 20 + "/5000Nodes_50000Pods"), result(FAST, SLOW).runs)
    assert all(len(line) <= WIDTH for line in shown(long, result(FAST, SLOW)).splitlines())


def test_the_file_has_every_run_and_what_was_left_out(tmp_path: Path) -> None:
    out = workload("Case/other", obstacles=("meltNodes: unknown operation",))
    written = json.loads(write_json(tmp_path, [result(FAST, SLOW)], [out]).read_text())
    (one,) = written["workloads"]
    assert (one["name"], one["threshold"], one["gates"]) == ("Case/500Nodes", 30.0, {"A": True})
    schedulers = [run["scheduler"] for run in one["runs"]]
    assert schedulers == ["mooring", "kube-scheduler", "kube-scheduler", "mooring"]
    (measured,) = one["runs"][0]["measured"]
    assert (measured["average"], measured["percentiles"]["Perc90"]) == (50.0, 60.0)
    assert written["left_out"] == {"Case/other": ["meltNodes: unknown operation"]}


def test_by_default_the_largest_workload_of_each_case_that_is_not_too_large_is_run() -> None:
    small, middle, large = (workload(f"A/{n}", objects=n) for n in (10, 2000, 60_000))
    out = workload("B/1", obstacles=("unknown",))
    only_large = workload("C/1", objects=60_000)
    assert typical([small, middle, large, out, only_large]) == [middle, out]
