"""Why no node fits: the message for users, and the nodes where evictions may help."""

import numpy as np

from mooring.framework.decision import Rejection
from mooring.framework.diagnosis import Diagnosis, RejectedNodes
from mooring.framework.verdicts import Explanation

NAMES = ("a", "b", "c", "d")


def rejected(plugin: str, reason: str, *rows: int, resolvable: bool = False) -> RejectedNodes:
    why = Explanation.single(reason, len(rows), resolvable=resolvable)
    return RejectedNodes(plugin, np.array(rows, np.int64), why)


def short_of(rows: dict[int, int]) -> RejectedNodes:
    """Return rows that NodeResourcesFit rejects; a row's bits are 1 for cpu, 2 for memory."""
    why = Explanation(
        ("Insufficient cpu", "Insufficient memory"),
        np.array(list(rows.values()), np.uint64),
        np.full(len(rows), fill_value=True),
    )
    return RejectedNodes("NodeResourcesFit", np.array(list(rows), np.int64), why)


def test_an_empty_cluster_has_a_message_of_its_own() -> None:
    assert Diagnosis(0, ()).message == "no nodes available to schedule pods"


def test_reasons_are_counted_over_nodes_and_sorted_as_text() -> None:
    groups = (rejected("NodeName", "wrong name", 0), short_of({1: 1, 2: 3, 3: 2}))
    assert Diagnosis(4, NAMES, groups).message == (
        "0/4 nodes are available: 1 wrong name, 2 Insufficient cpu, 2 Insufficient memory."
    )


def test_counts_are_sorted_as_text_too_so_that_ten_comes_before_nine() -> None:
    groups = (rejected("A", "x", *range(9)), rejected("B", "y", *range(9, 19)))
    assert Diagnosis(19, (), groups).message == "0/19 nodes are available: 10 y, 9 x."


def test_a_reason_of_two_plugins_is_one_reason() -> None:
    groups = (rejected("A", "full", 0), rejected("B", "full", 1))
    assert Diagnosis(2, NAMES, groups).message == "0/2 nodes are available: 2 full."


def test_the_reason_of_a_pre_filter_stands_for_all_nodes() -> None:
    diagnosis = Diagnosis(
        3, NAMES, pre_filter="claim not found", pre_filter_plugins=frozenset({"VolumeBinding"})
    )
    assert diagnosis.message == "0/3 nodes are available: claim not found."
    assert diagnosis.plugins == {"VolumeBinding"}
    assert diagnosis.rejections() == {}


def test_every_plugin_that_rejected_a_node_is_named() -> None:
    groups = (rejected("A", "x", 0), rejected("B", "y", 1), rejected("A", "z", 2))
    assert Diagnosis(3, NAMES, groups).plugins == {"A", "B"}


def test_eviction_may_help_only_where_every_rejection_is_resolvable() -> None:
    groups = (
        rejected("Fit", "full", 2, 0, 3, resolvable=True),
        rejected("Taints", "tainted", 1, 3),
    )
    diagnosis = Diagnosis(4, NAMES, groups)
    assert diagnosis.resolvable_rows.tolist() == [0, 2]
    assert diagnosis.unresolvable_rows.tolist() == [1, 3]


def test_without_a_rejected_node_no_eviction_can_help() -> None:
    assert Diagnosis(1, NAMES, pre_filter="no").resolvable_rows.tolist() == []


def test_each_rejected_node_is_reported_with_the_reasons_that_apply_to_it() -> None:
    diagnosis = Diagnosis(4, NAMES, (short_of({0: 3, 2: 2}),))
    assert diagnosis.rejections() == {
        "a": Rejection(
            "NodeResourcesFit", ("Insufficient cpu", "Insufficient memory"), resolvable=True
        ),
        "c": Rejection("NodeResourcesFit", ("Insufficient memory",), resolvable=True),
    }


def test_a_node_rejected_twice_keeps_its_first_plugin_and_has_every_reason() -> None:
    groups = (rejected("Fit", "full", 0, resolvable=True), rejected("Taints", "tainted", 0))
    assert Diagnosis(1, NAMES, groups).rejections() == {
        "a": Rejection("Fit", ("full", "tainted"), resolvable=False)
    }


def test_a_short_report_has_some_nodes_of_each_plugin() -> None:
    groups = (rejected("A", "x", 0, 1), rejected("B", "y", 2, 3))
    assert list(Diagnosis(4, NAMES, groups).rejections(most=1)) == ["a", "c"]
