from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.model.selectors import LabelSelector
from mooring.model.workloads import (
    Controller,
    Namespace,
    PriorityClass,
    Service,
    parse_namespace,
    parse_pod_disruption_budget,
    parse_priority_class,
    parse_replica_set,
    parse_replication_controller,
    parse_service,
    parse_stateful_set,
)

Selecting = Service | Controller


def obj(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": "team-a"}} | fields


def selects(selector: LabelSelector | None, **labels: str) -> bool:
    return selector is not None and selector.matches(labels)


@pytest.mark.parametrize(
    ("parse", "selector", "kind"),
    [
        (parse_service, {"app": "web"}, Service),
        (parse_replication_controller, {"app": "web"}, Controller),
        (parse_replica_set, {"matchLabels": {"app": "web"}}, Controller),
        (parse_stateful_set, {"matchLabels": {"app": "web"}}, Controller),
        (parse_pod_disruption_budget, {"matchLabels": {"app": "web"}}, None),
    ],
)
def test_an_object_selects_pods_by_their_labels(
    parse: Callable[[Mapping[str, Any]], Selecting],
    selector: dict[str, Any],
    kind: type[Selecting] | None,
) -> None:
    parsed = parse(obj(spec={"selector": selector}))
    assert kind is None or type(parsed) is kind
    assert (parsed.namespace, parsed.name, parsed.key) == ("team-a", "web", "team-a/web")
    assert selects(parsed.selector, app="web", tier="front")
    assert not selects(parsed.selector, app="db")


@pytest.mark.parametrize(
    "parse",
    [parse_service, parse_replication_controller, parse_replica_set, parse_pod_disruption_budget],
)
def test_without_a_selector_no_pod_is_selected(
    parse: Callable[[Mapping[str, Any]], Selecting],
) -> None:
    assert parse(obj(spec={})).selector is None


def test_an_empty_selector_of_a_budget_is_not_an_absent_one() -> None:
    selector = parse_pod_disruption_budget(obj(spec={"selector": {}})).selector
    assert selector is not None
    assert selector.empty


def test_a_replication_controller_selects_by_its_template_where_it_has_no_selector() -> None:
    template = {"metadata": {"labels": {"app": "web"}}}
    controller = parse_replication_controller(obj(spec={"template": template}))
    assert selects(controller.selector, app="web")


def test_a_budget_has_its_allowed_disruptions_and_disrupted_pods() -> None:
    status = {"disruptionsAllowed": 2, "disruptedPods": {"web-1": "2026-01-01T00:00:00Z"}}
    budget = parse_pod_disruption_budget(obj(spec={}, status=status))
    assert (budget.disruptions_allowed, budget.disrupted_pods) == (2, frozenset({"web-1"}))


def test_a_budget_without_a_status_allows_nothing() -> None:
    budget = parse_pod_disruption_budget(obj(spec={}))
    assert (budget.disruptions_allowed, budget.disrupted_pods) == (0, frozenset())


def test_a_priority_class_preempts_by_default() -> None:
    raw = {"metadata": {"name": "high"}, "value": 1000, "globalDefault": True}
    assert parse_priority_class(raw) == PriorityClass(
        "high", 1000, global_default=True, preemption_policy="PreemptLowerPriority"
    )
    assert parse_priority_class(raw | {"preemptionPolicy": "Never"}).preemption_policy == "Never"


def test_a_namespace_has_its_labels() -> None:
    raw = {"metadata": {"name": "team-a", "labels": {"env": "dev"}}}
    assert parse_namespace(raw) == Namespace("team-a", {"env": "dev"})
    assert parse_namespace({"metadata": {"name": "bare"}}) == Namespace("bare", {})


@pytest.mark.parametrize(
    ("parse", "raw", "message"),
    [
        (
            parse_service,
            obj(spec={"selector": {"app": 1}}),
            "Service team-a/web spec.selector.app: must be a string, not 1",
        ),
        (
            parse_replica_set,
            obj(spec={"selector": "app=web"}),
            "ReplicaSet team-a/web spec.selector: must be an object, not 'app=web'",
        ),
        (
            parse_pod_disruption_budget,
            obj(status={"disruptedPods": "x"}),
            "PodDisruptionBudget team-a/web status.disruptedPods: must be an object, not 'x'",
        ),
        (
            parse_priority_class,
            {"metadata": {"name": "high"}, "value": "1k"},
            "PriorityClass high value: must be a whole number, not '1k'",
        ),
        (
            parse_namespace,
            {"metadata": {"name": "a", "labels": []}},
            "Namespace a metadata.labels: must be an object, not []",
        ),
    ],
)
def test_a_malformed_object_raises_an_error_with_name_and_field(
    parse: Callable[[Mapping[str, Any]], object], raw: dict[str, Any], message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(raw)
    assert str(caught.value) == message
