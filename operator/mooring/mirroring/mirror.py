"""Parses the objects that reflectors read, and puts them into the cluster state."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from mooring.claims.model.resource_claims import unreadable_claim
from mooring.kube import api_resources as resources
from mooring.kube.api_resources import Resource
from mooring.kube.reflector import EventType
from mooring.model.events import Action, Kind, event_label
from mooring.model.manifest_error import ManifestError
from mooring.model.objects import identity, parse_object
from mooring.model.pod import Pod
from mooring.pausing import pause, timed
from mooring.process.importing import import_module_quickly
from mooring.state.cluster import ClusterState

logger = logging.getLogger(__name__)

MIRRORED: Final[Mapping[Resource, Kind]] = {
    resources.NODE: Kind.NODE,
    resources.NAMESPACE: Kind.NAMESPACE,
    resources.POD: Kind.POD,
    resources.SERVICE: Kind.SERVICE,
    resources.PERSISTENT_VOLUME: Kind.PERSISTENT_VOLUME,
    resources.PERSISTENT_VOLUME_CLAIM: Kind.PERSISTENT_VOLUME_CLAIM,
    resources.STORAGE_CLASS: Kind.STORAGE_CLASS,
    resources.CSI_NODE: Kind.CSI_NODE,
    resources.CSI_DRIVER: Kind.CSI_DRIVER,
    resources.CSI_STORAGE_CAPACITY: Kind.CSI_STORAGE_CAPACITY,
    resources.VOLUME_ATTACHMENT: Kind.VOLUME_ATTACHMENT,
    resources.POD_DISRUPTION_BUDGET: Kind.POD_DISRUPTION_BUDGET,
    resources.REPLICA_SET: Kind.REPLICA_SET,
    resources.REPLICATION_CONTROLLER: Kind.REPLICATION_CONTROLLER,
    resources.STATEFUL_SET: Kind.STATEFUL_SET,
    resources.RESOURCE_CLAIM: Kind.RESOURCE_CLAIM,
    resources.RESOURCE_SLICE: Kind.RESOURCE_SLICE,
    resources.DEVICE_CLASS: Kind.DEVICE_CLASS,
}
"""The mirrored resources and their kinds; PriorityClasses come through kopf."""

MIRRORED_IF_SERVED: Final[Mapping[Resource, Kind]] = {
    resources.POD_GROUP_V1: Kind.POD_GROUP,
    resources.POD_GROUP: Kind.POD_GROUP,
    resources.POD_GROUP_V1ALPHA3: Kind.POD_GROUP,
    resources.POD_GROUP_V1ALPHA2: Kind.POD_GROUP,
    resources.COSCHEDULING_POD_GROUP: Kind.COSCHEDULING_POD_GROUP,
    resources.SIGS_POD_GROUP: Kind.COSCHEDULING_POD_GROUP,
    resources.VOLCANO_POD_GROUP: Kind.VOLCANO_POD_GROUP,
    resources.KAI_POD_GROUP: Kind.KAI_POD_GROUP,
    resources.POD_GANG: Kind.POD_GANG,
    resources.HYPER_NODE: Kind.HYPER_NODE,
    resources.QUEUE: Kind.QUEUE,
    resources.ELASTIC_QUOTA: Kind.ELASTIC_QUOTA,
    resources.SIGS_ELASTIC_QUOTA: Kind.ELASTIC_QUOTA,
    resources.DEVICE_TAINT_RULE: Kind.DEVICE_TAINT_RULE,
    resources.DEVICE_TAINT_RULE_V1BETA2: Kind.DEVICE_TAINT_RULE,
}
"""Resources to mirror if the API server serves them; of each kind, only the first served one."""

DEVICE_KINDS: Final = (
    Kind.DEVICE_CLASS,
    Kind.RESOURCE_CLAIM,
    Kind.RESOURCE_SLICE,
    Kind.DEVICE_TAINT_RULE,
)
"""Kinds that must be listed before a device is allocated; DeviceTaintRules only if served."""

ASSIGNED_PODS: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that are bound to a node and have not ended."""

