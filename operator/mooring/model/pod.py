"""The fields of a pod that scheduling decisions read."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NewType

from mooring.claims.model.resource_claims import (
    ExtendedResourceClaim,
    parse_claim_statuses,
    parse_extended_resource_claim,
)
from mooring.model.fields import (
    integer,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    required,
    strings,
    text,
    timestamp,
)
from mooring.model.limits import Counted, exceeded
from mooring.model.pod_spec import PodSpec, pod_spec
from mooring.model.shared_values import FrozenDict, Sharing, shared_strings, shared_text
from mooring.pausing import pause
from mooring.volumes.model.pod_volumes import PodVolume, has_local_storage, pod_volumes

Uid = NewType("Uid", str)

_DEFAULT_GRACE: Final = 30
_NO_CLAIMS: Final[Mapping[str, str | None]] = MappingProxyType({})
_MANY_STRINGS: Final = 2000
"""Other tasks may run after more labels or annotations than this; reading so many takes 1 ms."""
_START_SECONDS: Final = 60
"""The seconds allowed for a pod's binding and start, and for the end of its containers."""


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller of a pod, from its ownerReferences."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    """The controller's API version; "" if a manifest leaves it out."""


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """The fields of a pod that decisions read.

    Times are in seconds since the epoch. `nominated_node` and `node_name` are None if not set.
    `disrupted` is True if the pod has the condition DisruptionTarget=True with the reason
    PreemptionByScheduler, `evicted` if that reason is EvictionByEvictionAPI.
    """

    key: str
    namespace: str
    uid: Uid
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: PodSpec
    created: float
    started: float | None
    node_name: str | None
    nominated_node: str | None
    terminating: bool
    disrupted: bool
    evicted: bool
    phase: str
    owner: OwnerRef | None
    volumes: tuple[PodVolume, ...]
    unscheduled_message: str | None
    """The message of the condition PodScheduled=False; None if the pod does not have it."""
    unscheduled_reason: str | None = None
    """The reason of the condition PodScheduled=False; None if the pod does not have it."""
    generation: int = 0
    """`metadata.generation`; 0 if the object has none."""
    version: str = ""
    """`metadata.resourceVersion` of a pod without a node; "" for a pod on a node."""
    scheduling_group: str | None = None
    """The PodGroup of scheduling.k8s.io that `spec.schedulingGroup` names, None without one."""
    active_deadline_seconds: int | None = None
    """The most seconds that the pod may run (activeDeadlineSeconds); None without a limit."""
    termination_grace_period_seconds: int = _DEFAULT_GRACE
    claim_names: Mapping[str, str | None] = field(default_factory=lambda: _NO_CLAIMS)
    """Maps an entry of resourceClaims to the claim made from its template; None: no claim was
    needed."""
    extended_resource_claim: ExtendedResourceClaim | None = None
    """The claim that a scheduler created for the pod's extended resources; None without such a
    claim."""
    local_storage: bool = False
    """Whether the pod has a hostPath or an emptyDir on disk, whose data stays on the node."""
    ready: bool = False
    """Whether the pod has the condition Ready=True."""

    @property
    def name(self) -> str:
        """The pod's name: the part of `key` after the slash."""
        return self.key[len(self.namespace) + 1 :]

    @property
    def finished(self) -> bool:
        """Whether the pod has ended and no longer uses resources."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def longest_run(self) -> int | None:
        """The most seconds from the pod's start to its end; None if the pod may run for ever."""
        if self.active_deadline_seconds is None:
            return None
        return self.active_deadline_seconds + self.termination_grace_period_seconds

    def ends_by(self, now: float) -> float:
        """Return when the pod ends at the latest if it is bound at `now`.

        Both times are in seconds since the epoch. Returns infinity if the pod's run time has no
        limit.
        """
        longest = self.longest_run
        # _START_SECONDS are for binding, start and end.
        return math.inf if longest is None else now + _START_SECONDS + longest

    @property
    def limit_exceeded(self) -> str | None:
        """A sentence about the limit of `mooring.model.limits` that the pod exceeds, or None."""
        counts = {Counted.LABELS: len(self.labels), Counted.VOLUMES: len(self.volumes)}
        return self.spec.limit_exceeded or exceeded(counts)


