"""From manifests to a cluster's state and the pods that wait for a node."""

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
from mooring.simulate.policies import Policy, is_profile, read_policies
from mooring.state.cluster import ClusterState

__all__ = ["Inputs", "inputs_of"]

_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (resource.group, resource.kind): kind
    for resource, kind in {**MIRRORED, PRIORITY_CLASS: Kind.PRIORITY_CLASS}.items()
}
_RUNTIME_CLASS: Final = ("node.k8s.io", "RuntimeClass")


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """What a simulation starts from.

    `pending` are the pods without a node, in the order of the input; `ignored` counts objects that
    no decision reads, by kind and group.
    """

    state: ClusterState
    pending: tuple[Pod, ...]
    policies: tuple[Policy, ...]
    ignored: Counter[str]


def inputs_of(
    manifests: Iterable[Manifest], registry: Registry, policies: Sequence[Policy] = ()
) -> Inputs:
    """The cluster that the objects make up, with what admission would have completed.

    `policies`, if there are any, take the place of SchedulingProfiles among the objects.

    Raises:
        InputError: naming file, object and field of what is malformed, missing or there twice.
    """
    known: dict[Kind, list[Manifest]] = {kind: [] for kind in Kind}
    runtime_classes, profiles, ignored = list[Manifest](), list[Manifest](), Counter[str]()
    for manifest in manifests:
        group_and_kind = (manifest.group, manifest.kind)
        if group_and_kind in _KINDS:
            known[_KINDS[group_and_kind]].append(manifest)
        elif group_and_kind == _RUNTIME_CLASS:
            runtime_classes.append(manifest)
        elif is_profile(manifest):
            profiles.append(manifest)
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
    in_force = policies or read_policies(profiles, registry)
    return Inputs(state, tuple(pending), tuple(in_force), ignored)


def _parsed(
    kind: Kind,
    manifests: Iterable[Manifest],
    admit: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, Any]:
    """The values of the objects by key."""
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
