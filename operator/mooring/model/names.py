"""Finds the pod of a namespace/name, for people who ask by it.

Everything that Mooring remembers about a pod is kept by its uid, because a name returns: the pods
of a StatefulSet have fixed ones, and two streams of events need not show the end of a pod and the
beginning of the next one of its name in that order.
"""

from mooring.model.pod import Uid


class Names:
    """The uids by "namespace/name"; a name seldom has more than one."""

    def __init__(self) -> None:
        self._uids: dict[str, Uid | tuple[Uid, ...]] = {}
        """One uid is kept as it is, because a tuple for each of 150,000 takes 10 MB."""

    def add(self, key: str, uid: Uid) -> None:
        """Add a pod that does not have this name yet; it becomes the latest of its name."""
        known = self.of(key)
        self._uids[key] = (*known, uid) if known else uid

    def remove(self, key: str, uid: Uid) -> None:
        """Remove a pod that has this name."""
        left = tuple(other for other in self.of(key) if other != uid)
        if left:
            self._uids[key] = left if len(left) > 1 else left[0]
        else:
            del self._uids[key]

    def of(self, key: str) -> tuple[Uid, ...]:
        """Return the uids with this name, in order of addition."""
        uids = self._uids.get(key, ())
        return uids if isinstance(uids, tuple) else (uids,)

    def latest(self, key: str) -> Uid | None:
        """Return the uid that was added last of those with this name; None if there is none."""
        uids = self.of(key)
        return uids[-1] if uids else None
