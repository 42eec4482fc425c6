from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.check import cases
from conformance.comparing import decided, differences

DATA = Path(__file__).parent / "data" / "1.36"

Case = dict[str, Any]


def first(suite: str, wanted: Callable[[dict[str, Any]], Any]) -> Case:
    """Return a copy of the first case of a suite whose oracle `wanted` accepts."""
    return next(case for case in cases(DATA / f"{suite}.jsonl.xz") if wanted(case["oracle"]))


@pytest.fixture
def chosen() -> Case:
    """Return a case in which kube-scheduler had several nodes to choose from."""
    return first("spread", lambda oracle: oracle["scores"])


@pytest.fixture
def refused() -> Case:
    return first("preemption", lambda oracle: oracle["victims"])


def found(case: Case) -> str:
    return "\n".join(differences(case, decided(case)))


def test_a_recorded_decision_does_not_differ(chosen: Case, refused: Case) -> None:
    assert found(chosen) == found(refused) == ""


def test_another_share_of_one_plugin_differs(chosen: Case) -> None:
    node = chosen["oracle"]["node"]
    chosen["oracle"]["scores"][node]["plugins"]["TaintToleration"] -= 1
    assert found(chosen).startswith(f"scores of {node}: kube-scheduler")


def test_a_node_less_that_is_feasible_differs(chosen: Case) -> None:
    bound = chosen["oracle"]["node"]
    scores = chosen["oracle"]["scores"]
    del scores[next(node for node in scores if node != bound)]
    assert "feasible nodes: kube-scheduler" in found(chosen)


def test_a_node_that_is_not_the_best_differs(chosen: Case) -> None:
    scores = chosen["oracle"]["scores"]
    worst = min(scores, key=lambda node: int(scores[node]["total"]))
    scores[worst]["total"] = 1000
    assert f"node: kube-scheduler {worst}, Mooring" in found(chosen)


def test_another_only_feasible_node_differs() -> None:
    case = first("taints", lambda oracle: oracle["node"] and not oracle["scores"])
    case["oracle"]["node"] = "elsewhere"
    assert "feasible nodes: kube-scheduler ['elsewhere']" in found(case)
    assert "node: kube-scheduler elsewhere, Mooring" in found(case)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nominatedNode", "elsewhere", "nominated node: kube-scheduler 'elsewhere'"),
        ("victims", ["team-a/other"], "victims: kube-scheduler ['team-a/other']"),
        ("condition", {"message": "no."}, "message: kube-scheduler 'no.'"),
    ],
)
def test_another_refusal_differs(refused: Case, field: str, value: Any, said: str) -> None:
    refused["oracle"][field] = value
    assert found(refused).startswith(said)


def test_a_node_where_kube_scheduler_had_none_differs(chosen: Case) -> None:
    refusal = {"message": "no.", "reason": "Unschedulable", "status": "False"}
    nothing: Case = {"node": None, "nominatedNode": None, "scores": None, "victims": []}
    chosen["oracle"] = {**nothing, "condition": refusal}
    assert found(chosen).startswith("node: kube-scheduler None, Mooring '")
