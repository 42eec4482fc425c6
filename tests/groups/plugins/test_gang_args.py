from datetime import timedelta

import pytest

from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.model.pod import parse_pod
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.testing.builders import pod


def test_no_label_names_a_group_by_default() -> None:
    assert read(GangSchedulingArgs, {}, "args").pod_group_labels == ()


def test_no_nodes_are_reserved_and_nothing_is_deleted_by_default() -> None:
    args = read(GangSchedulingArgs, {}, "args")
    assert args.reserve_after == timedelta()
    assert not args.delete_bound_members


@pytest.mark.parametrize("percent", [0, 101])
def test_a_share_of_reserved_nodes_is_from_1_to_100_percent(percent: int) -> None:
    assert read(GangSchedulingArgs, {}, "args").reserved_nodes_percent == 25
    with pytest.raises(ProfileInvalid, match="reservedNodesPercent"):
        read(GangSchedulingArgs, {"reservedNodesPercent": percent}, "args")


@pytest.mark.parametrize(
    ("preset", "labels"),
    [
        (
            "Coscheduling",
            {
                "pod-group.scheduling.sigs.k8s.io/name": "train",
                "pod-group.scheduling.sigs.k8s.io/min-available": "3",
            },
        ),
        (
            "Koordinator",
            {
                "gang.scheduling.koordinator.sh/name": "train",
                "gang.scheduling.koordinator.sh/min-available": "3",
            },
        ),
        (
            "Volcano",
            {
                "scheduling.k8s.io/group-name": "train",
                "scheduling.volcano.sh/group-min-member": "3",
            },
        ),
        (
            "Volcano",
            {
                "scheduling.volcano.sh/group-name": "train",
                "scheduling.volcano.sh/group-min-member": "3",
            },
        ),
    ],
)
def test_a_preset_knows_the_labels_of_another_scheduler(
    preset: str, labels: dict[str, str]
) -> None:
    """The annotations are from the documentation of these schedulers."""
    member = parse_pod(pod(annotations=labels))
    args = read(GangSchedulingArgs, {"podGroupPresets": [preset]}, "args")
    found = [form for form in args.formats if form.name_of(member) is not None]
    assert [(form.name_of(member), form.minimum_of(member)) for form in found] == [("train", "3")]


def test_an_application_of_yunikorn_is_named_by_the_first_of_its_labels() -> None:
    forms = read(GangSchedulingArgs, {"podGroupPresets": ["YuniKorn"]}, "args").formats
    labels = {"spark-app-selector": "spark", "applicationId": "app"}
    member = pod(labels=labels, annotations={"yunikorn.apache.org/task-group-name": "worker"})
    names = [form.name_of(parse_pod(member)) for form in forms]
    assert names == [None, "app", "spark"]


def test_a_pod_names_its_pod_gang_by_a_label() -> None:
    (form,) = read(GangSchedulingArgs, {"podGroupPresets": ["Grove"]}, "args").formats
    assert form.name_of(parse_pod(pod(labels={"grove.io/podgang": "simple-0"}))) == "simple-0"
    assert form.name_of(parse_pod(pod())) is None


def test_a_pod_that_kais_pod_grouper_has_not_seen_belongs_to_a_group_without_a_name() -> None:
    (form,) = read(GangSchedulingArgs, {"podGroupPresets": ["KAI"]}, "args").formats
    grouped = pod(labels={"kai.scheduler/queue": "a"}, annotations={"pod-group-name": "train"})
    assert form.name_of(parse_pod(grouped)) == "train"
    assert form.name_of(parse_pod(pod(labels={"kai.scheduler/queue": "a"}))) == ""
    assert form.name_of(parse_pod(pod())) is None


def test_labels_of_the_sites_own_count_before_presets() -> None:
    raw = {"podGroupLabels": [{"name": "example.com/group"}], "podGroupPresets": ["Koordinator"]}
    args = read(GangSchedulingArgs, raw, "args")
    assert [form.name_key for form in args.formats] == [
        "example.com/group",
        "pod-group.scheduling.sigs.k8s.io",
        "gang.scheduling.koordinator.sh/name",
    ]


def test_an_unknown_preset_is_a_mistake() -> None:
    with pytest.raises(ProfileInvalid, match=r"podGroupPresets\[0\]: must be one of .*Koordinator"):
        read(GangSchedulingArgs, {"podGroupPresets": ["Kueue"]}, "args")


def test_a_label_must_be_a_qualified_name() -> None:
    with pytest.raises(ProfileInvalid, match=r"podGroupLabels\[0\]\.name"):
        read(GangSchedulingArgs, {"podGroupLabels": [{"name": "no spaces"}]}, "args")
