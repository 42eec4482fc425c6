"""Converts ElasticQuotas to Queues, with and without Koordinator's labels."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.quota.model.elastic_quota import KOORDINATOR
from queue_files import elastic_quota, imported, koordinator_quota, node, quotas


def selected(spec: dict[str, Any]) -> list[str]:
    (named,) = spec["namespaceSelector"]["matchExpressions"]
    assert (named["key"], named["operator"]) == ("kubernetes.io/metadata.name", "In")
    return list(named["values"])


def test_each_is_the_queue_of_its_namespace_and_all_lend_to_each_other() -> None:
    quotas_of_teams = [
        elastic_quota("a", min={"cpu": 4, "memory": "8Gi"}, max={"cpu": 6}),
        elastic_quota("b", min={"cpu": "500m"}, max={"nvidia.com/gpu": 2}),
    ]
    found, notes = imported([node("a", cpu="100"), *quotas_of_teams])
    assert list(found) == ["elastic-quota.root", "a", "b"]
    assert found["elastic-quota.root"] == {}
    assert quotas(found["a"]) == {"cpu": ("4", "2", None), "memory": ("8Gi", None, None)}
    assert quotas(found["b"]) == {"cpu": ("500m", None, None), "nvidia.com/gpu": ("0", "2", None)}
    assert (found["a"]["parent"], selected(found["a"])) == ("elastic-quota.root", ["a"])
    assert notes == []


def test_a_maximum_below_the_minimum_is_the_quota() -> None:
    found, notes = imported([elastic_quota("a", min={"cpu": 4}, max={"cpu": 3})])
    assert quotas(found["a"]) == {"cpu": ("3", "0", None)}
    assert notes == ["ElasticQuota a/quota: the limit of cpu is below the quota: it is the quota"]


def test_koordinators_labels_make_a_tree_that_shares_the_nodes() -> None:
    found, notes = imported(
        [
            node("a", cpu="100"),
            koordinator_quota("koordinator-root-quota", labels={"is-parent": "true"}),
            elastic_quota("kube-system", "koordinator-default-quota", max={"cpu": 9}),
            koordinator_quota(
                "department",
                "koordinator-root-quota",
                labels={"is-parent": "true"},
                min={"cpu": 40},
                max={"cpu": 60},
            ),
            koordinator_quota(
                "a",
                "department",
                labels={"allow-lent-resource": "false"},
                annotations={"namespaces": '["x", "z"]', "runtime": '{"cpu": 15}'},
                min={"cpu": 10},
                max={"cpu": 20},
            ),
            koordinator_quota("b", "department", namespace="b", min={"cpu": 5}),
            koordinator_quota("c", "department", namespace="b"),
        ]
    )
    assert list(found) == ["koordinator-root-quota", "department", "b", "c", "a"]
    assert quotas(found["koordinator-root-quota"]) == {"cpu": ("60", None, None)}
    assert quotas(found["department"]) == {"cpu": ("25", "20", None)}
    assert "namespaceSelector" not in found["department"]
    assert quotas(found["a"]) == {"cpu": ("10", "10", "0")}
    assert [selected(found["a"]), selected(found["b"])] == [["x", "z"], ["b"]]
    assert found["c"]["namespaceSelector"] == {}
    why = "pods that name no quota are in no Queue"
    label = "pods need the label scheduling.mooring.dev/queue, or a profile with the preset"
    assert notes == [
        f"ElasticQuota kube-system/koordinator-default-quota is left out: {why}",
        f"{label} Koordinator",
    ]


def test_each_field_without_counterpart_has_a_note() -> None:
    weight = {"shared-weight": '{"cpu": 4}', "used": ""}
    _, notes = imported(
        [koordinator_quota("a", labels={"tree-id": "t"}, annotations=weight, more=1)]
    )
    left_out = [note.partition(" is left out")[0] for note in notes if "is left out" in note]
    assert left_out == [
        "ElasticQuota kube-system/a: spec.more",
        *(
            f"ElasticQuota kube-system/a: {KOORDINATOR}{name}"
            for name in ("shared-weight", "used", "tree-id")
        ),
    ]


@pytest.mark.parametrize("written", ["a,b", "{}", "[1]", "[" * 100_000])
def test_namespaces_that_are_no_list_are_one_clear_line(written: str) -> None:
    with pytest.raises(ManifestError) as error:
        imported([koordinator_quota("a", annotations={"namespaces": written})])
    path = f"metadata.annotations[{KOORDINATOR}namespaces]"
    why = "must be a list of names in JSON"
    assert str(error.value) == f"ElasticQuota kube-system/a: {path}: {why}"


def test_two_quotas_of_one_namespace_cannot_be_one_queue() -> None:
    with pytest.raises(ManifestError, match="ElasticQuota a/q: is one Queue with ElasticQuota a/p"):
        imported([elastic_quota("a", "p"), elastic_quota("a", "q")])


def test_quotas_of_namespaces_stay_beside_those_of_koordinator() -> None:
    found, _ = imported([koordinator_quota("a", min={"cpu": 1}), elastic_quota("b")])
    parents = {name: spec.get("parent") for name, spec in found.items()}
    assert parents == {
        "koordinator-root-quota": None,
        "elastic-quota.root": None,
        "a": "koordinator-root-quota",
        "b": "elastic-quota.root",
    }


def test_a_circle_of_koordinators_quotas_is_one_clear_line() -> None:
    with pytest.raises(ManifestError, match=r"^the parents form a circle: [abc] -> "):
        imported([koordinator_quota(name, parent) for name, parent in ("ab", "bc", "cb")])
