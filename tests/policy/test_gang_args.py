from datetime import timedelta

import pytest

from mooring.policy.errors import ProfileInvalid
from mooring.policy.gang_args import GangSchedulingArgs
from mooring.policy.reading import read


def test_no_label_names_a_group_by_default() -> None:
    assert read(GangSchedulingArgs, {}, "args").pod_group_labels == ()


def test_nodes_are_reserved_after_five_minutes_and_nothing_is_deleted_by_default() -> None:
    args = read(GangSchedulingArgs, {}, "args")
    assert args.reserve_after == timedelta(minutes=5)
    assert not args.delete_bound_members


def test_a_label_must_be_a_qualified_name() -> None:
    with pytest.raises(ProfileInvalid, match=r"podGroupLabels\[0\]\.name"):
        read(GangSchedulingArgs, {"podGroupLabels": [{"name": "no spaces"}]}, "args")
