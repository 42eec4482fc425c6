"""Parsing of Queues."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.quota.model.queue import Preempts, Queue, Quota, parse_queue
from mooring.testing.builders import queue_object


def refused(quotas: Any = (), **spec: Any) -> str:
    """Return the mistake that parsing finds in the spec."""
    read = parse_queue(queue_object("team-a", dict(quotas), **spec))
    assert read.invalid is not None
    assert read == Queue("team-a", invalid=read.invalid, namespaces=read.namespaces)
    return read.invalid


def test_amounts_are_millicores_bytes_and_counts() -> None:
    read = parse_queue(
        queue_object(
            "team-a",
            {
                "cpu": {"nominalQuota": "1500m", "borrowingLimit": 2, "lendingLimit": "0.5"},
                "memory": "2Gi",
                "nvidia.com/gpu": {"nominalQuota": 8, "lendingLimit": 0},
                "pods": 10,
            },
            parent="all",
        )
    )
    assert (read.name, read.parent, read.invalid) == ("team-a", "all", None)
    assert read.quotas == {
        "cpu": Quota(1500, 2000, 500),
        "memory": Quota(2 * 2**30),
        "nvidia.com/gpu": Quota(8, None, 0),
        "pods": Quota(10),
    }


def test_without_fields_a_queue_is_a_root_that_reclaims_and_preempts_lower_priorities() -> None:
    raw = queue_object("all", selector=None)
    for spec in ({}, None, {"resources": None, "fairSharing": {"weight": None}}):
        read = parse_queue(raw | {"spec": spec})
        assert read == Queue("all")
        assert (read.parent, read.quotas, read.weight, read.namespaces) == ("", {}, 1.0, None)
        assert (read.reclaims, read.within) == (Preempts.ANY, Preempts.LOWER_PRIORITY)


def test_weights_and_rules_of_preemption_are_read() -> None:
    preemption = {"reclaimWithinCohort": "LowerPriority", "withinQueue": "Never"}
    read = parse_queue(queue_object("q", fairSharing={"weight": "2500m"}, preemption=preemption))
    assert (read.weight, read.reclaims, read.within) == (2.5, "LowerPriority", "Never")


@pytest.mark.parametrize(
    ("selector", "of_team_a", "of_others"),
    [({}, True, True), ({"matchLabels": {"team": "a"}}, True, False)],
)
def test_namespaces_are_selected_by_their_labels(
    selector: dict[str, Any],
    of_team_a: bool,  # noqa: FBT001 - a column of the table
    of_others: bool,  # noqa: FBT001 - a column of the table
) -> None:
    namespaces = parse_queue(queue_object("q", selector=selector)).namespaces
    assert namespaces is not None
    assert namespaces.matches({"team": "a"}) is of_team_a
    assert namespaces.matches({"team": "b"}) is of_others


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        ({}, "spec.resources[0].nominalQuota: is missing; write a quantity"),
        ({"nominalQuota": True}, "spec.resources[0].nominalQuota: must be a quantity"),
        ({"nominalQuota": "a lot"}, "'a lot' is not a quantity"),
        ({"nominalQuota": "-1"}, "-1 is negative; write zero or more"),
    ],
)
def test_a_wrong_amount_makes_the_queue_invalid(quota: dict[str, Any], why: str) -> None:
    assert why in refused({"cpu": quota}, parent="all")


@pytest.mark.parametrize("limit", ["borrowingLimit", "lendingLimit"])
def test_a_root_has_nobody_to_share_with(limit: str) -> None:
    quota = {"cpu": {"nominalQuota": 1, limit: 1}}
    assert refused(quota) == f"spec.resources[0].{limit}: needs a parent to share with"


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        ("gpus", "gpus: is not a resource; use cpu, memory"),
        ("", "is not a resource"),
        ("pods", "spec.resources[0].nominalQuota: -1 is negative; write zero or more"),
    ],
)
def test_a_resource_has_a_name_that_pods_use(resource: str, why: str) -> None:
    assert why in refused({resource: "-1"})


def test_a_resource_has_one_quota_and_a_queue_at_most_100() -> None:
    twice = [{"name": "cpu", "nominalQuota": 1}] * 2
    assert refused(resources=twice) == "spec.resources[1].name: cpu has a quota already"
    many = {f"example.com/r{i}": 1 for i in range(101)}
    assert refused(many) == "spec.resources: has 101 resources; Mooring reads at most 100"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"parent": 3}, "spec.parent: must be a string, not 3"),
        ({"fairSharing": {"weight": -1}}, "spec.fairSharing.weight: -1 is negative"),
        ({"fairSharing": {"weight": []}}, "spec.fairSharing.weight: must be a quantity"),
        (
            {"preemption": {"withinQueue": "Always"}},
            "spec.preemption.withinQueue: must be one of Never, LowerPriority, Any",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "spec.namespaceSelector.matchExpressions[0]",
        ),
    ],
)
def test_a_malformed_spec_says_where(spec: dict[str, Any], why: str) -> None:
    assert why in refused(**spec)


def test_uid_generation_and_status_make_no_other_queue() -> None:
    raw = queue_object("q", status={"pods": 3})
    raw["metadata"] |= {"generation": 7}
    read = parse_queue(raw)
    assert (read.uid, read.generation, read.status) == ("queue-q", 7, {"pods": 3})
    assert read == parse_queue(queue_object("q"))


def test_a_queue_without_a_name_is_an_error() -> None:
    with pytest.raises(ManifestError, match=r"^Queue \(no name\) metadata.name: is missing"):
        parse_queue(queue_object(""))
