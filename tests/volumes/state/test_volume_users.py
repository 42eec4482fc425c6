from typing import Any

import pytest

from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import pod
from mooring.volumes.model.pod_volumes import ClaimVolume, Disk, DiskKind, PodVolume, RbdVolume
from mooring.volumes.state.volume_users import VolumeUsers, in_conflict, is_restricted


def disk(kind: DiskKind, name: str = "d", *, read_only: bool = False) -> Disk:
    return Disk(kind, name, read_only)


def image(*monitors: str, pool: str = "p", read_only: bool = False) -> RbdVolume:
    return RbdVolume(frozenset(monitors), pool, "i", read_only)


def with_volumes(*sources: dict[str, Any], name: str = "web") -> Pod:
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    return parse_pod(pod(name, spec={"volumes": volumes}))


GCE = {"gcePersistentDisk": {"pdName": "d"}}
READ_ONLY_GCE = {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
EPHEMERAL: dict[str, Any] = {"ephemeral": {"volumeClaimTemplate": {}}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (disk(DiskKind.GCE_PD), disk(DiskKind.GCE_PD), True),
        (disk(DiskKind.GCE_PD), disk(DiskKind.GCE_PD, "e"), False),
        (disk(DiskKind.GCE_PD, read_only=True), disk(DiskKind.GCE_PD), True),
        (disk(DiskKind.GCE_PD, read_only=True), disk(DiskKind.GCE_PD, read_only=True), False),
        (disk(DiskKind.ISCSI), disk(DiskKind.ISCSI), True),
        (disk(DiskKind.ISCSI, read_only=True), disk(DiskKind.ISCSI, read_only=True), False),
        (disk(DiskKind.AWS_EBS, read_only=True), disk(DiskKind.AWS_EBS, read_only=True), True),
        (disk(DiskKind.AWS_EBS), disk(DiskKind.GCE_PD), False),
        (disk(DiskKind.CINDER), disk(DiskKind.CINDER), False),
        (image("a", "b"), image("b", "c"), True),
        (image("a"), image("b"), False),
        (image("a"), image("a", pool="q"), False),
        (image("a", read_only=True), image("a", read_only=True), False),
        (image("a", read_only=True), image("a"), True),
        (image("a"), disk(DiskKind.GCE_PD), False),
        (ClaimVolume("a", ephemeral=False), ClaimVolume("a", ephemeral=False), False),
    ],
)
def test_pods_on_one_node_can_share_some_volumes_and_not_others(
    one: PodVolume, other: PodVolume, *, expected: bool
) -> None:
    assert in_conflict(one, other) is in_conflict(other, one) is expected


def test_only_these_volumes_are_restricted_at_all() -> None:
    volumes = [disk(kind) for kind in DiskKind if is_restricted(disk(kind))]
    assert {v.kind for v in volumes} == {DiskKind.AWS_EBS, DiskKind.GCE_PD, DiskKind.ISCSI}
    assert is_restricted(image("a"))
    assert not is_restricted(ClaimVolume("a", ephemeral=False))


def test_the_rows_of_pods_with_the_disk_are_in_conflict_as_long_as_the_pods_are_there() -> None:
    users, web = VolumeUsers(), with_volumes(GCE)
    users.add(3, web)
    users.add(3, with_volumes(READ_ONLY_GCE, name="other"))
    assert [*users.rows_in_conflict(disk(DiskKind.GCE_PD))] == [3]
    assert [*users.rows_in_conflict(disk(DiskKind.GCE_PD, read_only=True))] == [3]
    users.remove(3, web)
    assert [*users.rows_in_conflict(disk(DiskKind.GCE_PD))] == [3]
    assert [*users.rows_in_conflict(disk(DiskKind.GCE_PD, read_only=True))] == []


def test_a_pod_may_mention_a_disk_twice() -> None:
    users, web = VolumeUsers(), with_volumes(GCE, GCE)
    users.add(3, web)
    users.remove(3, web)
    assert [*users.rows_in_conflict(disk(DiskKind.GCE_PD))] == []


def test_a_claim_is_in_use_until_its_last_pod_is_gone() -> None:
    users, pods = VolumeUsers(), [with_volumes(CLAIM, name=name) for name in ("a", "b")]
    for one in pods:
        users.add(1, one)
    for one in pods:
        assert users.claim_in_use("default/data")
        users.remove(1, one)
    assert not users.claim_in_use("default/data")


def test_a_claim_of_the_same_name_in_another_namespace_is_another() -> None:
    users = VolumeUsers()
    users.add(1, with_volumes(CLAIM))
    assert not users.claim_in_use("team-a/data")


def test_an_ephemeral_volume_names_no_claim() -> None:
    users = VolumeUsers()
    users.add(1, with_volumes(EPHEMERAL))
    assert not users.claim_in_use("default/web-v0")
