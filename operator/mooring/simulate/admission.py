"""Fills in and checks fields of new objects as the API server's admission plugins do.

It fills in only fields that are absent and that a scheduling decision reads.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.model.events import Kind
from mooring.model.fields import (
    boolean,
    mapping,
    mappings,
    name_of,
    namespace_of,
    optional_mapping,
    strings,
    text,
    texts,
    timestamp,
)
from mooring.model.kubernetes_rules import NEWEST, KubernetesRules
from mooring.model.objects import object_key
from mooring.model.resources import (
    CPU,
    parse_amounts,
    parse_containers,
    parse_pod_level,
    total_requests,
)
from mooring.model.workloads import NAMESPACE_NAME, PriorityClass
from mooring.simulate.controllers import is_new
from mooring.simulate.limit_ranges import LimitRanges

_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_PREEMPT: Final = "PreemptLowerPriority"
_NO_CLASS: Final = PriorityClass("", 0, global_default=False, preemption_policy=_PREEMPT)
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_TOLERATED_FOR_A_TIME: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_RUNNING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def as_stored(kind: Kind, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object as the API server and its controllers would store it.

    Only fields that decisions read get their defaults (SetDefaults in pkg/apis).
    """
    if kind is Kind.NAMESPACE:
        metadata = mapping(raw, "metadata")
        labels = {NAMESPACE_NAME: name_of(raw)}
        labels |= mapping(metadata, "labels", "metadata")
        return {**raw, "metadata": {**metadata, "labels": labels}}
    status, spec = mapping(raw, "status"), mapping(raw, "spec")
    if kind is Kind.NODE and status.get("allocatable") is None:
        return {**raw, "status": {**status, "allocatable": status.get("capacity")}}
    if kind is Kind.REPLICATION_CONTROLLER and not spec.get("selector"):
        template = mapping(mapping(spec, "template", "spec"), "metadata", "spec.template")
        return {**raw, "spec": {**spec, "selector": template.get("labels")}}
    if kind is Kind.PERSISTENT_VOLUME and not status.get("phase"):
        taken = mapping(spec, "claimRef", "spec")
        return {**raw, "status": {"phase": "Bound" if taken else "Available"}}
    if kind in (Kind.RESOURCE_CLAIM, Kind.POD_GROUP) and is_new(raw):
        uid = f"{kind}/{object_key(kind, raw)}"
        return {**raw, "metadata": {**mapping(raw, "metadata"), "uid": uid}}
    return raw


class DefaultStorageClass:
    """The StorageClass of new claims without a class.

    If several classes are marked as the default, the newest class is used (storageclass/setdefault
    in plugin/pkg/admission).
    """

    def __init__(self) -> None:
        self._created: dict[str, float] = {}

    def put(self, raw: Mapping[str, Any]) -> None:
        """Add the StorageClass if it is marked as default; forget a former class of its name."""
        metadata = mapping(raw, "metadata")
        annotations = strings(metadata, "annotations", "metadata")
        self._created.pop(name_of(raw), None)
        if any(annotations.get(key) == "true" for key in _DEFAULT_CLASS):
            created = timestamp(metadata, "creationTimestamp", "metadata")
            # A class that was never stored in a cluster is the newest.
            self._created[name_of(raw)] = math.inf if created is None else created

    @property
    def name(self) -> str | None:
        """The name of the class; None if there is no default."""
        return min(self._created, key=lambda name: (-self._created[name], name), default=None)


def names_no_class(claim: Mapping[str, Any]) -> bool:
    """Return whether the PersistentVolumeClaim names no StorageClass; "" counts as a name."""
    annotations = strings(mapping(claim, "metadata"), "annotations", "metadata")
    absent = mapping(claim, "spec").get("storageClassName") is None
    return absent and _OLD_CLASS not in annotations


class Forbidden(Exception):  # noqa: N818 - the API server's answer, and no error of ours
    """Raised if the API server would not store a pod; the text is the API server's answer."""


