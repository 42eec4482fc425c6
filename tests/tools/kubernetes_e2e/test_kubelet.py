"""Tests that extended resources are allocatable as soon as a node has them."""

from typing import Any

from kubernetes_e2e.kubelet import missing_allocatable


def status(capacity: dict[str, str], allocatable: dict[str, str]) -> dict[str, Any]:
    return {"capacity": {"cpu": "4", **capacity}, "allocatable": {"cpu": "3", **allocatable}}


def test_what_the_capacity_has_more_of_becomes_allocatable() -> None:
    found = missing_allocatable(status({"example.com/a": "2", "example.com/b": "1"}, {}))
    assert found == {"example.com/a": "2", "example.com/b": "1"}


def test_another_amount_is_copied() -> None:
    changed = status({"example.com/a": "2"}, {"example.com/a": "1"})
    assert missing_allocatable(changed) == {"example.com/a": "2"}


def test_what_the_capacity_has_lost_is_removed() -> None:
    assert missing_allocatable(status({}, {"example.com/a": "1"})) == {"example.com/a": None}


def test_nothing_is_patched_where_both_agree_or_a_kubelet_reserves_cpu() -> None:
    assert not missing_allocatable(status({"example.com/a": "1"}, {"example.com/a": "1"}))
