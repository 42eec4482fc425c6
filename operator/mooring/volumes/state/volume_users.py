"""Counts the pods that use each claim, and each disk that pods cannot share."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from mooring.model.indexes import add_count, drop_item
from mooring.model.pod import Pod
from mooring.volumes.model.pod_volumes import ClaimVolume, Disk, DiskKind, PodVolume, RbdVolume

_RESTRICTED: Final = frozenset({DiskKind.AWS_EBS, DiskKind.GCE_PD, DiskKind.ISCSI})

_Name: TypeAlias = tuple[str, str]
"""Identifies a volume: plugin and disk, or pool and image."""


def is_restricted(volume: PodVolume) -> bool:
    """Return whether two pods on a node may be unable to share the volume."""
    return isinstance(volume, RbdVolume) or (
        isinstance(volume, Disk) and volume.kind in _RESTRICTED
    )


class VolumeUsers:
    """Counts the pods that use each claim, and the disks in use on each node."""

    def __init__(self) -> None:
        self._claims: Counter[str] = Counter()
        self._disks: dict[_Name, dict[int, Counter[PodVolume]]] = {}

    def claim_in_use(self, key: str) -> bool:
        """Return whether a pod on a node uses the claim; ephemeral claims are not counted."""
        return key in self._claims

    def rows_in_conflict(self, volume: PodVolume) -> Iterator[int]:
        """Yield the rows of nodes with a pod whose volume conflicts with `volume`."""
        for row, users in self._disks.get(_name(volume), {}).items():
            if any(in_conflict(volume, other) for other in users):
                yield row

    def add(self, row: int, pod: Pod) -> None:
        """Count the pod's claims, and its disks that cannot be shared."""
        self._claims.update(_named_claims(pod))
        for volume in filter(is_restricted, pod.volumes):
            rows = self._disks.setdefault(_name(volume), {})
            rows.setdefault(row, Counter())[volume] += 1

    def remove(self, row: int, pod: Pod) -> None:
        """Remove the pod's claims and disks from the counts."""
        for key in _named_claims(pod):
            add_count(self._claims, key, -1)
        for volume in filter(is_restricted, pod.volumes):
            users = self._disks[_name(volume)][row]
            add_count(users, volume, -1)
            if not users:
                drop_item(self._disks, _name(volume), row)


def _named_claims(pod: Pod) -> Iterable[str]:
    return (
        f"{pod.namespace}/{volume.claim}"
        for volume in pod.volumes
        if isinstance(volume, ClaimVolume) and not volume.ephemeral
    )


def _name(volume: PodVolume) -> _Name:
    match volume:
        case Disk():
            return volume.kind, volume.id
        case RbdVolume():
            return volume.pool, volume.image
        case _:
            raise TypeError(f"{volume} is no disk that pods may be unable to share")


def in_conflict(one: PodVolume, other: PodVolume) -> bool:
    """Return whether both arguments are one volume that two pods on a node cannot share."""
    match one, other:
        case Disk(), Disk():
            same = (one.kind, one.id) == (other.kind, other.id) and one.kind in _RESTRICTED
            writing = not (one.read_only and other.read_only)
            return same and (writing or one.kind is DiskKind.AWS_EBS)
        case RbdVolume(), RbdVolume():
            same = (one.pool, one.image) == (other.pool, other.image)
            shared = not one.monitors.isdisjoint(other.monitors)
            return same and shared and not (one.read_only and other.read_only)
        case _:
            return False