class Admission:
    """Fills in and checks pods and PodGroups as the admission plugins of the API server do.

    These plugins are LimitRanger, Priority, DefaultTolerationSeconds and RuntimeClass, in
    `plugin/pkg/admission`. A pod from a cluster has passed them already. Such a pod gets only a
    priority, preemption policy and overhead, if they are absent.

    Args:
        runtime_classes: The RuntimeClasses of the cluster as raw objects.
        limit_ranges: The LimitRanges of the cluster as raw objects.
        kubernetes: The rules of the API server's version.
    """

    def __init__(
        self,
        priority_classes: Iterable[PriorityClass],
        runtime_classes: Iterable[Mapping[str, Any]],
        limit_ranges: Iterable[Mapping[str, Any]] = (),
        *,
        kubernetes: KubernetesRules = NEWEST,
    ) -> None:
        self._kubernetes = kubernetes
        self._priorities = {
            name: PriorityClass(name, value, global_default=False, preemption_policy=_PREEMPT)
            for name, value in _SYSTEM_CLASSES.items()
        }
        self._priorities |= {found.name: found for found in priority_classes}
        defaults = [found for found in self._priorities.values() if found.global_default]
        self._default = min(defaults, key=lambda found: found.value, default=_NO_CLASS)
        self._runtime_classes = {name_of(raw): raw for raw in runtime_classes}
        self._limit_ranges = LimitRanges(limit_ranges)

    def pod(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pod as the API server would store it.

        Raises Forbidden if the API server would reject the pod.
        """
        metadata, spec = dict(mapping(raw, "metadata")), dict(mapping(raw, "spec"))
        namespace, key = namespace_of(raw), f"{namespace_of(raw)}/{name_of(raw)}"
        metadata["uid"] = metadata.get("uid") or key
        try:
            spec = self._admitted(namespace, spec, new=is_new(raw))
            if is_new(raw) and (affinity := mapping(spec, "affinity", "spec")):
                labels = mapping(metadata, "labels", "metadata")
                spec["affinity"] = _with_label_keys(affinity, labels)
        except Forbidden as answer:
            raise Forbidden(f'pods "{name_of(raw)}" is forbidden: {answer}') from None
        # Disruption budgets count only running pods, so a new pod with a node gets this status.
        runs = is_new(raw) and spec.get("nodeName") and not raw.get("status")
        status = _RUNNING if runs else raw.get("status")
        return {**raw, "metadata": metadata, "spec": spec, "status": status}

    def pod_group(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the PodGroup with its priority; raise Forbidden if its PriorityClass is wrong."""
        spec = dict(mapping(raw, "spec"))
        try:
            self._set_group_priority(spec)
        except Forbidden as answer:
            name = f'podgroups.scheduling.k8s.io "{name_of(raw)}"'
            raise Forbidden(f"{name} is forbidden: {answer}") from None
        return {**raw, "spec": spec}

    def _admitted(self, namespace: str, spec: dict[str, Any], *, new: bool) -> dict[str, Any]:
        if new:
            _set_host_ports(spec)
            _set_volumes(spec)
            if not self._kubernetes.pod_level_defaults_last:
                _set_pod_level_requests(spec)
            spec = self._limit_ranges.completed(namespace, spec)
        if new or spec.get("priority") is None:
            self._set_priority(spec, new=new)
        if new:
            _set_tolerations(spec)
        self._set_runtime_class(spec, new=new)
        violations = self._limit_ranges.violations(namespace, spec) if new else []
        if violations:
            listed = ", ".join(violations)
            raise Forbidden(listed if len(violations) == 1 else f"[{listed}]")
        return spec

    def _set_group_priority(self, spec: dict[str, Any]) -> None:
        found = self._class_of(spec)
        if spec.get("priority") is None:
            spec["priority"] = found.value
        elif spec["priority"] != found.value:
            raise Forbidden(
                f"priority set in the pod group ({spec['priority']}) must match the priority "
                f"computed ({found.value}) based on the priority class set in the spec"
            )

    def _set_priority(self, spec: dict[str, Any], *, new: bool) -> None:
        found = self._class_of(spec)
        for field, said, computed in (
            ("priority", "integer value of priority", found.value),
            ("preemptionPolicy", "string value of PreemptionPolicy", found.preemption_policy),
        ):
            given = spec.get(field)
            if given is None:
                spec[field] = computed
            elif new and given != computed:
                raise Forbidden(
                    f"the {said} ({given}) must not be provided in pod spec; priority admission "
                    f"controller computed {computed} from the given PriorityClass name"
                )

    def _class_of(self, spec: Mapping[str, Any]) -> PriorityClass:
        name = text(spec, "priorityClassName", "spec")
        found = self._priorities.get(name) if name else self._default
        if found is None:
            raise Forbidden(f"no PriorityClass with name {name} was found")
        return found

    def _set_runtime_class(self, spec: dict[str, Any], *, new: bool) -> None:
        name = text(spec, "runtimeClassName", "spec")
        found = self._runtime_classes.get(name)
        if found is None and name and new:
            raise Forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        overhead = mapping(mapping(found or {}, "overhead"), "podFixed", "overhead")
        own = mapping(spec, "overhead", "spec")
        if new and own and _amounts(own) != _amounts(overhead):
            raise Forbidden(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                if overhead
                else "pod rejected: Pod Overhead set without corresponding RuntimeClass defined "
                "Overhead"
            )
        if overhead and not own:
            spec["overhead"] = overhead
        if found is not None and new:
            _set_scheduling(spec, mapping(found, "scheduling"))


def _amounts(overhead: Mapping[str, Any]) -> dict[str, int]:
    return parse_amounts(overhead, "spec.overhead")


def _set_scheduling(spec: dict[str, Any], scheduling: Mapping[str, Any]) -> None:
    """Add a RuntimeClass's node selector and tolerations to a pod's spec."""
    selector = dict(mapping(spec, "nodeSelector", "spec"))
    for key, value in mapping(scheduling, "nodeSelector", "scheduling").items():
        if selector.setdefault(key, value) != value:
            raise Forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    tolerations = mappings(scheduling, "tolerations", "scheduling")
    spec["nodeSelector"] = selector
    spec["tolerations"] = [*mappings(spec, "tolerations", "spec"), *tolerations]


def _with_label_keys(affinity: Mapping[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's affinity with the `matchLabelKeys` of each term added to its selector."""
    # As mutatePodAffinity in pkg/registry/core/pod/strategy.go: schedulers read only the selectors.
    hard, soft = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    merged, weighed = dict(affinity), "podAffinityTerm"
    for group in ("podAffinity", "podAntiAffinity"):
        found, where = mapping(affinity, group, "spec.affinity"), f"spec.affinity.{group}"
        if not found:
            continue
        terms = [
            _narrowed(term, labels, f"{where}.{hard}[{index}]")
            for index, term in enumerate(mappings(found, hard, where))
        ]
        weighted = [
            {**each, weighed: _narrowed(mapping(each, weighed, at), labels, f"{at}.{weighed}")}
            for index, each in enumerate(mappings(found, soft, where))
            for at in (f"{where}.{soft}[{index}]",)
        ]
        both = {hard: terms, soft: weighted}
        merged[group] = {**found, **{name: each for name, each in both.items() if each}}
    return merged


def _narrowed(term: Mapping[str, Any], labels: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    selector = optional_mapping(term, "labelSelector", where)
    if selector is None:
        return term
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in texts(term, field, where)
        if key in labels
    ]
    if not added:
        return term
    known = mappings(selector, "matchExpressions", f"{where}.labelSelector")
    expressions = [*known, *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _set_tolerations(spec: dict[str, Any]) -> None:
    # As the admission plugin DefaultTolerationSeconds.
    tolerations = mappings(spec, "tolerations", "spec")
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _TOLERATED_FOR_A_TIME
        if not any(
            t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute")
            for t in tolerations
        )
    ]
    spec["tolerations"] = [*tolerations, *added]


def _set_pod_level_requests(spec: dict[str, Any]) -> None:
    # defaultPodRequests in pkg/apis/core/v1/defaults.go
    resources = mapping(spec, "resources", "spec")
    if not mapping(resources, "limits", "spec.resources"):
        return
    containers = parse_containers(spec, "containers")
    init = parse_containers(spec, "initContainers")
    total = total_requests(
        (each.requests for each in containers), ((each.requests, each.sidecar) for each in init)
    )
    found, _ = parse_pod_level(spec, total)
    filled = {name: f"{amount}m" if name == CPU else f"{amount}" for name, amount in found.items()}
    given = mapping(resources, "requests", "spec.resources")
    spec["resources"] = {**resources, "requests": {**filled, **given}}


def _set_volumes(spec: dict[str, Any]) -> None:
    # As in pkg/apis/core/v1/defaults.go.
    if volumes := mappings(spec, "volumes", "spec"):
        spec["volumes"] = [
            each if each.keys() - {"name"} else {**each, "emptyDir": {}} for each in volumes
        ]


def _set_host_ports(spec: dict[str, Any]) -> None:
    # As in pkg/apis/core/v1/defaults.go.
    if not boolean(spec, "hostNetwork", "spec"):
        return
    for group in ("containers", "initContainers"):
        if group in spec:
            spec[group] = [
                {
                    **container,
                    "ports": [
                        {**port, "hostPort": port.get("hostPort") or port.get("containerPort")}
                        for port in mappings(container, "ports", f"spec.{group}[{index}]")
                    ],
                }
                for index, container in enumerate(mappings(spec, group, "spec"))
            ]
