"""Makes new objects as the API server and the controllers would make them.

`mooring simulate`, `mooring test` and the page's Try it read new objects with this module, so that
all three make the same pods and find the same mistakes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from mooring.groups.model.pod_group import PodGroup, parse_pod_group
from mooring.model.events import Kind
from mooring.model.fields import mapping, namespace_of, text
from mooring.model.pod import Pod, parse_pod
from mooring.simulate.admission import Admission, Forbidden, as_stored
from mooring.simulate.controllers import CONTROLLERS, Controllers, generated_names
from mooring.simulate.kinds import READ, as_read
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.object_fields import field_mistakes
from mooring.state.cluster import ClusterState

SELECT_PODS: Final = frozenset(
    {Kind.SERVICE, Kind.REPLICATION_CONTROLLER, Kind.REPLICA_SET, Kind.STATEFUL_SET}
)
"""The kinds that select pods; default topology spread constraints use their selectors."""
_CLUSTER_WIDE: Final = frozenset((r.group, r.kind) for r in READ if not r.namespaced)
_MOST_OBJECTS: Final = 20
"""The most objects with mistakes, which are reported together; then reading stops."""


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod ("namespace/name") that the API server would not store, and the API server's answer.

    `owner` is the pod's controller as `Kind namespace/name`, or "".
    """

    pod: str
    owner: str
    message: str


class NewObjects:
    """Makes the pods of new objects for the cluster `state`, which it reads but does not change.

    `Controllers` explains `pods` and `deployments`; `Admission` explains the other arguments.
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
        """Yield the objects that controllers create for the object; yield a pod unchanged.

        Raises InputError if the API server would reject the object's selector or template.
        """
        if manifest.kind == "Pod":
            yield manifest
        else:
            yield from self._controllers.expand(manifest)

    def admit(self, manifest: Manifest) -> dict[str, Any] | RejectedPod:
        """Return the stored pod, or its rejection; raise ManifestError if the pod is malformed."""
        try:
            return self._admission.pod(manifest.raw)
        except Forbidden as answer:
            pod = parse_pod(manifest.raw)  # a mistake in a field comes first
            return RejectedPod(pod.key, owner_of(pod), str(answer))

    def pod_group(self, raw: Mapping[str, Any]) -> PodGroup:
        """Return the PodGroup as the API server would store it.

        If the API server would reject it, its field `invalid` says why. Raises ManifestError if the
        metadata is malformed.
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
    """Return whether the object is a pod or a controller that makes pods."""
    return (manifest.group, manifest.kind) in {("", "Pod"), *CONTROLLERS}


class Written:
    """Checks objects that users wrote; `most` limits the mistakes per object (None: no limit)."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._numbers = Counter[tuple[str, ...]]()
        self._taken = set[tuple[str, ...]]()

    def checked(self, manifest: Manifest) -> Manifest:
        """Return the object with a name, in a supported version.

        Raises InputError if fields are wrong or missing. Raises ManifestError if the apiVersion is
        not supported for the kind.
        """
        manifest = self._named(manifest)
        mistakes = [*islice(field_mistakes(manifest.raw), self._most)]
        if mistakes:
            begin = f"{manifest.source}: {display_key(manifest)}"
            raise InputError("\n".join(f"{begin} {mistake}" for mistake in mistakes))
        return replace(manifest, raw=as_read(manifest.raw))

    def _named(self, manifest: Manifest) -> Manifest:
        metadata = mapping(manifest.raw, "metadata")
        base = text(metadata, "generateName", "metadata")
        if metadata.get("name") or not base:
            return manifest
        scope = (manifest.kind, namespace_of(manifest.raw))
        for name in generated_names(base, [*scope, base], self._numbers[*scope, base]):
            self._numbers[*scope, base] += 1
            if (*scope, name) not in self._taken:
                break
        self._taken.add((*scope, name))
        return replace(manifest, raw={**manifest.raw, "metadata": {**metadata, "name": name}})


def read_all(manifests: Iterable[Manifest], read: Callable[[Manifest], object]) -> None:
    """Call `read` for each object; at the end, raise InputError with all mistakes, if any.

    After `_MOST_OBJECTS` objects with mistakes, no further object is read.
    """
    mistakes = list[str]()
    for manifest in manifests:
        try:
            with manifest.locating_errors():
                read(manifest)
        except InputError as error:
            mistakes.append(str(error))
            if len(mistakes) == _MOST_OBJECTS:
                break
    if mistakes:
        raise InputError("\n".join(mistakes))


def display_key(manifest: Manifest) -> str:
    """Return the object's kind, namespace and name for messages."""
    metadata = mapping(manifest.raw, "metadata")
    name = metadata.get("name", "(no name)")
    if (manifest.group, manifest.kind) in _CLUSTER_WIDE:
        return f"{manifest.kind} {name}"
    return f"{manifest.kind} {metadata.get('namespace') or 'default'}/{name}"


def owner_of(pod: Pod) -> str:
    """Return the controller of the pod as `Kind namespace/name`; "" if it has none."""
    owner = pod.owner
    return f"{owner.kind} {pod.namespace}/{owner.name}" if owner is not None else ""
