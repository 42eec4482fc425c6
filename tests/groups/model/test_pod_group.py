"""Parses PodGroups of each kind, and groups that only their members declare."""

from collections.abc import Mapping
from typing import Any

import pytest

from device_builders import device_claim
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.groups.model.hyper_node import HYPER_NODE_KEY
from mooring.groups.model.pod_group import (
    DISRUPTION_MODE,
    MAX_TOPOLOGY_KEYS,
    TOPOLOGY_KEYS,
    TOPOLOGY_MODE,
    DeclaredByPod,
    DisruptionMode,
    GroupCondition,
    GroupFormat,
    GroupKey,
    GroupSource,
    GroupTopology,
    PodGroup,
    consumer_of,
    group_of_members,
    parse_coscheduling_pod_group,
    parse_kai_pod_group,
    parse_pod_gang,
    parse_pod_group,
    parse_volcano_pod_group,
)
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import (
    coscheduling_pod_group,
    kai_pod_group,
    pod,
    pod_gang,
    pod_group,
    volcano_pod_group,
)

KOORDINATOR = GroupFormat(
    "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"
)


def declared(member: Pod, form: GroupFormat) -> DeclaredByPod:
    found = DeclaredByPod.by(member, form)
    assert found is not None
    return found


def kubernetes(**spec: Any) -> PodGroup:
    raw = pod_group("train", 3)
    raw["spec"] |= spec
    return parse_pod_group(raw)


def coscheduling(**spec: Any) -> PodGroup:
    raw = coscheduling_pod_group("train", 3)
    raw["spec"] |= spec
    return parse_coscheduling_pod_group(raw)


def volcano(minimum: int = 3, **spec: Any) -> PodGroup:
    return parse_volcano_pod_group(volcano_pod_group("train", minimum, **spec))


def test_a_pod_group_of_volcano_has_its_minimum_and_resources() -> None:
    group = volcano(4, minResources={"cpu": "2", "pods": "4"}, queue="default")
    assert group.key == GroupKey(GroupSource.VOLCANO, "default", "train")
    assert (group.minimum, group.min_resources, group.invalid) == (4, {"cpu": 2000}, None)


@pytest.mark.parametrize(
    ("minimum", "expected", "roles"),
    [
        (0, 5, {"master": 1, "worker": 4}),
        (5, 5, {"master": 1, "worker": 4}),
        (9, 9, {"master": 1, "worker": 4}),
        (3, 3, {}),  # as in Volcano: less than all roles need means any members
    ],
)
def test_volcanos_roles_have_minimums_unless_the_group_needs_fewer_members(
    minimum: int, expected: int, roles: dict[str, int]
) -> None:
    found = volcano(minimum, minTaskMember={"master": 1, "worker": 4, "idle": 0})
    assert (found.minimum, found.roles) == (expected, roles)


def test_the_sum_of_the_minimums_of_roles_is_an_int32() -> None:
    largest = 2**31 - 1
    assert volcano(0, minTaskMember={"a": largest, "b": largest}).minimum == largest


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"minTaskMember": {"a": -1}}, "spec.minTaskMember.a: is -1; it must be 0 to"),
        (
            {"minMember": 0, "minTaskMember": {"": 4}},
            'spec.minTaskMember[""]: needs a name, because it has a minimum',
        ),
        ({"minTaskMember": {f"r{i}": 1 for i in range(201)}}, "has 201 roles; Mooring reads at"),
        ({"networkTopology": {"mode": "firm"}}, "spec.networkTopology.mode: 'firm' is no mode"),
        ({"networkTopology": {"highestTierAllowed": -1}}, "spec.networkTopology.highestTierAl"),
        (
            {"networkTopology": {"highestTierName": "x" * 254}},
            "highestTierName: has 254 characters; Mooring reads at most 253",
        ),
        ({"minMember": "three"}, "spec.minMember: "),
    ],
)
def test_a_pod_group_of_volcano_that_cannot_be_placed_as_it_asks_is_invalid(
    spec: dict[str, Any], why: str
) -> None:
    assert why in (volcano(**spec).invalid or "")


