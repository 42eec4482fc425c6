"""Converts the queues of Kueue, Volcano and KAI, and all ElasticQuotas, to Queues."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from mooring.model.fields import at_most, called, mapping
from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.elastic_quotas import GROUPS, ElasticQuotas
from mooring.policy.imports.kai_queues import KAI, KaiQueues
from mooring.policy.imports.kueue_queues import KUEUE, KueueQueues
from mooring.policy.imports.volcano_queues import VOLCANO, VolcanoQueues
from mooring.policy.imports.written_queue import WrittenQueue
from mooring.quota.model.queue import DEEPEST, amounts_of

_MOST: Final = 50_000
_NODE: Final = ("", "Node")


class _Reader(Protocol):
    """Reads the objects of one scheduler, and converts all of them to Queues."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def read(self, raw: Mapping[str, Any]) -> None: ...

    # Called once, after the last `read`. `capacity` is empty without Nodes.
    def queues(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]: ...


class QueueImport:
    """Reads objects one by one, and converts them to Queues; `notes` name everything left out."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        elastic = ElasticQuotas(self.notes)
        self._readers: Mapping[str, _Reader] = {
            KUEUE: KueueQueues(self.notes),
            VOLCANO: VolcanoQueues(self.notes),
            KAI: KaiQueues(self.notes),
            **dict.fromkeys(GROUPS, elastic),
        }
        self._seen = set[tuple[str, str]]()
        self._used = dict[str, _Reader]()
        self._capacity = Counter[str]()

    @property
    def has_queues(self) -> bool:
        """Whether an object other than Nodes was read."""
        return bool(self._used)

    def read(self, group: str, kind: str, raw: Mapping[str, Any]) -> bool:
        """Read a queue or a Node; return False, and ignore the object, if it is neither.

        Raises ManifestError if the object is malformed or was read before.
        """
        reader = self._readers.get(group)
        if (group, kind) != _NODE and (reader is None or kind not in reader.kinds):
            return False
        origin = f"{kind} {called(raw)}"
        if (group, origin) in self._seen:
            raise ManifestError(origin, "is there twice")
        self._seen.add((group, origin))
        at_most(len(self._seen), _MOST, "", "queues and Nodes")
        try:
            if reader is None:
                self._capacity.update(amounts_of(mapping(raw, "status"), "allocatable", "status"))
            else:
                reader.read(raw)
                self._used[group] = reader
        except ManifestError as error:
            raise error.under(origin) from None
        return True

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Queues; raise ManifestError if they contradict each other."""
        found = dict[str, WrittenQueue]()
        for reader in dict.fromkeys(self._used.values()):
            for queue in reader.queues(self._capacity):
                if (other := found.setdefault(queue.name, queue)) is not queue:
                    problem = f"{queue.origin} and {other.origin} would both be Queue {queue.name}"
                    raise ManifestError("", problem)
        for queue in found.values():
            _check_path(queue, found)
        return [queue.manifest() for queue in found.values()]


def _check_path(queue: WrittenQueue, found: Mapping[str, WrittenQueue]) -> None:
    path, step = [queue.name], found.get(queue.parent)
    while step is not None:
        path.append(step.name)
        if step.name in path[:-1]:
            raise ManifestError("", f"the parents form a circle: {' -> '.join(path)}")
        at_most(len(path), DEEPEST, f"{queue.origin}: its tree", "levels")
        step = found.get(step.parent)