_KINDS: Final[Mapping[Resource, Kind]] = {**MIRRORED, **MIRRORED_IF_SERVED}
ACTIONS: Final[Mapping[EventType, Action]] = {
    "ADDED": Action.ADD,
    "MODIFIED": Action.UPDATE,
    "DELETED": Action.DELETE,
}
"""The action on the object, by the type of watch event."""

_POD_FIELDS: Final = attrgetter(*(field.name for field in fields(Pod)))


def parsed_or_none(kind: Kind, raw: Mapping[str, Any]) -> Any | None:
    """Parse an API object; if it is malformed, log that and return None."""
    try:
        return parse_object(kind, raw)
    except ManifestError as error:
        logger.warning("an object is left out because it is malformed: %s", error)
        return None


def _parsed(state: ClusterState, kind: Kind, key: str, raw: Mapping[str, Any]) -> Any | None:
    if kind is Kind.DEVICE_CLASS:
        # Without a class no selector is compiled. So the first claim does not wait for the import,
        # and replicas of most clusters, which have no class, do without it.
        import_module_quickly("mooring.cel.compiler")
    if kind is not Kind.RESOURCE_CLAIM:
        return parsed_or_none(kind, raw)
    try:
        return parse_object(kind, raw)
    except ManifestError as error:
        known = state.dynamic_resources.claims.get(key)
        # A malformed claim keeps its known devices in use.
        claim = unreadable_claim(raw, str(error), known)
        if known is None or known.malformed != claim.malformed:
            logger.warning("a claim cannot be read, and its devices stay in use: %s", error)
        return claim


class Mirror:
    """Writes the objects of reflectors into the cluster state (`mooring.kube.reflector.Sink`).

    The last valid version of a malformed object stays in the state; the devices of a malformed
    claim stay in use. `handled` is called after each event, with the event's label in the metrics
    and the seconds taken.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        handled: Callable[[str, float], None] = lambda _event, _seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._handled = handled
        self._clock = clock

    def relist(self, resource: Resource) -> "MirroredList":
        """Return a new list, to be filled; its `apply` replaces all objects of the resource."""
        return MirroredList(self._state, _KINDS[resource])

    def apply(self, resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        """Store an object that was added or changed, or remove an object that was deleted."""
        kind = _KINDS[resource]
        _, seconds = timed(lambda: self._take_over(kind, event, obj), self._clock)
        self._handled(event_label(kind, ACTIONS[event]), seconds)

    def _take_over(self, kind: Kind, event: EventType, obj: dict[str, Any]) -> None:
        key = identity(kind, obj)
        if event == "DELETED":
            self._state.delete(kind, key)
            return
        value = _parsed(self._state, kind, key, obj)
        if value is None:
            return
        if kind is Kind.POD:
            pause()
        self._state.put(kind, key, value)


class MirroredList:
    """The objects of one list, parsed as they come (`mooring.kube.reflector.Relist`).

    A pod that has not changed keeps its known object, so that most relists take little memory.
    """

    def __init__(self, state: ClusterState, kind: Kind) -> None:
        self._state = state
        self._kind = kind
        self._before = state.keys(kind)
        self._unconfirmed = state.unconfirmed() if kind is Kind.POD else ()
        self._values: dict[str, Any] = {}

    def add(self, obj: dict[str, Any]) -> None:
        """Add an object of the list; if it is malformed, keep its last valid version."""
        key = identity(self._kind, obj)
        self._values.setdefault(key, None)
        value = _parsed(self._state, self._kind, key, obj)
        if value is not None:
            known = self._state.known(self._kind, key)
            equal = isinstance(known, Pod) and _POD_FIELDS(known) == _POD_FIELDS(value)
            self._values[key] = known if equal else value

    def remove(self, obj: dict[str, Any]) -> None:
        """Remove an object that was deleted before the list was complete."""
        self._values.pop(identity(self._kind, obj), None)

    def apply(self) -> None:
        """Put the objects into the state, and remove known objects that are not in the list."""
        self._state.replacing(self._kind, self._values, self._before)
        # A pod that was bound before the list began, and is not in it, is soon read again.
        self._state.doubt(uid for uid in self._unconfirmed if uid not in self._values)
