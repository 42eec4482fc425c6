from collections.abc import Callable

import pytest

from mooring.policy.label_selectors import LabelSelector, NodeSelectorTerm
from mooring.policy.reading import read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


def expression(operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "a", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"matchLabels": {"app.kubernetes.io/name": "web", "empty": ""}},
        expression("In", "x", ""),
        expression("NotIn", "x"),
        expression("Exists"),
        expression("DoesNotExist"),
    ],
)
def test_a_selector_reads_back_as_it_was_written(document: dict[str, object]) -> None:
    selector = read(LabelSelector, document, "")
    assert selector.model_dump(mode="json", by_alias=True, exclude_unset=True) == document


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        ("In", (), "must not be empty where operator is In"),
        ("NotIn", (), "must not be empty where operator is NotIn"),
        ("Exists", ("x",), "must be empty where operator is Exists"),
        ("DoesNotExist", ("x",), "must be empty where operator is DoesNotExist"),
    ],
)
def test_the_operator_decides_whether_values_are_needed(
    operator: str, values: tuple[str, ...], message: str, mistakes: Mistakes
) -> None:
    found = mistakes(lambda: read(LabelSelector, expression(operator, *values), ""))
    assert found == {"matchExpressions[0].values": message}


@pytest.mark.parametrize("values", [(), ("1", "2"), ("1.5",), ("x",)])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_comparison_needs_one_integer(
    operator: str, values: tuple[str, ...], mistakes: Mistakes
) -> None:
    found = mistakes(lambda: read(NodeSelectorTerm, expression(operator, *values), ""))
    assert f"must be one integer where operator is {operator}" in found.values()


def test_labels_of_pods_and_namespaces_are_not_compared(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(LabelSelector, expression("Gt", "1"), ""))
    assert found == {
        "matchExpressions[0].operator": 'must be one of In, NotIn, Exists, DoesNotExist, got "Gt"'
    }


def test_only_a_nodes_name_can_be_selected_as_a_field(mistakes: Mistakes) -> None:
    field = {"key": "spec.podCIDR", "operator": "In", "values": ["a", "b"]}
    found = mistakes(lambda: read(NodeSelectorTerm, {"matchFields": [field]}, ""))
    assert found == {
        "matchFields[0].key": 'must be metadata.name, got "spec.podCIDR"',
        "matchFields[0].values": "must have 1 or fewer items, has 2",
    }


def test_an_invalid_key_is_reported_with_its_path(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(LabelSelector, {"matchLabels": {"a/b/c": "x"}}, "selector"))
    assert [*found] == ["selector.matchLabels[a/b/c]"]
