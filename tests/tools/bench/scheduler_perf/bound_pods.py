"""Records which pods have a node, and when they got it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

Raw = dict[str, Any]


class BoundPods:
    """Follows the events of bound pods on one thread; other threads may read the counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Raw] = {}
        self._by_namespace = Counter[str]()
        self._followers: list[Callable[[Raw], None]] = []

    def on_event(self, kind: str, metadata: Raw) -> bool:
        """Note an event about a bound pod; return True, because more events are wanted."""
        uid = metadata["uid"]
        with self._lock:
            if kind == "DELETED":
                if self._pods.pop(uid, None):
                    self._by_namespace[metadata["namespace"]] -= 1
                return True
            is_new = uid not in self._pods
            self._pods[uid] = metadata
            if is_new:
                self._by_namespace[metadata["namespace"]] += 1
                for follower in self._followers:
                    follower(metadata)
        return True

    def count(self, namespace: str, labels: Mapping[str, str] | None = None) -> int:
        """Return the number of existing bound pods in the namespace with these labels."""
        with self._lock:
            if not labels:
                return self._by_namespace[namespace]
            pods = [pod for pod in self._pods.values() if pod["namespace"] == namespace]
        return sum(has_labels(pod, labels) for pod in pods)

    def follow(self, follower: Callable[[Raw], None]) -> None:
        """Call `follower` with the metadata of each pod that is bound from now on."""
        with self._lock:
            self._followers.append(follower)

    def unfollow(self, follower: Callable[[Raw], None]) -> None:
        """Stop calling `follower`."""
        with self._lock:
            self._followers.remove(follower)


class BindingTimes:
    """The times at which pods of some namespaces were bound, in seconds of the monotonic clock."""

    def __init__(self, namespaces: Collection[str], labels: Mapping[str, str]) -> None:
        self.began = time.monotonic()
        self.times: list[float] = []
        self._namespaces = namespaces
        self._labels = labels

    def note(self, metadata: Raw) -> None:
        if metadata["namespace"] in self._namespaces and has_labels(metadata, self._labels):
            self.times.append(time.monotonic())


def has_labels(metadata: Raw, labels: Mapping[str, str]) -> bool:
    """Return whether the object has all these labels."""
    return labels.items() <= (metadata.get("labels") or {}).items()
