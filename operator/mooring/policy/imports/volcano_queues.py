"""Converts Volcano's Queues to Mooring's, following Volcano's plugin capacity.

Source: `scheduling/v1beta1/types.go`, `plugins/capacity/capacity.go`. The field `deserved` becomes
the quota, `guarantee` the part that the queue does not lend, and `capability` its limit.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.model.fields import mapping, name_of, text
from mooring.policy.imports.inclusive_quotas import converted, note_without_nodes
from mooring.policy.imports.written_queue import WrittenQueue, left_out
from mooring.quota.model.queue import QUEUE_LABEL, amounts_of, inclusive_quotas

VOLCANO: Final = "scheduling.volcano.sh"
_ROOT: Final = "root"
_READ: Final = ("weight", "capability", "deserved", "guarantee", "parent")
_UNREAD: Final[Mapping[str, tuple[object, str]]] = {
    "reclaimable": (
        True,
        "what a Queue has borrowed can be taken back; borrowingLimit 0 avoids it",
    ),
    "priority": (0, "the Queue that has borrowed the smallest share is first"),
    "affinity": (None, "give the pods a node affinity"),
    "dequeueStrategy": ("traverse", "a pod that does not fit holds up no other"),
    "dra": (None, "Queues count requests, not devices of claims"),
}


class VolcanoQueues:
    """Reads Volcano's queues one by one, and converts all of them to Queues."""

    kinds: Final = ("Queue",)

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._root = WrittenQueue(_ROOT, "the root of Volcano's queues")
        self._queues: list[WrittenQueue] = []

    def read(self, raw: Mapping[str, Any]) -> None:
        """Read a queue; raise ManifestError if it is malformed."""
        name, spec = name_of(raw), mapping(raw, "spec")
        origin = f"Queue {name}"
        self._notes += left_out(origin, spec, _READ, _UNREAD)
        if text(mapping(raw, "status"), "state", "status") in ("Closed", "Closing"):
            self._notes.append(f"{origin}: is closed in Volcano; Queues are always open")
        kept = amounts_of(mapping(spec, "guarantee", "spec"), "resource", "spec.guarantee")
        deserved = amounts_of(spec, "deserved", "spec")
        quota = {each: max(deserved.get(each, 0), kept.get(each, 0)) for each in deserved | kept}
        queue = WrittenQueue(
            name,
            origin,
            parent=text(spec, "parent", "spec"),
            quotas=inclusive_quotas(quota, amounts_of(spec, "capability", "spec"), kept),
            weight=spec.get("weight"),
            selector={},
        )
        if name == _ROOT:
            self._root = WrittenQueue(name, origin, quotas=queue.quotas)
        else:
            self._queues.append(queue)

    def queues(self, capacity: Mapping[str, int]) -> Iterator[WrittenQueue]:
        """Yield a root Queue and a Queue for each queue of Volcano; add notes for the user."""
        if not capacity:
            self._notes.append(note_without_nodes(_ROOT, f"queues.{VOLCANO}"))
        if not any(quota.nominal for queue in self._queues for quota in queue.quotas.values()):
            why = "weights divide the nodes in Volcano's plugin proportion; here they only order"
            self._notes.append(f"no queue has deserved or guarantee: {why} Queues that borrow")
        why = f"pods need the label {QUEUE_LABEL}, or a profile with the preset Volcano"
        self._notes.append(why)
        return converted(self._queues, self._root, self._notes, capacity)
