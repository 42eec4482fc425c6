"""Make what the API server and the controllers would make of new objects.

`mooring simulate`, `mooring test` and the page's Try it read new objects here, so that all three
make the same pods of them and find the same mistakes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from mooring.model.events import Kind
from mooring.model.fields import mapping
from mooring.model.pod import Pod, parse_pod
from mooring.model.pod_group import PodGroup, parse_pod_group
from mooring.simulate.admission import Admission, Forbidden, as_stored
from mooring.simulate.controllers import CONTROLLERS, Controllers
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.object_fields import field_mistakes
from mooring.state.cluster import ClusterState

__all__ = [
    "SELECT_PODS",
    "NewObjects",
    "RejectedPod",
    "check_fields",
    "display_key",
    "makes_pods",
    "owner_of",
]

SELECT_PODS: Final[Mapping[tuple[str, str], Kind]] = {
    ("", "Service"): Kind.SERVICE,
    ("", "ReplicationController"): Kind.REPLICATION_CONTROLLER,
    ("apps", "ReplicaSet"): Kind.REPLICA_SET,
    ("apps", "StatefulSet"): Kind.STATEFUL_SET,
}
"""API group and kind of the objects by which default constraints count pods."""


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod, "namespace/name", that the API server would not store, and its answer.

    `owner` is its controller as `Kind namespace/name`, or "".
    """

    pod: str
    owner: str
    message: str


class NewObjects:
    """Makes the pods of new objects in the cluster of this state, with the nodes that it has now.

    Args:
        state: Where priority classes, claims and nodes are.
        pods: The pods that exist. Those of a controller count towards its replicas.
        deployments: The Deployment's name of each ReplicaSet that exists, by namespace and name.
        runtime_classes: RuntimeClasses as the API has them.
        limit_ranges: LimitRanges as the API has them.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        pods: Iterable[Pod] = (),
        deployments: Mapping[tuple[str, str], str] | None = None,
        runtime_classes: Iterable[Mapping[str, Any]] = (),
        limit_ranges: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        claims = state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM)
        nodes = (node for node in state.nodes.nodes if node is not None)
        self._controllers = Controllers(pods, deployments or {}, claims, nodes)
        priority_classes = state.objects.of(Kind.PRIORITY_CLASS).values()
        self._admission = Admission(
            priority_classes, runtime_classes, limit_ranges, kubernetes=state.kubernetes
        )

    def expand(self, manifest: Manifest) -> Iterator[Manifest]:
        """Yield the pod, or the pods and other objects that the controllers make of the object.

        Raises:
            InputError: if the API server would reject the object for its selector or template.
        """
        if manifest.kind == "Pod":
            yield manifest
        else:
            yield from self._controllers.expand(manifest)

    def admit(self, manifest: Manifest) -> dict[str, Any] | RejectedPod:
        """Return the pod as the API server would store it, or its answer if it would not.

        Raises:
            ManifestError: if a field of the pod is malformed.
        """
        try:
            return self._admission.pod(manifest.raw)
        except Forbidden as answer:
            pod = parse_pod(manifest.raw)  # a mistake in a field comes first
            return RejectedPod(pod.key, owner_of(pod), str(answer))

    def pod_group(self, raw: Mapping[str, Any]) -> PodGroup:
        """Return a new PodGroup as the API server would store it; if it would not, an invalid one.

        Raises:
            ManifestError: if its metadata is malformed.
        """
        stored = as_stored(Kind.POD_GROUP, raw)
        parsed = parse_pod_group(stored)
        if parsed.invalid is not None:
            return parsed
        try:
            return parse_pod_group(self._admission.pod_group(stored))
        except Forbidden as answer:
            return replace(parsed, invalid=str(answer))


def makes_pods(manifest: Manifest) -> bool:
    """Return whether the object is a pod or a controller that is expanded to pods."""
    return (manifest.group, manifest.kind) in {("", "Pod"), *CONTROLLERS}


def check_fields(manifest: Manifest, most: int | None = None) -> None:
    """Raise InputError with the unknown and missing fields of a new object, at most so many."""
    mistakes = [*islice(field_mistakes(manifest.raw), most)]
    if mistakes:
        lines = (f"{manifest.source}: {display_key(manifest)} {mistake}" for mistake in mistakes)
        raise InputError("\n".join(lines))


def display_key(manifest: Manifest) -> str:
    """Return kind, namespace and name of a namespaced object, as messages name it."""
    metadata = mapping(manifest.raw, "metadata")
    name = metadata.get("name", "(no name)")
    return f"{manifest.kind} {metadata.get('namespace') or 'default'}/{name}"


def owner_of(pod: Pod) -> str:
    """Return the controller of the pod as `Kind namespace/name`, "" if it has none."""
    owner = pod.owner
    return f"{owner.kind} {pod.namespace}/{owner.name}" if owner is not None else ""