@naming_the_object("Pod")
def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Parse a Pod; raise ManifestError if a field is malformed.

    Other tasks may run while a large pod is parsed.
    """
    # A pod may be 2 MB long, and parsing 1 MB takes 0.1 to 0.3 s.
    namespace, name = shared_text(namespace_of(raw)), name_of(raw)
    metadata, spec, status = raw["metadata"], required(raw, "spec"), mapping(raw, "status")
    node_name = shared_text(text(spec, "nodeName", "spec")) or None
    conditions = mappings(status, "conditions", "status")
    unscheduled, disruption = _conditions(conditions)
    labels, annotations = _labels_and_annotations(metadata)
    parsed_spec = pod_spec(namespace, spec, status, annotations, assigned=node_name is not None)
    group = mapping(spec, "schedulingGroup", "spec")
    grace = integer(spec, "terminationGracePeriodSeconds", "spec")
    return Pod(
        key=f"{namespace}/{name}",
        namespace=namespace,
        uid=Uid(text(metadata, "uid", "metadata")),
        labels=labels,
        annotations=annotations,
        spec=parsed_spec,
        created=timestamp(metadata, "creationTimestamp", "metadata") or 0.0,
        started=timestamp(status, "startTime", "status"),
        node_name=node_name,
        nominated_node=text(status, "nominatedNodeName", "status") or None,
        terminating=metadata.get("deletionTimestamp") is not None,
        disrupted=disruption == "PreemptionByScheduler",
        evicted=disruption == "EvictionByEvictionAPI",
        phase=shared_text(text(status, "phase", "status") or "Pending"),
        owner=_controller(mappings(metadata, "ownerReferences", "metadata")),
        volumes=pod_volumes(raw),
        unscheduled_message=unscheduled[1] if unscheduled is not None else None,
        unscheduled_reason=unscheduled[0] if unscheduled is not None else None,
        generation=integer(metadata, "generation", "metadata") or 0,
        version="" if node_name else text(metadata, "resourceVersion", "metadata"),
        scheduling_group=text(group, "podGroupName", "spec.schedulingGroup") or None,
        active_deadline_seconds=integer(spec, "activeDeadlineSeconds", "spec"),
        termination_grace_period_seconds=_DEFAULT_GRACE if grace is None else grace,
        claim_names=parse_claim_statuses(status) or _NO_CLAIMS,
        extended_resource_claim=parse_extended_resource_claim(status),
        local_storage=has_local_storage(raw),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
    )


def _labels_and_annotations(metadata: Mapping[str, Any]) -> tuple[FrozenDict, FrozenDict]:
    labels = shared_strings(strings(metadata, "labels", "metadata"))
    if len(labels) > _MANY_STRINGS:
        pause()
    annotations = shared_strings(strings(metadata, "annotations", "metadata"))
    if len(annotations) > _MANY_STRINGS:
        pause()
    return labels, annotations


def _conditions(
    raw: Iterable[Mapping[str, Any]],
) -> tuple[tuple[str, str] | None, object]:
    unscheduled, disruption = None, None
    for index, condition in enumerate(raw):
        kind, status = condition.get("type"), condition.get("status")
        if kind == "PodScheduled" and status == "False":
            where = f"status.conditions[{index}]"
            unscheduled = text(condition, "reason", where), text(condition, "message", where)
        elif kind == "DisruptionTarget" and status == "True":
            disruption = condition.get("reason")
    return unscheduled, disruption


def claim_keys(pod: Pod) -> list[str]:
    """Return namespace/name of each claim that the pod names or that its templates created."""
    names = (entry.claim or pod.claim_names.get(entry.name) for entry in pod.spec.resource_claims)
    return [f"{pod.namespace}/{name}" for name in names if name]


def workload_of(pod: Pod) -> tuple[str, str]:
    """Return kind and name of the pod's Deployment, else of its controller, else of the pod."""
    owner = pod.owner
    if owner is None:
        return "Pod", pod.name
    template = pod.labels.get("pod-template-hash")
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return "Deployment", owner.name.removesuffix(f"-{template}")
    return owner.kind, owner.name


def is_of_workload(pod: Pod, kind: str, name: str) -> bool:
    """Return whether this workload is the pod's owner, or the owner's Deployment or CronJob."""
    owner = pod.owner
    if owner is None:
        return False
    if kind == "CronJob":
        begin, _, number = owner.name.rpartition("-")
        return owner.kind == "Job" and begin == name and number.isdecimal()
    return (kind, name) in ((owner.kind, owner.name), workload_of(pod))


def _controller(raw: Iterable[Mapping[str, Any]]) -> OwnerRef | None:
    for index, owner in enumerate(raw):
        if owner.get("controller"):
            where = f"metadata.ownerReferences[{index}]"
            return _shared_owner(
                text(owner, "kind", where),
                text(owner, "name", where),
                text(owner, "uid", where),
                text(owner, "apiVersion", where),
            )
    return None


_OWNERS: Final[Sharing[tuple[str, str, str, str], OwnerRef]] = Sharing(
    8 * 2**20, lambda key: _OWNER_BYTES + 4 * sum(map(len, key))
)
_OWNER_BYTES: Final = 512
"""The estimated bytes of an OwnerRef and its cache entry, without the characters of its strings."""


def _shared_owner(kind: str, name: str, uid: str, api_version: str) -> OwnerRef:
    key = kind, name, uid, api_version
    owner = _OWNERS.get(key)
    if owner is None:
        owner = OwnerRef(shared_text(kind), name, uid, shared_text(api_version))
        _OWNERS.put(key, owner)
    return owner
