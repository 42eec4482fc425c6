"""Turns manifests into the state of a cluster and the pods to schedule."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.claims.model.resource_claims import parse_pod_claims, resource_claim_template_key
from mooring.extenders.full_objects import as_json
from mooring.framework.registry import Registry
from mooring.kube.api_resources import RESOURCE_CLAIM_TEMPLATE
from mooring.model.events import Kind
from mooring.model.fields import mapping, mappings, name_of, namespace_of, text
from mooring.model.manifest_error import ManifestError
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid
from mooring.simulate.admission import DefaultStorageClass, as_stored, names_no_class
from mooring.simulate.controllers import CONTROLLERS, device_claims, ephemeral_claims, is_new
from mooring.simulate.kinds import KINDS, as_read
from mooring.simulate.limit_ranges import LimitRanges
from mooring.simulate.load_profiles import LoadedProfile, is_profile, stored_profiles
from mooring.simulate.manifests import Manifest
from mooring.simulate.new_objects import NewObjects, RejectedPod, Written, display_key, read_all
from mooring.simulate.server import is_server, version_of
from mooring.simulate.unplayed import unplayed
from mooring.state.cluster import ClusterState
from mooring.volumes.model.storage_objects import PersistentVolumeClaim

_RUNTIME_CLASS: Final = ("node.k8s.io", "RuntimeClass")
_LIMIT_RANGE: Final = ("", "LimitRange")
_CLAIM_TEMPLATE: Final = (RESOURCE_CLAIM_TEMPLATE.group, RESOURCE_CLAIM_TEMPLATE.kind)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of a simulation.

    Attributes:
        state: The cluster.
        pending: The pods without a node that are neither finished nor terminating.
        rejected: The pods that the API server would not store.
        profiles: The profiles that apply.
        ignored: The number of objects that no decision reads, by `Kind` or `Kind.group`.
        without_pods: The controllers for which no pod was made, each with the reason.
        deployments: The Deployment of each ReplicaSet, by namespace and name.
        raw: Nodes and pods as JSON by kind and key, for extenders; empty without `keep_raw`.
        notes: Notes for the user about profiles and missing controllers.
    """

    state: ClusterState
    pending: tuple[Pod, ...]
    rejected: tuple[RejectedPod, ...]
    profiles: tuple[LoadedProfile, ...]
    ignored: Counter[str]
    without_pods: Mapping[str, str]
    deployments: Mapping[tuple[str, str], str]
    raw: Mapping[tuple[Kind, str], bytes]
    notes: tuple[str, ...] = ()


def inputs_of(
    manifests: Iterable[Manifest],
    registry: Registry,
    profiles: Sequence[LoadedProfile] = (),
    *,
    keep_raw: bool = False,
    kubernetes: str | None = None,
) -> Inputs:
    """Build the inputs of a simulation from Kubernetes objects.

    New controllers (for example Deployments) are replaced by their pods.

    Args:
        manifests: The objects.
        registry: The plugins that profiles may name.
        profiles: Profiles to use instead of SchedulingProfiles among the objects; profiles in mode
            Shadow count as Active.
        keep_raw: Whether to keep whole nodes and pods, for extenders.
        kubernetes: The version of the API server, for example 1.36. The default is the version in
            a cluster dump, or else the newest version.

    Raises:
        InputError: An object is malformed, incomplete or given twice; the text names the file, the
            object and the field.
    """
    reader = _Reader(keep_raw=keep_raw, kubernetes=kubernetes)
    read_all(manifests, reader.read)
    reader.make_pods()
    chosen, notes = [loaded.active() for loaded in profiles], list[str]()
    if not chosen:
        chosen, notes = stored_profiles(reader.profiles, registry)
    return Inputs(
        reader.state,
        tuple(reader.pending),
        tuple(reader.rejected),
        tuple(chosen),
        reader.ignored,
        reader.without_pods,
        reader.deployments,
        reader.raw,
        (*notes, *unplayed(reader.state, reader.pending, reader.without_status)),
    )


