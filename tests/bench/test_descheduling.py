"""How the bench beside the descheduler counts; the runs themselves need a control plane."""

from collections import Counter

from rich.console import Console

from bench.descheduling import SCENES, Outcome, came_back, outcomes_table


def test_a_replacement_on_the_node_that_its_workload_left_came_back() -> None:
    before = Counter({("web", "n1"): 3, ("web", "n2"): 1})
    assert came_back(before, Counter({("web", "n1"): 1, ("web", "n2"): 3}), evictions=2) == 0
    assert came_back(before, Counter({("web", "n1"): 2, ("web", "n2"): 2}), evictions=3) == 2
    assert came_back(before, before, evictions=4) == 4


def test_a_replacement_of_another_workload_did_not_come_back() -> None:
    before = Counter({("web", "n1"): 1, ("db", "n2"): 1})
    assert came_back(before, Counter({("web", "n2"): 1, ("db", "n1"): 1}), evictions=2) == 0


def test_a_pod_that_waits_has_left_its_node() -> None:
    assert came_back(Counter({("web", "n1"): 2}), Counter({("web", ""): 2}), evictions=2) == 0


def test_what_is_left_is_said_in_words() -> None:
    placed = Counter({("web", "a-1"): 4, ("web", "c-2"): 2, ("web", "old-1"): 1, ("web", ""): 1})
    assert SCENES["half-empty"].left(placed) == "3 nodes in use"
    assert SCENES["zone"].left(placed) == "4/0/2 in zones a/b/c"
    assert SCENES["affinity"].left(placed) == "1 on nodes that are not theirs"


def test_the_table_has_a_row_for_each_run() -> None:
    table = outcomes_table([Outcome("zones", "mooring", 4, 0, 1, "4/4/4", 12.3)])
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    row = next(line for line in capture.get().splitlines() if "mooring" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "zones",
        "mooring",
        "4",
        "0",
        "1",
        "4/4/4",
        "12",
    ]
