"""Turn manifests into the state of a cluster and the pods to schedule."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mooring.framework.registry import Registry
from mooring.kube.resources import PRIORITY_CLASS
from mooring.mirroring.mirror import MIRRORED
from mooring.model.errors import ManifestError
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod
from mooring.simulate.admission import Admission, as_stored
from mooring.simulate.manifests import Manifest
from mooring.simulate.profiles import LoadedProfile, is_profile, load_profiles
from mooring.state.cluster import ClusterState

__all__ = ["Inputs", "inputs_of"]

_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (resource.group, resource.kind): kind
    for resource, kind in {**MIRRORED, PRIORITY_CLASS: Kind.PRIORITY_CLASS}.items()
}
_RUNTIME_CLASS: Final = ("node.k8s.io", "RuntimeClass")


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of a simulation.

    Attributes:
        state: The cluster.
        pending: The pods without a node, in the order of the input.
        profiles: The profiles that apply.
        ignored: The number of objects that no decision reads, by `Kind` or `Kind.group`.
    """

    state: ClusterState
    pending: tuple[Pod, ...]
    profiles: tuple[LoadedProfile, ...]
    ignored: Counter[str]


def inputs_of(
    manifests: Iterable[Manifest], registry: Registry, profiles: Sequence[LoadedProfile] = ()
) -> Inputs:
    """Build the inputs of a simulation from Kubernetes objects.

    If `profiles` is not empty, SchedulingProfiles among the objects are not used.

    Raises:
        InputError: if an object is malformed, incomplete or given twice; the text names the file,
            the object and the field.
    """
    known: dict[Kind, list[Manifest]] = {kind: [] for kind in Kind}
    runtime_classes, own_profiles, ignored = list[Manifest](), list[Manifest](), Counter[str]()
    for manifest in manifests:
        group_and_kind = (manifest.group, manifest.kind)
        if group_and_kind in _KINDS:
            known[_KINDS[group_and_kind]].append(manifest)
        elif group_and_kind == _RUNTIME_CLASS:
            runtime_classes.append(manifest)
        elif is_profile(manifest):
            own_profiles.append(manifest)
        else:
            ignored[".".join(filter(None, (manifest.kind, manifest.group)))] += 1
    state = ClusterState()
    for kind in Kind:
        if kind is not Kind.POD:
            for key, value in _parsed(kind, known[kind], partial(as_stored, kind)).items():
                state.put(kind, key, value)
    admission = Admission(
        state.objects.of(Kind.PRIORITY_CLASS).values(), [m.raw for m in runtime_classes]
    )
    pods = _parsed(Kind.POD, known[Kind.POD], admission.pod)
    for key, pod in pods.items():
        state.put(Kind.POD, key, pod)
    pending = (p for p in pods.values() if not (p.node_name or p.finished or p.terminating))
    chosen = profiles or load_profiles(own_profiles, registry)
    return Inputs(state, tuple(pending), tuple(chosen), ignored)


def _parsed(
    kind: Kind,
    manifests: Iterable[Manifest],
    admit: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    """The parsed objects by key; `admit` fills in absent fields of the raw object first."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for manifest in manifests:
        try:
            key = _new_key(kind, manifest, sources)
            values[key] = parse_object(kind, admit(manifest.raw))
        except ManifestError as error:
            raise manifest.error(error) from None
        sources[key] = manifest.source
    return values


def _new_key(kind: Kind, manifest: Manifest, sources: Mapping[str, str]) -> str:
    key = object_key(kind, manifest.raw)
    if key in sources:
        raise ManifestError(f"{kind} {key}", f"is given already in {sources[key]}")
    return key
