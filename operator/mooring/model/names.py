"""Finds the uids of pods by namespace/name, for users who ask with a name.

All other data about a pod is kept by its uid, because a later pod may have the same name, as in a
StatefulSet. The watch may show this later pod before it shows that the earlier pod has ended.
"""

from mooring.model.pod import Uid


class Names:
    """The uids of pods by "namespace/name"; few names have more than one uid."""

    def __init__(self) -> None:
        self._uids: dict[str, Uid | tuple[Uid, ...]] = {}
        """By name, one uid or a tuple of several; 150,000 tuples would take 10 MB."""

    def add(self, key: str, uid: Uid) -> None:
        """Add a pod under a name; `latest` then returns its uid for this name."""
        known = self.of(key)
        self._uids[key] = (*known, uid) if known else uid

    def remove(self, key: str, uid: Uid) -> None:
        """Remove a pod that was added under this name."""
        left = tuple(other for other in self.of(key) if other != uid)
        if left:
            self._uids[key] = left if len(left) > 1 else left[0]
        else:
            del self._uids[key]

    def of(self, key: str) -> tuple[Uid, ...]:
        """Return the uids of the pods with this name, in the order in which they were added."""
        uids = self._uids.get(key, ())
        return uids if isinstance(uids, tuple) else (uids,)

    def latest(self, key: str) -> Uid | None:
        """Return the uid of the pod that was last added under this name; None if there is none."""
        uids = self.of(key)
        return uids[-1] if uids else None
