from typing import Any

from mooring.cli.pending import examples_by_cause, pending_lines, workload_lines


def row(name: str, cause: str, seconds: int) -> dict[str, Any]:
    return {"pod": f"shop/{name}", "state": "unschedulable", "cause": cause} | {
        "attempts": 1,
        "pendingSeconds": seconds,
    }


def test_of_many_causes_the_first_are_shown_and_the_others_counted() -> None:
    causes = [{"cause": f"cause {n}", "pods": 2, "oldestSeconds": 60} for n in range(17)]
    found = {
        "total": 40,
        "states": {"unschedulable": 40, "gated": 0},
        "causes": causes,
        "otherCauses": 6,
        "owners": [],
        "otherPods": 40,
    }
    lines = [*pending_lines(found, "")]
    assert lines[0] == "40 pods pending in all namespaces: 40 unschedulable"
    assert lines[3].split() == ["2", "1m0s", "cause", "0"]
    assert lines[18:20] == ["and 10 more", ""]


def test_the_most_frequent_causes_come_first_with_their_oldest_pods() -> None:
    pods = [row("a", "gpu", 90), row("b", "zone", 80), row("c", "zone", 70), row("d", "cpu", 60)]
    found = {"placed": 2, "total": 4, "pods": [*pods, row("e", "memory", 50)]}
    assert examples_by_cause(found) == ["shop/b", "shop/a", "shop/d"]
    lines = [*workload_lines("deployment/web", found)]
    assert lines[0] == "deployment/web: 2 pods on nodes, 4 pending"
    assert [line.split() for line in lines[3:5]] == [["2", "1m20s", "zone"], ["1", "1m30s", "gpu"]]


def test_a_workload_whose_pods_run_is_one_line() -> None:
    found = {"placed": 1, "total": 0, "pods": []}
    assert [*workload_lines("job/x", found)] == ["job/x: 1 pod on nodes, 0 pending"]
