"""A pod that is too large names the first limit that it exceeds."""

from typing import Any

import pytest

from mooring.model.limits import LIMITS, Counted, exceeded
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXISTS = {"key": "zone", "operator": "Exists"}


def node_terms(number: int, *expressions: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [*(expressions or [EXISTS])]}] * number
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def pod_terms(number: int, **fields: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", **fields}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term] * number}}}


def more(counted: Counted) -> int:
    return LIMITS[counted] + 1


def names(counted: Counted) -> list[str]:
    return [f"n{i}" for i in range(more(counted))]


ONE_TOO_MANY: dict[Counted, dict[str, Any]] = {
    Counted.BYTES: {"node_selector": {"key": "v" * more(Counted.BYTES)}},
    Counted.NODE_TERMS: node_terms(more(Counted.NODE_TERMS)),
    Counted.POD_TERMS: pod_terms(more(Counted.POD_TERMS)),
    Counted.SPREAD_CONSTRAINTS: {
        "spread": [{"topologyKey": "zone", "maxSkew": 1}] * more(Counted.SPREAD_CONSTRAINTS)
    },
    Counted.REQUIREMENTS: node_terms(1, *([EXISTS] * more(Counted.REQUIREMENTS))),
    Counted.VALUES: node_terms(
        1, {"key": "zone", "operator": "NotIn", "values": names(Counted.VALUES)}
    ),
    Counted.RESOURCES: {"requests": {f"example.com/{n}": 1 for n in names(Counted.RESOURCES)}},
    Counted.TOLERATIONS: {"tolerations": [{"operator": "Exists"}] * more(Counted.TOLERATIONS)},
    Counted.HOST_PORTS: {"ports": range(1, more(Counted.HOST_PORTS) + 1)},
    Counted.IMAGES: {
        "spec": {"volumes": [{"name": n, "image": {"reference": n}} for n in names(Counted.IMAGES)]}
    },
    Counted.CONTAINERS: {"images": [""] * more(Counted.CONTAINERS)},
    Counted.RESOURCE_CLAIMS: {
        "spec": {"resourceClaims": [{"name": n} for n in names(Counted.RESOURCE_CLAIMS)]}
    },
    Counted.LABELS: {"labels": dict.fromkeys(names(Counted.LABELS), "x")},
    Counted.VOLUMES: {"claims": names(Counted.VOLUMES)},
}
"""The fields of pods that exceed one limit."""


@pytest.mark.parametrize("counted", Counted)
def test_one_more_than_a_limit_exceeds_it(counted: Counted) -> None:
    found = parse_pod(pod(**ONE_TOO_MANY[counted])).limit_exceeded
    assert found is not None
    assert str(counted) in found
    assert str(LIMITS[counted]) in found


def test_an_ordinary_pod_exceeds_nothing() -> None:
    ordinary = pod(cpu="1", labels={"app": "web"}, claims=["data"], ports=[80], **node_terms(3))
    assert parse_pod(ordinary).limit_exceeded is None


def test_exactly_the_limit_is_allowed() -> None:
    assert parse_pod(pod(**node_terms(LIMITS[Counted.NODE_TERMS]))).limit_exceeded is None
    assert exceeded(dict(LIMITS)) is None


def test_what_is_bound_already_is_parsed_and_counted_whatever_it_has() -> None:
    bound = parse_pod(pod(node="n1", cpu="1", **ONE_TOO_MANY[Counted.RESOURCES]))
    assert len(bound.spec.demand.resources) == more(Counted.RESOURCES) + 1


@pytest.mark.parametrize(
    "terms",
    [
        pod_terms(more(Counted.POD_TERMS)),
        pod_terms(1, labelSelector={"matchExpressions": [EXISTS] * more(Counted.REQUIREMENTS)}),
        pod_terms(1, namespaces=names(Counted.VALUES)),
    ],
    ids=["terms", "requirements", "values"],
)
def test_inter_pod_terms_beyond_a_limit_do_not_count_of_a_pod_that_names_its_node(
    terms: dict[str, Any],
) -> None:
    """Otherwise every decision about another pod would read these terms."""
    placed = parse_pod(pod(node="n1", **terms))
    assert placed.spec.affinity.empty
    assert placed.limit_exceeded == parse_pod(pod(**terms)).limit_exceeded is not None
    assert not parse_pod(pod(**terms)).spec.affinity.empty


def test_inter_pod_terms_of_a_pod_on_a_node_count_where_something_else_exceeds_a_limit() -> None:
    images = names(Counted.IMAGES)
    placed = parse_pod(pod(node="n1", images=images, **pod_terms(LIMITS[Counted.POD_TERMS])))
    assert placed.spec.affinity.term_count == LIMITS[Counted.POD_TERMS]