class _Reader:
    """Puts objects into a cluster state, with only the fields that decisions read."""

    def __init__(self, *, keep_raw: bool, kubernetes: str | None) -> None:
        self._keep_raw = keep_raw
        self._written = Written()
        self._kubernetes = kubernetes
        self.raw: dict[tuple[Kind, str], bytes] = {}
        self.state = ClusterState()
        self.state.follow_server(kubernetes or "")
        self.pending: list[Pod] = []
        self.rejected: list[RejectedPod] = []
        self.profiles: list[Manifest] = []
        self.ignored: Counter[str] = Counter()
        self.without_status: dict[str, None] = {}
        """The new PodDisruptionBudgets without `status`, by namespace and name."""
        self.without_pods: dict[str, str] = {}
        self._sources: dict[tuple[Kind, str], tuple[str, bool]] = {}
        self._names: dict[Uid, str] = {}
        self._stored_pods: list[Pod] = []
        self.deployments: dict[tuple[str, str], str] = {}
        self._new: list[Manifest] = []
        self._admission: dict[tuple[str, str], list[dict[str, Any]]] = {
            _RUNTIME_CLASS: [],
            _LIMIT_RANGE: [],
        }
        self._templates: dict[str, tuple[Manifest, bool]] = {}
        """The templates of claims for devices, by namespace and name; the bool is True for new
        templates."""
        self._default_class = DefaultStorageClass()
        self._without_class: dict[str, None] = {}
        """The new PersistentVolumeClaims that get the default class, by namespace and name."""
        self._new_groups: dict[str, Manifest] = {}
        """The new PodGroups by namespace and name. `make_pods` sets their priorities once the whole
        input is read, because a PriorityClass may come after its PodGroup."""
        self._of_groups: dict[str, Mapping[str, str]] = {}
        """The names of the claims of each group: by the group's uid, and then by the name of the
        entry in `resourceClaims`."""

    def read(self, manifest: Manifest) -> None:
        new, group_and_kind = is_new(manifest.raw), (manifest.group, manifest.kind)
        if new:
            read = self._written.checked(manifest)
        elif group_and_kind in CONTROLLERS and group_and_kind not in KINDS:
            read = manifest  # nothing is read of it but its name
        else:
            read = replace(manifest, raw=as_read(manifest.raw, stored=display_key(manifest)))
        self._sort(read, new=new)

    def _sort(self, manifest: Manifest, *, new: bool) -> None:
        group_and_kind = (manifest.group, manifest.kind)
        kind = KINDS.get(group_and_kind)
        expanded = group_and_kind in CONTROLLERS
        if kind is Kind.POD and (new or mapping(manifest.raw, "spec").get("priority") is None):
            self._new.append(manifest)
        elif kind is not None:
            self._put(kind, manifest, new=new)
        if expanded and new:
            self._new.append(manifest)
        elif expanded and kind is None:
            self.without_pods[display_key(manifest)] = (
                "a cluster has stored it (it has metadata.uid), so its pods must be in the input; "
                "to have them made anew, remove metadata.uid"
            )
        elif group_and_kind in self._admission:
            self._add_for_admission(group_and_kind, manifest.raw)
        elif group_and_kind == _CLAIM_TEMPLATE:
            self._add_template(manifest, new=new)
        elif is_profile(manifest):
            self.profiles.append(manifest)
        elif is_server(manifest):
            self.state.follow_server(self._kubernetes or version_of(manifest))
        elif kind is None:
            self.ignored[".".join(filter(None, (manifest.kind, manifest.group)))] += 1

    def _put(self, kind: Kind, manifest: Manifest, *, new: bool) -> None:
        key = object_key(kind, manifest.raw)
        source, was_new = self._sources.get((kind, key), ("", None))
        if was_new is not None and (kind is Kind.POD or new == was_new):
            raise ManifestError(f"{kind} {key}", f"is given already in {source}")
        # A new object takes the place of a stored one.
        if was_new and not new:
            return
        self._sources[kind, key] = (manifest.source, new)
        raw = as_stored(kind, manifest.raw)
        value = parse_object(kind, raw)
        self._keep(kind, key, raw)
        self._note(kind, key, raw, new=new)
        if kind is Kind.POD_GROUP and new:
            self._new_groups[key] = manifest
        if kind is Kind.REPLICA_SET:
            for owner in mappings(manifest.raw["metadata"], "ownerReferences", "metadata"):
                if owner.get("kind") == "Deployment":
                    replica_set = (value.namespace, value.name)
                    self.deployments[replica_set] = text(owner, "name", "metadata.ownerReferences")
        if kind is Kind.POD:
            self._stored_pods.append(value)
            self._add_pod(value)
        else:
            self.state.put(kind, key, value)

    def _note(self, kind: Kind, key: str, raw: Mapping[str, Any], *, new: bool) -> None:
        if kind is Kind.STORAGE_CLASS:
            self._default_class.put(raw)
        if kind is Kind.PERSISTENT_VOLUME_CLAIM:
            self._without_class.pop(key, None)
            if new and names_no_class(raw):
                self._without_class[key] = None
        if kind is Kind.POD_DISRUPTION_BUDGET:
            self.without_status.pop(key, None)
            if new and mapping(raw, "status").get("disruptionsAllowed") is None:
                self.without_status[key] = None

    def _add_for_admission(self, group_and_kind: tuple[str, str], raw: dict[str, Any]) -> None:
        name_of(raw)
        if group_and_kind == _LIMIT_RANGE:
            LimitRanges([raw])
        self._admission[group_and_kind].append(raw)

    def _add_template(self, manifest: Manifest, *, new: bool) -> None:
        key = resource_claim_template_key(manifest.raw)
        known, was_new = self._templates.get(key, (None, None))
        if known is not None and new == was_new:
            raise ManifestError(f"{manifest.kind} {key}", f"is given already in {known.source}")
        # A new template takes the place of a stored one.
        if not was_new:
            self._templates[key] = (manifest, new)

    def _add_pod(self, pod: Pod) -> None:
        other = self._names.setdefault(pod.uid, pod.key)
        if other != pod.key:
            raise ManifestError(f"Pod {pod.key}", f"has the metadata.uid of pod {other}; remove it")
        self.state.put(Kind.POD, pod.uid, pod)
        if not (pod.node_name or pod.finished or pod.terminating):
            self.pending.append(pod)

    def _keep(self, kind: Kind, key: str, raw: Mapping[str, Any]) -> None:
        if self._keep_raw and kind in (Kind.NODE, Kind.POD):
            self.raw[kind, key] = as_json(raw)

    def make_pods(self) -> None:
        """Make the pods of the controllers, and apply the API server's admission to new objects."""
        new_objects = NewObjects(
            self.state,
            pods=self._stored_pods,
            deployments=self.deployments,
            runtime_classes=self._admission[_RUNTIME_CLASS],
            limit_ranges=self._admission[_LIMIT_RANGE],
        )
        for key, manifest in self._new_groups.items():
            with manifest.locating_errors():
                self.state.put(Kind.POD_GROUP, key, new_objects.pod_group(manifest.raw))
        for manifest in self._new:
            for made in self._expanded(manifest, new_objects):
                with made.locating_errors():
                    self._create(made, new_objects)
        self._set_storage_class()

    def _set_storage_class(self) -> None:
        default = self._default_class.name
        if default is None:
            return
        for key in self._without_class:
            claim: PersistentVolumeClaim
            claim = self.state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM)[key]
            given = replace(claim, storage_class=default)
            self.state.put(Kind.PERSISTENT_VOLUME_CLAIM, key, given)

    def _expanded(self, manifest: Manifest, new_objects: NewObjects) -> Iterator[Manifest]:
        found = 0
        for made in new_objects.expand(manifest):
            found += made.kind == "Pod"
            yield made
        if not found:
            self.without_pods[display_key(manifest)] = (
                "it makes no pods: it has no replicas, is suspended, fits no node, or all its pods "
                "are in the input"
            )

    def _create(self, manifest: Manifest, new_objects: NewObjects) -> None:
        kind = KINDS[manifest.group, manifest.kind]
        if kind is not Kind.POD:
            self._put(kind, manifest, new=True)
            return
        key = object_key(kind, manifest.raw)
        if (kind, key) in self._sources:
            source, _ = self._sources[kind, key]
            raise ManifestError(f"Pod {key}", f"is given already in {source}")
        self._sources[kind, key] = (manifest.source, True)
        raw = new_objects.admit(manifest)
        if isinstance(raw, RejectedPod):
            self.rejected.append(raw)
            return
        raw = self._with_device_claims(manifest, raw)
        pod = parse_object(kind, raw)
        self._keep(kind, key, raw)
        for claim in ephemeral_claims(raw):
            claimed = replace(manifest, raw=claim)
            if object_key(Kind.PERSISTENT_VOLUME_CLAIM, claim) not in self.state.objects.of(
                Kind.PERSISTENT_VOLUME_CLAIM
            ):
                self._put(Kind.PERSISTENT_VOLUME_CLAIM, claimed, new=True)
        self._add_pod(pod)

    def _with_device_claims(self, manifest: Manifest, pod: dict[str, Any]) -> dict[str, Any]:
        """Create ResourceClaims from the pod's templates; return the pod with their names."""
        spec, status = mapping(pod, "spec"), mapping(pod, "status")
        named = self._claims_of_group(manifest, pod)
        entries = mappings(spec, "resourceClaims", "spec")
        own = [entry for entry in entries if entry.get("name") not in named]
        owner = {**pod, "spec": {**spec, "resourceClaims": own}}
        named = {**named, **self._made_claims(manifest, owner)}
        names = [{"name": entry, "resourceClaimName": name} for entry, name in named.items()]
        return {**pod, "status": {**status, "resourceClaimStatuses": names}} if names else pod

    def _made_claims(self, manifest: Manifest, owner: dict[str, Any]) -> dict[str, str]:
        """Create the owner's ResourceClaims; return their names by entry name."""
        templates = {key: template.raw for key, (template, _) in self._templates.items()}
        known, names = self.state.objects.of(Kind.RESOURCE_CLAIM), dict[str, str]()
        for entry, claim in device_claims(owner, templates, known):
            self._put(Kind.RESOURCE_CLAIM, replace(manifest, raw=claim), new=True)
            names[entry] = name_of(claim)
        return names

    def _claims_of_group(self, manifest: Manifest, pod: dict[str, Any]) -> Mapping[str, str]:
        """Create missing claims of the pod's group; return the pod's claim names by entry name."""
        wanted = parse_pod_claims(mapping(pod, "spec"))
        name = mapping(mapping(pod, "spec"), "schedulingGroup", "spec").get("podGroupName")
        key = f"{namespace_of(pod)}/{name}"
        group = self.state.objects.of(Kind.POD_GROUP).get(key) if wanted and name else None
        if group is None or not group.resource_claims:
            return {}
        if group.uid not in self._of_groups:
            made = {e: c for e, c in group.status.claim_names.items() if c is not None}
            entries = [
                {"name": each.name, "resourceClaimTemplateName": each.template}
                for each in group.resource_claims
                if each.template and each.name not in group.status.claim_names
            ]
            metadata = {"name": group.name, "namespace": group.namespace, "uid": group.uid}
            owner = {"kind": "PodGroup", "metadata": metadata, "spec": {"resourceClaims": entries}}
            self._of_groups[group.uid] = made | self._made_claims(manifest, owner)
        shared = {each.name for each in wanted if each in group.resource_claims}
        return {e: c for e, c in self._of_groups[group.uid].items() if e in shared}
