"""Tests the comparison with and without Queues, and the objects of two other benchmarks."""

from dataclasses import replace

from rich.console import Console

from bench import objects, reclaim
from bench.kueue_baseline import CLASSES, preparation, queue_names, table_of, works
from bench.live import LiveRun
from bench.queues import ratio_of
from bench.workloads import WORKLOADS
from mooring.quota.model.queue import QUEUE_LABEL, Preempts, parse_queue


def run(workload: str, cpu: float) -> LiveRun:
    return LiveRun(workload, 150.0, 10, 10, cpu, ())


def test_the_ratio_is_that_of_the_medians() -> None:
    without = [run("queues-none", cpu) for cpu in (1.0, 2.0, 9.0)]
    assert ratio_of([*without, run("queues", 2.5), run("queues", 3.5)]) == 1.5
    assert ratio_of(without) is None


def test_both_drains_have_the_same_pods_but_for_the_names_of_queues() -> None:
    with_queues, without = (
        [*objects.measured_pods(WORKLOADS[name], "bench", "mooring")]
        for name in ("queues", "queues-none")
    )
    assert not [*objects.queues(WORKLOADS["queues-none"])]
    for _, pod in with_queues:
        pod["metadata"]["labels"][QUEUE_LABEL] = ""
    assert with_queues == without


def test_the_borrower_fills_all_nodes_and_the_owners_pods_are_as_many() -> None:
    workload = reclaim.workload_of(3_900, gang=1_000)
    assert workload.nodes * reclaim.PER_NODE == workload.existing == 3_900
    assert workload.groups == ((3, 1_000),)
    (_, pod), *_ = objects.existing_pods(workload, "bench")
    assert pod["metadata"]["labels"][QUEUE_LABEL] == "borrower"


def test_kueues_configuration_has_15000_workloads_in_30_queues_that_may_reclaim() -> None:
    queues = [parse_queue(raw) for path, raw in preparation() if path == objects.QUEUES]
    leaves = [queue for queue in queues if queue.parent]
    assert len(leaves) == 30
    assert not any(queue.invalid for queue in queues)
    for queue in leaves:
        assert (queue.reclaims, queue.within) == (Preempts.ANY, Preempts.LOWER_PRIORITY)
        assert (queue.quotas["cpu"].nominal, queue.quotas["cpu"].borrowing_limit) == (20e3, 100e3)
    all_works = [
        work for of in CLASSES for _, name in queue_names() for work in works(of, name, "")
    ]
    assert len(all_works) == 15_000


def test_the_time_to_the_placement_is_counted_from_the_first_creation() -> None:
    (work, *_) = works(CLASSES[0], "q", "mooring")
    placed = replace(work, created=10.0, placed=14.0, ended=15.0, evictions=2)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table_of([placed, replace(work, created=11.0)]))
    (row,) = [line for line in capture.get().splitlines() if "small" in line]
    assert [cell.strip() for cell in row.split("│")[2:-1]] == [
        "2",
        "1",
        "1",
        "2",
        "4.0",
        "4.0",
        "215.5",
    ]
