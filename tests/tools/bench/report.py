"""Shows the figures as aligned tables, and writes them as JSON."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.command import write
from bench.figures import AT_THE_LIMIT, Comparison, Run, times_the_cpu
from bench.workloads import Workload


def runs_table(workload: Workload, runs: Sequence[Run]) -> Table:
    """Return one row per run, in the order in which they ran."""
    before = f" beside {workload.existing:,}" if workload.existing else ""
    claims = f" beside {workload.claims_in_use:,} claims" if workload.devices else ""
    behind = f" behind {workload.hopeless:,}" if workload.hopeless else ""
    size = f"{workload.pods:,} pods{before}{claims}{behind} onto {workload.nodes:,} nodes"
    table = Table(
        title=f"{workload.name}: {workload.about}; {size}",
        title_justify="left",
        caption_justify="left",
        caption="CPU until the scheduler had nothing left to do; us/pod: after its start-up",
    )
    table.add_column("scheduler")
    columns = ("pods/s", "first bind s", "CPU s", "us/pod", "peak MiB", "apiserver CPU s")
    for title in (*columns, "etcd CPU s", "writes/pod"):
        table.add_column(title, justify="right")
    if workload.evicts:
        table.add_column("evicted", justify="right")
    for run in runs:
        table.add_row(*_cells(run, evicts=workload.evicts), style="red" if run.faults else "")
    return table


def summary_table(results: Sequence[tuple[Workload, Comparison]]) -> Table:
    """Return one row per workload."""
    table = Table(title="mooring / kube-scheduler", title_justify="left")
    table.add_column("workload")
    for title in ("pods/s", "goal", "", "CPU per pod"):
        table.add_column(title, justify="right")
    for workload, result in results:
        figures = (_shown(result.ratio), f"{result.goal:.1f}", _word(result))
        table.add_row(workload.name, *figures, _shown(result.cpu_ratio))
    return table


def costs(results: Sequence[tuple[Workload, Comparison]]) -> list[tuple[str, bool]]:
    """Return words and a verdict for each workload with a limit on its cost beside another's."""
    by_name = {workload.name: result for workload, result in results}
    found = []
    for workload, result in results:
        other, most = workload.at_most or ("", 0.0)
        if other in by_name:
            times = times_the_cpu(result, by_name[other])
            reached = times is not None and times <= most
            word = "reached" if reached else "missed"
            words = f"{workload.name}: {_shown(times)} times the CPU per pod of {other}"
            found.append((f"{words} (goal at most {most:g}: {word})", reached))
    return found


def verdict(result: Comparison, runs: Sequence[Run]) -> list[str]:
    """Return the comparison as sentences, with the faults that make it void."""
    faults = [f"{run.scheduler}: {fault}" for run in runs for fault in run.faults[:5]]
    if faults:
        return ["void:", *faults]
    goal = f"goal {result.goal:.1f}"
    if result.of_limit is not None:
        goal += f", or {AT_THE_LIMIT} times the API server's limit"
    rates = f"{_shown(result.ratio)} times the pods/s ({goal}: {_word(result)})"
    cpu = f"{_shown(result.cpu_ratio)} times the CPU per pod"
    lines = [f"mooring / kube-scheduler: {rates}, {cpu}"]
    if result.of_limit is not None:
        lines.append(f"{_shown(result.of_limit)} times the pods/s of the API server's limit")
    lines += _machine(runs)
    if result.whole_seconds is not None:
        ours, theirs = result.whole_seconds
        lines.append(f"from the start to the last binding: {ours:.0f} s and {theirs:.0f} s")
    if result.others_ratio is not None:
        lines.append(
            f"of the pods of the second kind: {_shown(result.others_ratio)} times the pods/s"
        )
    return lines


def _machine(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the cost of all programs together, which other load on the machine hardly changes."""
    cores = os.cpu_count() or 1
    costs = {
        name: median(each.whole_cpu_ms_per_pod for each in runs if each.scheduler == name)
        for name in dict.fromkeys(run.scheduler for run in runs if run.beside_cpu_seconds)
    }
    if costs:
        shown = ", ".join(f"{name} {cost:.0f} ms" for name, cost in costs.items())
        rates = ", ".join(f"{1e3 * cores / cost:.0f}" for cost in costs.values())
        yield f"CPU of all programs per pod: {shown}; {cores} cores allow {rates} pods/s"


def write_json(
    folder: Path,
    workload: Workload,
    runs: Sequence[Run],
    result: Comparison | None,
    *,
    apart: bool = False,
) -> Path:
    """Write the figures to a file; return its path.

    `apart` says that the API server and etcd had cores of their own.
    """
    document = {
        "workload": _described(workload),
        "runs": [_described_run(run) for run in runs],
        "comparison": result and {**asdict(result), "reached": result.reached},
    }
    return write(folder / f"{workload.name}.json", document, apart=apart)


def _cells(run: Run, *, evicts: bool) -> list[str]:
    figures = (
        f"{run.pods_per_second:.0f}",
        f"{run.first_bind_seconds:.2f}",
        f"{run.cpu_seconds:.2f}",
        f"{run.cpu_us_per_pod:.0f}",
        f"{run.peak_mib:.0f}",
        f"{run.apiserver_cpu_seconds:.2f}",
        f"{run.etcd_cpu_seconds:.2f}",
        f"{run.writes_per_pod:.2f}",
    )
    if run.faults:
        return [run.scheduler, "void"]
    return [run.scheduler, *figures, *([str(run.evicted)] if evicts else [])]


def _shown(ratio: float | None) -> str:
    return "void" if ratio is None else f"{ratio:.2f}"


def _word(result: Comparison) -> str:
    return "reached" if result.reached else "missed"


def _described(workload: Workload) -> dict[str, Any]:
    described: dict[str, Any] = asdict(workload)
    for kind in (described["kind"], described["second_kind"], described["existing_kind"]):
        if kind:
            kind["constraint"] = kind["constraint"].__name__
    return described


def _described_run(run: Run) -> Mapping[str, Any]:
    rates = {
        "pods_per_second": run.pods_per_second,
        "cpu_us_per_pod": run.cpu_us_per_pod,
        "whole_cpu_ms_per_pod": run.whole_cpu_ms_per_pod,
    }
    others = {"others_per_second": run.others_per_second} if run.others else {}
    return {**rates, **others, **asdict(run)}
