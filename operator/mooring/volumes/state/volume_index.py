"""Finds PersistentVolumes and claims; an assumed version replaces the mirrored version.

Therefore a volume that was chosen for a claim is not chosen again, and a claim keeps its selected
node, even before the watch shows these changes (volumebinding/passive_assume_cache.go).
"""

from collections.abc import Iterable
from operator import attrgetter

from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.volumes.model.storage_objects import PersistentVolume, PersistentVolumeClaim
from mooring.volumes.state.assume_cache import AssumeCache
from mooring.volumes.state.best_fit import BestFitIndex


class Volumes:
    """Finds volumes by claim, and available volumes by class."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self._mirrored = objects
        self._volumes: AssumeCache[PersistentVolume] = AssumeCache()
        self._claims: AssumeCache[PersistentVolumeClaim] = AssumeCache()
        self._indexed: dict[str, PersistentVolume] = {}
        self._available: dict[str, BestFitIndex[PersistentVolume]] = {}
        self._none: BestFitIndex[PersistentVolume] = BestFitIndex(nodes)
        self._by_claim_ref: dict[str, dict[str, PersistentVolume]] = {}

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume of this name; None if it is unknown."""
        mirrored = self._mirrored.of(Kind.PERSISTENT_VOLUME).get(name)
        return self._volumes.get(name, mirrored)

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return the claim of this namespace/name; None if it is unknown."""
        return self._claims.get(key, self._mirrored.of(Kind.PERSISTENT_VOLUME_CLAIM).get(key))

    def with_claim_ref(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the volumes of the claim's class whose `claimRef` is the claim, sorted by name."""
        volumes = self._by_claim_ref.get(claim.key, {}).values()
        return sorted(
            (
                volume
                for volume in volumes
                if volume.storage_class == claim.storage_class
                and volume.claim is not None
                and volume.claim.uid in ("", claim.uid)
            ),
            key=attrgetter("name"),
        )

    def available(self, storage_class: str) -> BestFitIndex[PersistentVolume]:
        """Return an index of the class's available volumes by size.

        Sizes are in billionths of a byte; the index's attribute `amounts` has them in bytes.
        """
        return self._available.get(storage_class, self._none)

    def volume_changed(self, name: str, value: PersistentVolume | None) -> None:
        """End the assumption about a volume if the watch shows another version or None (deleted).

        Then index the volume again.
        """
        self._volumes.shown(name, value)
        self._index(name)

    def claim_changed(self, key: str, value: PersistentVolumeClaim | None) -> None:
        """End the assumption about a claim if the watch shows another version or None (deleted)."""
        self._claims.shown(key, value)

    def assume(
        self,
        holder: str,
        volumes: Iterable[PersistentVolume],
        claims: Iterable[PersistentVolumeClaim],
    ) -> None:
        """Use these versions of the objects in decisions until the watch shows newer versions.

        `holder` is the uid of the pod that needs them. A call of `restore` for this pod ends the
        assumption earlier.
        """
        for volume in volumes:
            self._volumes.assume(holder, volume.name, volume)
            self._index(volume.name)
        for claim in claims:
            self._claims.assume(holder, claim.key, claim)

    def holds(self, holder: str) -> bool:
        """Return whether an object is assumed for the holder."""
        return self._volumes.holds(holder) or self._claims.holds(holder)

    def restore(self, holder: str) -> None:
        """End the holder's assumptions, except about objects that are also assumed for others."""
        self._claims.restore(holder)
        for name in self._volumes.restore(holder):
            self._index(name)

    def _index(self, name: str) -> None:
        before, after = self._indexed.get(name), self.volume(name)
        if before == after:
            return
        if before is not None:
            self._remove(before)
            del self._indexed[name]
        if after is not None:
            self._indexed[name] = after
            self._add(after)

    def _add(self, volume: PersistentVolume) -> None:
        if volume.claim is not None:
            key = f"{volume.claim.namespace}/{volume.claim.name}"
            self._by_claim_ref.setdefault(key, {})[volume.name] = volume
        elif _is_available(volume):
            available = self._available.get(volume.storage_class)
            if available is None:
                available = self._available[volume.storage_class] = BestFitIndex(self._nodes)
            traits = (volume.volume_mode, volume.attributes_class, volume.access_modes)
            available.add(
                volume.capacity.nano,
                volume.name,
                volume.node_affinity,
                traits,
                volume,
                volume.capacity.whole,
            )

    def _remove(self, volume: PersistentVolume) -> None:
        if volume.claim is not None:
            key = f"{volume.claim.namespace}/{volume.claim.name}"
            drop_item(self._by_claim_ref, key, volume.name)
        elif _is_available(volume):
            available = self._available[volume.storage_class]
            available.remove(volume.capacity.nano, volume.name)
            if not available:
                del self._available[volume.storage_class]


def _is_available(volume: PersistentVolume) -> bool:
    return volume.claim is None and volume.phase == "Available" and not volume.deleting