@pytest.mark.parametrize(
    ("network", "topology"),
    [
        ({"highestTierAllowed": 2}, GroupTopology((HYPER_NODE_KEY,), highest_tier=2)),
        ({"highestTierName": "rack"}, GroupTopology((HYPER_NODE_KEY,), highest_tier="rack")),
        ({"mode": "hard"}, GroupTopology((HYPER_NODE_KEY,), required=False)),
        (
            {"mode": "soft", "highestTierAllowed": 0},
            GroupTopology((HYPER_NODE_KEY,), required=False, highest_tier=0),
        ),
        ({}, GroupTopology()),
    ],
)
def test_the_network_topology_of_volcanos_group_means_hyper_nodes(
    network: dict[str, Any], topology: GroupTopology
) -> None:
    group = volcano(networkTopology=network)
    assert (group.invalid, group.topology, group.ignored) == (None, topology, ())


def test_mooring_s_annotation_counts_before_the_network_topology() -> None:
    raw = volcano_pod_group("train", 3, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    raw["metadata"]["annotations"] = {TOPOLOGY_KEYS: "rack"}
    group = parse_volcano_pod_group(raw)
    assert (group.invalid, group.topology) == (None, GroupTopology(("rack",)))


PACKED = {"packConstraint": {"required": "rack"}}


def kai(minimum: int | None = None, **spec: Any) -> PodGroup:
    return parse_kai_pod_group(kai_pod_group("train", minimum, **spec))


def test_the_subgroups_of_kais_group_are_roles() -> None:
    parts = [
        {"name": "decode"},
        {"name": "leader", "parent": "decode", "minMember": 1},
        {"name": "workers", "parent": "decode", "minMember": 3},
        {"name": "prefill", "parent": None},
        {"name": "spare", "minMember": 0},
    ]
    group = kai(queue="team-a", subGroups=parts)
    assert group.key == GroupKey(GroupSource.KAI, "default", "train")
    assert (group.minimum, group.roles) == (5, {"leader": 1, "workers": 3, "prefill": 1})
    assert (group.invalid, group.ignored, group.queue) == (None, (), "team-a")
    assert kai(8, subGroups=parts).minimum == 8
    assert (kai().minimum, kai(4).minimum, kai(4).roles) == (1, 4, {})


@pytest.mark.parametrize(
    ("constraint", "topology"),
    [
        ({"topology": "dc", "requiredTopologyLevel": "rack"}, GroupTopology(("rack",))),
        ({"preferredTopologyLevel": "rack"}, GroupTopology(("rack",), required=False)),
        (
            {"requiredTopologyLevel": "block", "preferredTopologyLevel": "rack"},
            GroupTopology(("block", "rack")),
        ),
        ({"topology": "dc"}, GroupTopology()),
    ],
)
def test_the_topology_constraint_of_kais_group_names_node_labels(
    constraint: dict[str, str], topology: GroupTopology
) -> None:
    assert kai(4, topologyConstraint=constraint).topology == topology


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"minMember": 0}, "spec.minMember: is 0; it must be 1 to"),
        ({"subGroups": [{"name": "a"}, {}]}, "spec.subGroups[1]: needs a name, because it has"),
        ({"subGroups": [{"name": "a", "parent": "a"}]}, "[0].parent: 'a' leads to no group"),
        (
            {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "[0].parent: 'b' leads to no group without a parent",
        ),
        (
            {"subGroups": [{"name": "a"}, {"name": "b", "parent": "c"}]},
            "[1].parent: 'c' leads to no group without a parent",
        ),
        ({"subGroups": [{"name": "a", "minMember": 0}]}, "has no group with minMember of 1"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "[1].name: 'a' is the name of another"),
        ({"subGroups": [{"name": f"g{i}"} for i in range(201)]}, "has 201 groups; Mooring reads"),
        (
            {"subGroups": [{"name": "a", "topologyConstraint": {"requiredTopologyLevel": "r"}}]},
            "[0].topologyConstraint.requiredTopologyLevel: confines a part of the group",
        ),
    ],
)
def test_a_group_of_kai_that_cannot_be_placed_as_it_asks_is_invalid(
    spec: dict[str, Any], why: str
) -> None:
    assert why in (kai(**spec).invalid or "")


def test_a_part_of_kais_group_may_be_confined_by_confining_all() -> None:
    part = {"name": "a", "topologyConstraint": {"requiredTopologyLevel": "rack"}}
    raw = kai_pod_group("train", 2, subGroups=[part])
    raw["metadata"]["annotations"] = {TOPOLOGY_KEYS: "rack"}
    group = parse_kai_pod_group(raw)
    assert (group.invalid, group.topology) == (None, GroupTopology(("rack",)))


