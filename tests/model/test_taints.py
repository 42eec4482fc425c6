from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.manifest_error import ManifestError
from mooring.model.taints import (
    NOT_SCHEDULABLE_TAINT,
    Taint,
    Toleration,
    parse_taints,
    parse_tolerations,
    tolerated,
)

GPU = Taint("dedicated", "gpu", "NoSchedule")


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("dedicated", "Equal", "gpu", "NoSchedule"),
        Toleration("dedicated", "", "gpu", "NoSchedule"),
        Toleration("dedicated", "Equal", "gpu", ""),
        Toleration("dedicated", "Exists", "", "NoSchedule"),
        Toleration("", "Exists", "", "NoSchedule"),
        Toleration("", "Exists", "", ""),
    ],
)
def test_a_toleration_of_the_key_value_and_effect_or_of_all_of_them_tolerates(
    toleration: Toleration,
) -> None:
    assert toleration.tolerates(GPU)


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("other", "Equal", "gpu", "NoSchedule"),
        Toleration("dedicated", "Equal", "db", "NoSchedule"),
        Toleration("dedicated", "Equal", "", "NoSchedule"),
        Toleration("dedicated", "Equal", "gpu", "NoExecute"),
        Toleration("dedicated", "Exists", "", "PreferNoSchedule"),
        Toleration("", "Equal", "db", ""),
    ],
)
def test_a_toleration_of_another_key_value_or_effect_does_not(toleration: Toleration) -> None:
    assert not toleration.tolerates(GPU)


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_tolerations_with_lt_and_gt_tolerate_nothing(operator: str) -> None:
    taint = Taint("level", "5", "NoSchedule")
    assert not Toleration("level", operator, "5", "").tolerates(taint)


def test_any_toleration_is_enough() -> None:
    other = Toleration("other", "Exists", "", "")
    everything = Toleration("", "Exists", "", "")
    assert tolerated(GPU, (other, everything))
    assert not tolerated(GPU, (other,))
    assert not tolerated(GPU, ())


@given(
    st.builds(
        Taint,
        st.sampled_from(("a", "b")),
        st.sampled_from(("", "x")),
        st.sampled_from(("NoSchedule", "PreferNoSchedule", "NoExecute")),
    )
)
def test_every_taint_is_tolerated_by_its_own_equal_and_by_exists_without_a_key(
    taint: Taint,
) -> None:
    assert Toleration(taint.key, "Equal", taint.value, taint.effect).tolerates(taint)
    assert Toleration("", "Exists", "", "").tolerates(taint)


def test_the_taint_of_a_cordoned_node_is_that_of_the_node_controller() -> None:
    wanted = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    assert wanted.tolerates(NOT_SCHEDULABLE_TAINT)


def test_taints_and_tolerations_keep_their_order_and_absent_fields_are_empty() -> None:
    assert parse_taints(
        [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "1", "effect": "NoExecute"}]
    ) == (Taint("a", "", "NoSchedule"), Taint("b", "1", "NoExecute"))
    assert parse_tolerations(
        [{"operator": "Exists", "tolerationSeconds": 300}, {"key": "a", "value": "1"}]
    ) == (Toleration("", "Exists", "", ""), Toleration("a", "", "1", ""))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([{"key": 1}], "spec.taints[0].key: must be a string, not 1"),
        ([{}, {"value": True}], "spec.taints[1].value: must be a string, not True"),
    ],
)
def test_a_malformed_taint_raises_an_error_with_its_field(raw: Any, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_taints(raw)
    assert str(caught.value) == message


def test_a_malformed_toleration_raises_an_error_with_its_field() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_tolerations([{"effect": []}])
    assert str(caught.value) == "spec.tolerations[0].effect: must be a string, not []"
