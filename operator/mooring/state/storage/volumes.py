"""PersistentVolumes and claims as decisions see them: as mirrored, but for what was assumed.

A volume chosen for a claim must not be chosen again, and a claim sent to a node must not be sent to
another, before the API server knows of it (volumebinding/passive_assume_cache.go).
"""

from collections.abc import Iterable

from mooring.model.events import Kind
from mooring.model.storage import PersistentVolume, PersistentVolumeClaim
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.storage.assume_cache import AssumeCache
from mooring.state.storage.best_fit import BestFitIndex

__all__ = ["Volumes"]


class Volumes:
    """Finds volumes by claim, and free ones by class."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self._mirrored = objects
        self._volumes: AssumeCache[PersistentVolume] = AssumeCache()
        self._claims: AssumeCache[PersistentVolumeClaim] = AssumeCache()
        self._indexed: dict[str, PersistentVolume] = {}
        self._free: dict[str, BestFitIndex[PersistentVolume]] = {}
        self._none: BestFitIndex[PersistentVolume] = BestFitIndex(nodes)
        self._kept: dict[str, dict[str, PersistentVolume]] = {}

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume of this name."""
        mirrored = self._mirrored.of(Kind.PERSISTENT_VOLUME).get(name)
        return self._volumes.get(name, mirrored)

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """The claim of this namespace/name."""
        return self._claims.get(key, self._mirrored.of(Kind.PERSISTENT_VOLUME_CLAIM).get(key))

    def kept_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """The volumes of its class that are bound or pre-bound to the claim, by name."""
        kept = self._kept.get(claim.key, {}).values()
        return sorted(
            (
                volume
                for volume in kept
                if volume.storage_class == claim.storage_class
                and volume.claim is not None
                and volume.claim.uid in ("", claim.uid)
            ),
            key=_name,
        )

    def free(self, storage_class: str) -> BestFitIndex[PersistentVolume]:
        """The Available volumes of a class; alike in mode and attributes are equal in traits."""
        return self._free.get(storage_class, self._none)

    def volume_changed(self, name: str, value: PersistentVolume | None) -> None:
        """The API server shows the volume like this, or no more."""
        self._volumes.shown(name, value)
        self._index(name)

    def claim_changed(self, key: str, value: PersistentVolumeClaim | None) -> None:
        """The API server shows the claim like this, or no more."""
        self._claims.shown(key, value)

    def assume(
        self,
        holder: str,
        volumes: Iterable[PersistentVolume],
        claims: Iterable[PersistentVolumeClaim],
    ) -> None:
        """The objects are seen like this until newer versions show; `holder` is a pod's uid."""
        for volume in volumes:
            self._volumes.assume(holder, volume.name, volume)
            self._index(volume.name)
        for claim in claims:
            self._claims.assume(holder, claim.key, claim)

    def restore(self, holder: str) -> None:
        """What was assumed for the holder, and for no other, is seen as mirrored again."""
        self._claims.restore(holder)
        for name in self._volumes.restore(holder):
            self._index(name)

    def _index(self, name: str) -> None:
        before, after = self._indexed.get(name), self.volume(name)
        if before == after:
            return
        if before is not None:
            self._unfile(before)
            del self._indexed[name]
        if after is not None:
            self._indexed[name] = after
            self._file(after)

    def _file(self, volume: PersistentVolume) -> None:
        if volume.claim is not None:
            key = f"{volume.claim.namespace}/{volume.claim.name}"
            self._kept.setdefault(key, {})[volume.name] = volume
        elif _is_free(volume):
            free = self._free.get(volume.storage_class)
            if free is None:
                free = self._free[volume.storage_class] = BestFitIndex(self._nodes)
            traits = (volume.volume_mode, volume.attributes_class, volume.access_modes)
            free.add(volume.capacity, volume.name, volume.node_affinity, traits, volume)

    def _unfile(self, volume: PersistentVolume) -> None:
        if volume.claim is not None:
            key = f"{volume.claim.namespace}/{volume.claim.name}"
            kept = self._kept[key]
            del kept[volume.name]
            if not kept:
                del self._kept[key]
        elif _is_free(volume):
            free = self._free[volume.storage_class]
            free.remove(volume.capacity, volume.name)
            if not free:
                del self._free[volume.storage_class]


def _is_free(volume: PersistentVolume) -> bool:
    return volume.claim is None and volume.phase == "Available" and not volume.deleting


def _name(volume: PersistentVolume) -> str:
    return volume.name