def grove(groups: Mapping[str, int], **spec: Any) -> PodGroup:
    return parse_pod_gang(pod_gang("train", groups, **spec))


def test_the_groups_of_a_pod_gang_are_roles() -> None:
    group = grove({"prefill": 2, "decode": 4, "router": 0}, priorityClassName="high")
    assert group.key == GroupKey(GroupSource.GROVE, "default", "train")
    assert (group.minimum, group.roles) == (6, {"prefill": 2, "decode": 4})
    assert (group.invalid, group.ignored) == (None, ("spec.priorityClassName",))


def test_the_topology_constraint_of_a_pod_gang_names_node_labels() -> None:
    both = {"packConstraint": {"required": "zone", "preferred": "rack"}}
    assert grove({"a": 1}, topologyConstraint=both).topology == GroupTopology(("zone", "rack"))
    wish = {"packConstraint": {"preferred": "rack"}}
    topology = grove({"a": 1}, topologyConstraint=wish).topology
    assert topology == GroupTopology(("rack",), required=False)


@pytest.mark.parametrize(
    ("groups", "spec", "why"),
    [
        ({}, {}, "spec.podgroups: has no group with minReplicas of 1 or more"),
        ({"a": 0}, {}, "spec.podgroups: has no group with minReplicas of 1 or more"),
        ({"a": -1}, {}, "spec.podgroups[0].minReplicas: is -1; it must be 0 to"),
        ({"a": 1, "": 1}, {}, "spec.podgroups[1]: needs a name, because it has a minimum"),
        ({f"g{i}": 1 for i in range(201)}, {}, "has 201 groups; Mooring reads at most 200"),
        (
            {"a": 1},
            {"topologyConstraintGroupConfigs": [{"topologyConstraint": PACKED}]},
            "[0].topologyConstraint.packConstraint.required: confines a part of the group",
        ),
        (
            {},
            {"podgroups": [{"name": "a", "minReplicas": 1, "topologyConstraint": PACKED}]},
            "spec.podgroups[0].topologyConstraint.packConstraint.required: confines a part",
        ),
        ({}, {"podgroups": [{"name": "a"}, {"name": "a"}]}, "'a' is the name of another group"),
    ],
)
def test_a_pod_gang_that_cannot_be_placed_as_it_asks_is_invalid(
    groups: dict[str, int], spec: dict[str, Any], why: str
) -> None:
    assert why in (grove(groups, **spec).invalid or "")


def test_the_status_of_a_group_is_read_only_if_mooring_writes_it() -> None:
    raw = kai_pod_group("train", 2) | {"status": {"phase": "Running"}}
    assert not parse_kai_pod_group(raw).initially_scheduled


def test_a_gang_of_kubernetes_has_its_minimum() -> None:
    group = parse_pod_group(
        pod_group(
            "train",
            8,
            namespace="team-a",
            topology=["rack"],
            disruption_mode="PodGroup",
            priority=5,
        )
    )
    assert group.key == GroupKey(GroupSource.KUBERNETES, "team-a", "train")
    assert (group.gang, group.minimum, group.priority) == (True, 8, 5)
    assert group.topology == GroupTopology(("rack",), required=True)
    assert group.disruption_mode is DisruptionMode.POD_GROUP
    assert group.invalid is None


def test_a_group_with_the_policy_basic_is_no_gang() -> None:
    group = parse_pod_group(pod_group("train"))
    assert (group.gang, group.minimum, group.invalid) == (False, 0, None)


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        (None, DisruptionMode.POD),
        ("Pod", DisruptionMode.POD),
        ("PodGroup", DisruptionMode.POD_GROUP),
        ({"single": {}}, DisruptionMode.POD),
        ({"all": {}}, DisruptionMode.POD_GROUP),
    ],
)
def test_the_disruption_mode_is_read_of_both_versions(written: Any, mode: DisruptionMode) -> None:
    assert kubernetes(disruptionMode=written).disruption_mode is mode


def test_a_pod_group_of_coscheduling_has_its_minimum_and_resources() -> None:
    group = parse_coscheduling_pod_group(
        coscheduling_pod_group(
            "train",
            8,
            resources={"cpu": "1500m", "nvidia.com/gpu": 8, "pods": 8},
            annotations={
                TOPOLOGY_KEYS: "block, rack",
                TOPOLOGY_MODE: "Preferred",
                DISRUPTION_MODE: "PodGroup",
            },
        )
    )
    assert group.key == GroupKey(GroupSource.COSCHEDULING, "default", "train")
    assert (group.gang, group.minimum) == (True, 8)
    assert group.min_resources == {"cpu": 1500, "nvidia.com/gpu": 8}
    assert group.topology == GroupTopology(("block", "rack"), required=False)
    assert group.disruption_mode is DisruptionMode.POD_GROUP


