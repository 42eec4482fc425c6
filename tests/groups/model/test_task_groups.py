"""Parses YuniKorn's annotations about applications, including hostile ones."""

import json
from typing import Any

import pytest

from mooring.groups.model.pod_group import (
    DeclaredByPod,
    DisruptionMode,
    GroupFormat,
    GroupKey,
    GroupSource,
    GroupTopology,
    group_of_members,
)
from mooring.groups.model.task_groups import (
    APPLICATION_KEYS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
    task_groups_of,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import pod

GROUPS = [
    {"name": "worker", "minMember": 4, "minResource": {"cpu": "500m", "nvidia.com/gpu": 1}},
    {"name": "launcher", "minMember": 1, "minResource": {"cpu": "2", "pods": "1"}},
]
FORM = GroupFormat(APPLICATION_KEYS[0], source=GroupSource.YUNIKORN)


def declaring(groups: Any, name: str = "worker", **labels: str) -> Pod:
    written = groups if isinstance(groups, str) else json.dumps(groups)
    annotations = {TASK_GROUPS: written, TASK_GROUP_NAME: name}
    return parse_pod(pod(annotations=annotations, labels=labels))


def test_the_groups_are_roles_and_what_all_request_must_be_free() -> None:
    declared = DeclaredByPod.by(declaring(GROUPS), FORM)
    assert declared is not None
    group = group_of_members(GroupKey(GroupSource.YUNIKORN, "default", "job"), declared, 0.0)
    assert (group.minimum, group.roles) == (5, {"worker": 4, "launcher": 1})
    assert group.min_resources == {"cpu": 4000, "nvidia.com/gpu": 4}
    assert (group.invalid, group.topology) == (None, GroupTopology())


def test_the_order_of_the_groups_does_not_matter() -> None:
    assert task_groups_of(declaring(GROUPS)) == task_groups_of(declaring(GROUPS[::-1]))


def test_a_driver_of_spark_needs_no_executors_yet_but_room_for_them() -> None:
    labels = {"spark-role": "driver"}
    groups = task_groups_of(declaring(GROUPS, "launcher", **labels))
    assert groups == ((("launcher", 1),), (("cpu", 4000), ("nvidia.com/gpu", 4)))


def test_a_member_without_task_groups_leaves_them_to_others() -> None:
    member = parse_pod(pod(annotations={TASK_GROUP_NAME: "worker"}))
    assert (task_groups_of(member), DeclaredByPod.by(member, FORM)) == (None, None)


def test_a_pod_names_its_application_only_if_it_is_in_a_task_group() -> None:
    named = {key: key[:5] for key in APPLICATION_KEYS}
    forms = [GroupFormat(key, source=GroupSource.YUNIKORN) for key in APPLICATION_KEYS]
    alone = parse_pod(pod(labels=named))
    assert [form.name_of(alone) for form in forms] == [None] * 3
    member = parse_pod(pod(labels=named, annotations={TASK_GROUP_NAME: "worker"}))
    assert [form.name_of(member) for form in forms] == ["yunik", "appli", "spark"]


ONE = {"name": "a", "minMember": 1}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[{]", "is no JSON"),
        ("[" * 16_000, "is no JSON"),
        ("NaN", "is no JSON"),
        (" " * 40_000, "has 40000 characters; Mooring reads at most 32768"),
        ("{}", "must be a list"),
        ("[3]", "must be an object"),
        ("[]", "has 0 groups; it must have 1 to 200"),
        ([ONE | {"name": f"g{i}"} for i in range(201)], "has 201 groups"),
        ([{"minMember": 1}], "[0].name: is missing"),
        ([ONE, ONE], "[1].name: is the name of two groups"),
        ([{"name": "a"}], "[0].minMember: must be 1 to 2147483647"),
        ([ONE | {"minMember": 0}], "[0].minMember: must be 1 to"),
        ([ONE | {"minMember": -1}], "[0].minMember: must be 1 to"),
        ([ONE | {"minMember": 2**31}], "[0].minMember: must be 1 to"),
        (f'[{{"name": "a", "minMember": {"9" * 5_000}}}]', "metadata"),
        ([ONE | {"minMember": 1.5}], "[0].minMember"),
        ([ONE | {"minMember": "2"}], "[0].minMember"),
        ([ONE | {"minResource": {"cpu": "many"}}], "minResource.cpu"),
        ([ONE | {"minResource": {"cpu": "-1"}}], "minResource.cpu: -1 is negative"),
        ([ONE | {"minResource": [1]}], "minResource"),
        ([ONE | {"minResource": {f"x.y/{i}": 1 for i in range(201)}}], "has 201 resources"),
    ],
)
def test_annotations_that_cannot_be_used_make_the_group_invalid(written: Any, why: str) -> None:
    member = declaring(written)
    with pytest.raises(ManifestError, match=r"metadata\.annotations") as raised:
        task_groups_of(member)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 400
    declared = DeclaredByPod.by(member, FORM)
    assert declared is not None
    assert (declared.minimum, declared.roles) == (0, ())
    assert declared.invalid == str(raised.value)
    group = group_of_members(GroupKey(GroupSource.YUNIKORN, "default", "job"), declared, 0.0)
    assert (group.invalid, group.disruption_mode) == (declared.invalid, DisruptionMode.POD)