def test_the_topology_of_the_object_comes_before_the_annotation() -> None:
    keys = {TOPOLOGY_KEYS: "block,rack"}
    assert parse_pod_group(pod_group("a", annotations=keys)).topology.keys == ("block", "rack")
    both = pod_group("a", annotations=keys, topology=["zone"])
    assert parse_pod_group(both).topology == GroupTopology(("zone",))


@pytest.mark.parametrize("minimum", [0, 1, 2**31 - 1])
def test_a_minimum_may_be_any_int32_that_is_not_negative(minimum: int) -> None:
    group = coscheduling(minMember=minimum)
    assert (group.minimum, group.invalid) == (minimum, None)


@pytest.mark.parametrize("minimum", [-1, -(2**31), 2**31, 10**30])
def test_a_minimum_out_of_range_makes_the_group_invalid(minimum: int) -> None:
    group = coscheduling(minMember=minimum)
    assert group.invalid is not None
    assert group.invalid.startswith("spec.minMember: is ")
    assert group.invalid.endswith("it must be 0 to 2147483647")
    assert len(group.invalid) < 100


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedulingPolicy": {"gang": {}}}, "minCount: is missing"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "it must be 1 to"),
        ({"schedulingPolicy": {"gang": {"minCount": "3"}}}, "must be a whole number"),
        ({"disruptionMode": "Never"}, "'Never' is not a mode"),
        ({"disruptionMode": {}}, "is neither `single` nor `all`"),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}] * (MAX_TOPOLOGY_KEYS + 1)}},
            "has 9 keys",
        ),
    ],
)
def test_a_malformed_spec_makes_the_group_invalid_and_says_why(
    spec: dict[str, Any], words: str
) -> None:
    group = kubernetes(**spec)
    assert group.invalid is not None
    assert words in group.invalid


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({TOPOLOGY_MODE: "x" * 10_000}, "is not a mode; write Required or Preferred"),
        ({TOPOLOGY_KEYS: "a,b,a"}, "names a node label twice"),
        ({TOPOLOGY_KEYS: ",".join(map(str, range(9)))}, "has 9 keys"),
        ({TOPOLOGY_KEYS: "x" * 100_000}, "has 100000 characters"),
        ({DISRUPTION_MODE: "all"}, "write Pod or PodGroup"),
    ],
)
def test_malformed_annotations_make_the_group_invalid(
    annotations: dict[str, str], words: str
) -> None:
    raw = coscheduling_pod_group("train", 3, annotations=annotations)
    group = parse_coscheduling_pod_group(raw)
    assert group.invalid is not None
    assert words in group.invalid
    assert len(group.invalid) < 200


def test_a_group_that_was_placed_once_stays_so_whatever_its_kind() -> None:
    for kind in ("PodGroupScheduled", "PodGroupInitiallyScheduled"):
        condition = {"type": kind, "status": "True", "reason": "Scheduled", "message": "m"}
        group = parse_pod_group(pod_group("a", 3, status={"conditions": [condition]}))
        assert group.initially_scheduled
        assert group.status.scheduled == GroupCondition(kind, "True", "Scheduled", "m", 0, "")
    waiting = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}
    raw = pod_group("a", 3, status={"conditions": [waiting]})
    assert not parse_pod_group(raw).initially_scheduled
    for phase, placed in {"Pending": False, "Scheduling": False, "Running": True}.items():
        raw = coscheduling_pod_group("a", 3, status={"phase": phase})
        assert parse_coscheduling_pod_group(raw).initially_scheduled is placed


def test_only_volcanos_groups_have_the_condition_scheduled() -> None:
    """A controller may write a condition with this name into groups of other kinds."""
    status = {"conditions": [{"type": "Scheduled", "status": "True"}]}
    assert not parse_pod_group(pod_group("a", 3, status=status)).initially_scheduled
    raw = coscheduling_pod_group("a", 3) | {"status": status}
    assert not parse_coscheduling_pod_group(raw).initially_scheduled
    raw = volcano_pod_group("a", 3) | {"status": status}
    assert parse_volcano_pod_group(raw).initially_scheduled


def test_a_status_that_cannot_be_read_counts_as_none() -> None:
    raw = coscheduling_pod_group("a", 3, status={"phase": "Running", "running": "many"})
    group = parse_coscheduling_pod_group(raw)
    assert (group.status.phase, group.invalid, group.minimum) == ("", None, 3)


def test_a_site_may_name_groups_by_a_label_or_an_annotation_of_its_own() -> None:
    name, minimum = KOORDINATOR.name_key, str(KOORDINATOR.minimum_key)
    annotated = parse_pod(pod(annotations={name: "a", minimum: "3", TOPOLOGY_KEYS: "rack"}))
    labelled = parse_pod(pod(labels={name: "b", minimum: "4"}, annotations={name: "a"}))
    assert [KOORDINATOR.name_of(p) for p in (annotated, labelled)] == ["a", "b"]
    assert KOORDINATOR.name_of(parse_pod(pod())) is None
    said = declared(annotated, KOORDINATOR)
    group = group_of_members(GroupKey(GroupSource.PODS, "default", "a"), said, 7.0)
    assert (group.minimum, group.topology.keys, group.created) == (3, ("rack",), 7.0)
    assert declared(labelled, KOORDINATOR).minimum == 4


@pytest.mark.parametrize("written", ["-1", "many", "2147483648", "9" * 5000, "٣", "1.5"])
def test_a_member_with_a_malformed_minimum_makes_its_group_invalid(written: str) -> None:
    member = parse_pod(pod(annotations={str(KOORDINATOR.minimum_key): written}))
    said = declared(member, KOORDINATOR)
    group = group_of_members(GroupKey(GroupSource.PODS, "default", "a"), said, 0.0)
    assert group.invalid is not None
    assert len(group.invalid) < 200


def test_a_member_without_a_minimum_needs_no_other() -> None:
    assert declared(parse_pod(pod()), KOORDINATOR).minimum == 1
    assert declared(parse_pod(pod()), GroupFormat("team")).minimum == 1


def test_a_key_is_shown_as_namespace_and_name_and_told_apart_by_its_source() -> None:
    one, other = (
        GroupKey(source, "team-a", "train")
        for source in (GroupSource.KUBERNETES, GroupSource.COSCHEDULING)
    )
    assert str(one) == str(other) == "team-a/train"
    assert one.ref == "podgroups.scheduling.k8s.io/team-a/train"
    assert one != other


def test_a_pod_names_its_group_of_kubernetes_in_its_spec() -> None:
    assert parse_pod(pod(group="train")).scheduling_group == "train"
    assert parse_pod(pod()).scheduling_group is None


def test_a_group_that_is_part_of_another_is_refused_with_a_reason() -> None:
    group = kubernetes(parentCompositePodGroupName="training")
    assert group.invalid == (
        "spec.parentCompositePodGroupName: makes the group a part of a CompositePodGroup, which "
        "Mooring does not place together; make groups without it"
    )


def test_a_claim_is_used_by_the_group_if_it_has_the_pods_entry_and_else_by_the_pod() -> None:
    own = [
        {"name": "net", "resourceClaimName": "claim"},
        {"name": "gpu", "resourceClaimTemplateName": "one"},
    ]
    group = kubernetes(resourceClaims=own)
    entries = [*own, {"name": "mine", "resourceClaimName": "another"}]
    raw = pod("web", spec={"resourceClaims": entries})
    raw["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}
    users = {
        name: consumer_of(parse_pod(raw), parse_resource_claim(device_claim(name)), group)
        for name in ("claim", "made", "another")
    }
    assert {name: user.name for name, user in users.items()} == {
        "claim": "train",
        "made": "train",
        "another": "web",
    }
    assert users["claim"].uid == group.uid
    assert users["claim"].resource == "podgroups"
    assert consumer_of(parse_pod(raw), parse_resource_claim(device_claim()), None).name == "web"


def test_the_preemption_policy_of_a_group_is_read() -> None:
    assert kubernetes().preempts is None
    assert kubernetes(preemptionPolicy="Never").preempts is False
    assert kubernetes(preemptionPolicy="PreemptLowerPriority").preempts is True
    unknown = kubernetes(preemptionPolicy="Sometimes")
    assert unknown.invalid == (
        "spec.preemptionPolicy: 'Sometimes' is no policy; write Never or PreemptLowerPriority"
    )
    assert kubernetes(preemptionPolicy="Never").requirements != kubernetes().requirements
