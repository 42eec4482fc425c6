"""Makes the pods that kube-controller-manager would make for new objects.

An object without `metadata.uid` is new, because no API server has stored it. The pods of a stored
object exist already, or the object's controller has a reason not to make pods.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import count
from typing import Any, Final

import orjson

from mooring.model.fields import boolean, integer, mapping, mappings, name_of, namespace_of, text
from mooring.model.manifest_error import ManifestError
from mooring.model.node import Node
from mooring.model.pod import Pod, parse_pod
from mooring.model.selectors import parse_label_selector
from mooring.model.taints import repelled
from mooring.simulate.manifests import Manifest

Raw = dict[str, Any]

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters for the ends of generated names (apimachinery, util/rand)."""
_MOST_PODS: Final = 1_000_000
"""The most pods of a controller; more are a mistake, because the simulation would not end."""
_SUFFIX: Final = 5
_LONGEST_BASE: Final = 63 - _SUFFIX
"""The most characters of a name before its generated end; the rest is cut off (apiserver,
storage/names)."""
_POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was made for a pod; its value is the entry in `resourceClaims`."""
_DAEMON_TOLERATIONS: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The tolerations of every pod of a DaemonSet (controller/daemon/util, daemonset_util.go)."""
_NETWORK_UNAVAILABLE: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def is_new(raw: Mapping[str, Any]) -> bool:
    """Return whether no API server has stored the object."""
    return not mapping(raw, "metadata").get("uid")


def generated_names(base: str, seed: list[str], first: int = 0, step: int = 1) -> Iterator[str]:
    """Yield names as for the generateName `base`: `base` and a suffix.

    Each suffix is a hash of `seed` and a number: `first`, `first + step`, and so on.
    """
    return (
        base[:_LONGEST_BASE] + _digest([*seed, number])[:_SUFFIX] for number in count(first, step)
    )


def ephemeral_claims(pod: Raw) -> Iterator[Raw]:
    """Yield the claims that the controller makes for the pod's ephemeral volumes."""
    for volume in mappings(mapping(pod, "spec"), "volumes", "spec"):
        ephemeral = mapping(volume, "ephemeral", "spec.volumes")
        if ephemeral:
            name = f"{name_of(pod)}-{volume.get('name')}"
            body = _body(mapping(ephemeral, "volumeClaimTemplate", "spec.volumes.ephemeral"))
            claim = _made("v1", "PersistentVolumeClaim", name, pod, **body)
            claim["metadata"]["ownerReferences"][0]["uid"] = pod["metadata"]["uid"]
            yield claim


def device_claims(
    owner: Raw, templates: Mapping[str, Raw], taken: Container[str]
) -> Iterator[tuple[str, Raw]]:
    """Yield the name of an entry in `resourceClaims` and the claim made from its template.

    `owner` is a pod or PodGroup. Templates and existing claims (`taken`) have keys
    "namespace/name".
    """
    namespace = namespace_of(owner)
    for entry in mappings(mapping(owner, "spec"), "resourceClaims", "spec"):
        template = templates.get(f"{namespace}/{entry.get('resourceClaimTemplateName')}")
        if template is None:
            continue
        name = str(entry.get("name"))
        body = _body(mapping(template, "spec"))
        body["annotations"] = {**body["annotations"], _POD_CLAIM_NAME: name}
        seed = ["ResourceClaim", namespace, name_of(owner), name]
        names = generated_names(f"{name_of(owner)}-{name}-", seed)
        made = next(each for each in names if f"{namespace}/{each}" not in taken)
        claim = _made("resource.k8s.io/v1", "ResourceClaim", made, owner, **body)
        claim["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
        yield name, claim


class Controllers:
    """Makes the missing pods of new Deployments, StatefulSets, Jobs and other controllers.

    Args:
        pods: The pods that exist. A controller's own pods count towards its replicas.
        deployments: The Deployment of each ReplicaSet that exists, by namespace and name.
        claims: The keys of the PersistentVolumeClaims that exist.
        nodes: The nodes, on which DaemonSets run.
    """

    def __init__(
        self,
        pods: Iterable[Pod],
        deployments: Mapping[tuple[str, str], str],
        claims: Iterable[str],
        nodes: Iterable[Node],
    ) -> None:
        living = [pod for pod in pods if not (pod.finished or pod.terminating)]
        self._keys = {pod.key for pod in living}
        self._owned = Counter((pod.namespace, *_owner(pod)) for pod in living)
        self._nodes_of = {(pod.namespace, *_owner(pod), pod.node_name) for pod in living}
        for (namespace, replica_set), deployment in deployments.items():
            pods_of_set = self._owned[namespace, "ReplicaSet", replica_set]
            self._owned[namespace, "Deployment", deployment] += pods_of_set
        self._claims = {*claims}
        self._nodes = sorted(nodes, key=lambda node: node.name)

    def expand(self, manifest: Manifest) -> Iterator[Manifest]:
        """Yield the pods, claims and other objects that controllers create for this object.

        Raises InputError if the API server would reject the object's selector or template.
        """
        try:
            for raw in _EXPANSIONS[manifest.group, manifest.kind](self, manifest.raw):
                source = f"{manifest.source}, {manifest.kind} {name_of(manifest.raw)}"
                yield Manifest(source, raw)
        except ManifestError as error:
            name = mapping(manifest.raw, "metadata").get("name") or "(no name)"
            raise manifest.error(error.under(f"{manifest.kind} {name}")) from None

    def _deployment(self, raw: Raw) -> Iterator[Raw]:
        spec, template = _checked(raw)
        digest = _digest(template)[:10]
        template = _labelled(template, {"pod-template-hash": digest})
        selector = mapping(spec, "selector", "spec")
        labels = {**mapping(selector, "matchLabels", "spec.selector"), "pod-template-hash": digest}
        replica_set = _made(
            "apps/v1",
            "ReplicaSet",
            f"{name_of(raw)}-{digest}",
            raw,
            labels=template["metadata"]["labels"],
            spec={
                "replicas": self._missing(raw, _replicas(spec)),
                "selector": {**selector, "matchLabels": labels},
                "template": template,
            },
        )
        yield replica_set
        yield from self._replica_set(replica_set)

    def _replica_set(self, raw: Raw) -> Iterator[Raw]:
        spec, template = _checked(raw)
        for number in range(self._missing(raw, _replicas(spec))):
            yield _pod(self._generated(f"{name_of(raw)}-", raw, number), raw, template)

    def _replication_controller(self, raw: Raw) -> Iterator[Raw]:
        spec = mapping(raw, "spec")
        template = _template(spec)
        for number in range(self._missing(raw, _replicas(spec))):
            yield _pod(self._generated(f"{name_of(raw)}-", raw, number), raw, template)

    def _stateful_set(self, raw: Raw) -> Iterator[Raw]:
        """Yield the StatefulSet's missing pods, each after the missing claims for its volumes."""
        spec, template = _checked(raw)
        name, revision = name_of(raw), _digest(template)[:10]
        claims = [dict(claim) for claim in mappings(spec, "volumeClaimTemplates", "spec")]
        start = integer(mapping(spec, "ordinals", "spec"), "start", "spec.ordinals") or 0
        for ordinal in range(start, start + _replicas(spec)):
            pod = f"{name}-{ordinal}"
            if f"{namespace_of(raw)}/{pod}" in self._keys:
                continue
            made = [
                _made("v1", "PersistentVolumeClaim", f"{name_of(claim)}-{pod}", raw, **_body(claim))
                for claim in claims
            ]
            for claim in made:
                del claim["metadata"]["ownerReferences"]
                key = f"{namespace_of(raw)}/{name_of(claim)}"
                if key not in self._claims:
                    self._claims.add(key)
                    yield claim
            labels = {
                "statefulset.kubernetes.io/pod-name": pod,
                "apps.kubernetes.io/pod-index": str(ordinal),
                "controller-revision-hash": f"{name}-{revision}",
            }
            yield _with_claims(
                _pod(pod, raw, _labelled(template, labels)),
                {name_of(claim): f"{name_of(claim)}-{pod}" for claim in claims},
            )

    def _daemon_set(self, raw: Raw) -> Iterator[Raw]:
        """Yield a pod for each node where the DaemonSet lacks one (daemon_controller.go)."""
        _, template = _checked(raw)
        owner = (namespace_of(raw), "DaemonSet", name_of(raw))
        pod_spec = dict(mapping(template, "spec", "spec.template"))
        keys = [*_DAEMON_TOLERATIONS]
        if boolean(pod_spec, "hostNetwork", "spec.template.spec"):
            keys.append(_NETWORK_UNAVAILABLE)
        pod_spec["tolerations"] = [
            *mappings(pod_spec, "tolerations", "spec.template.spec"),
            *({"key": key, "operator": "Exists", "effect": effect} for key, effect in keys),
        ]
        template = _labelled(template, {"controller-revision-hash": _digest(template)[:10]})
        template["spec"] = pod_spec
        tried = parse_pod(_pod(name_of(raw), raw, template))
        for number, node in enumerate(self._nodes):
            if (
                tried.node_name in (None, node.name)
                and tried.spec.selects(node)
                and not repelled(node.taints, tried.spec.tolerations)
                and (*owner, node.name) not in self._nodes_of
            ):
                name = self._generated(f"{name_of(raw)}-", raw, number)
                yield _on_node(_pod(name, raw, template), node.name)

    def _job(self, raw: Raw) -> Iterator[Raw]:
        spec = mapping(raw, "spec")
        template = _template(spec)
        policy = text(mapping(template, "spec"), "restartPolicy", "spec.template.spec")
        if policy not in ("Never", "OnFailure"):
            raise ManifestError("spec.template.spec.restartPolicy", "must be Never or OnFailure")
        if boolean(spec, "suspend", "spec"):
            return
        wanted, completions = _pods(spec, "parallelism"), integer(spec, "completions", "spec")
        if completions is not None:
            wanted = min(wanted, completions)
        name = name_of(raw)
        own = {"job-name": name, "batch.kubernetes.io/job-name": name}
        template = _labelled(template, own)
        if text(spec, "completionMode", "spec") != "Indexed":
            for number in range(self._missing(raw, wanted)):
                yield _pod(self._generated(f"{name}-", raw, number), raw, template)
            return
        for index in range(self._missing(raw, wanted)):
            key = "batch.kubernetes.io/job-completion-index"
            indexed = _labelled(template, {key: str(index)})
            end = f"-{index}-"
            made = self._generated(name[: _LONGEST_BASE - len(end)] + end, raw, index)
            pod = _pod(made, raw, indexed)
            pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], key: str(index)}
            yield pod

    def _cron_job(self, raw: Raw) -> Iterator[Raw]:
        spec = mapping(raw, "spec")
        template = mapping(spec, "jobTemplate", "spec")
        if boolean(spec, "suspend", "spec"):
            return
        # In a cluster it ends with the minute, since 1970, for which the Job was scheduled.
        job = _made("batch/v1", "Job", f"{name_of(raw)}-00000000", raw, **_body(template))
        yield from self._job(job)

    def _generated(self, base: str, owner: Raw, number: int) -> str:
        namespace = namespace_of(owner)
        names = generated_names(base, [owner["kind"], namespace, name_of(owner)], number, 2**32)
        # Of 5,000 random endings, two would probably be equal.
        name = next(each for each in names if f"{namespace}/{each}" not in self._keys)
        self._keys.add(f"{namespace}/{name}")
        return name

    def _missing(self, raw: Raw, wanted: int) -> int:
        return max(0, wanted - self._owned[namespace_of(raw), str(raw["kind"]), name_of(raw)])


_EXPANSIONS: Final[Mapping[tuple[str, str], Callable[[Controllers, Raw], Iterator[Raw]]]] = {
    ("apps", "Deployment"): Controllers._deployment,  # noqa: SLF001 - the class's own table
    ("apps", "ReplicaSet"): Controllers._replica_set,  # noqa: SLF001 - as above
    ("", "ReplicationController"): Controllers._replication_controller,  # noqa: SLF001 - as above
    ("apps", "StatefulSet"): Controllers._stateful_set,  # noqa: SLF001 - as above
    ("apps", "DaemonSet"): Controllers._daemon_set,  # noqa: SLF001 - as above
    ("batch", "Job"): Controllers._job,  # noqa: SLF001 - as above
    ("batch", "CronJob"): Controllers._cron_job,  # noqa: SLF001 - as above
}

CONTROLLERS: Final = frozenset(_EXPANSIONS)
"""The API groups and kinds of the objects for which this module makes pods."""


def _owner(pod: Pod) -> tuple[str, str]:
    """Return kind and name of the built-in controller that owns the pod, or two empty texts."""
    owner = pod.owner
    if owner is None:
        return "", ""
    is_ours = not owner.api_version or (
        (owner.api_version.rpartition("/")[0], owner.kind) in _EXPANSIONS
    )
    return (owner.kind, owner.name) if is_ours else ("", "")


def _replicas(spec: Mapping[str, Any]) -> int:
    return _pods(spec, "replicas")


def _pods(spec: Mapping[str, Any], field: str) -> int:
    wanted = integer(spec, field, "spec")
    if wanted is not None and wanted > _MOST_PODS:
        raise ManifestError(f"spec.{field}", f"must be at most {_MOST_PODS:,} in a simulation")
    return 1 if wanted is None else wanted


def _template(spec: Mapping[str, Any]) -> Raw:
    return dict(mapping(spec, "template", "spec"))


def _checked(raw: Raw) -> tuple[Mapping[str, Any], Raw]:
    """Return a controller's spec and pod template; raise ManifestError if its selector is wrong."""
    spec = mapping(raw, "spec")
    template = _template(spec)
    selector = parse_label_selector(mapping(spec, "selector", "spec"), "spec.selector")
    labels = mapping(mapping(template, "metadata", "spec.template"), "labels")
    if selector is None or selector.empty or not selector.matches(labels):
        where = "spec.selector" if selector is None or selector.empty else "spec.template.metadata"
        problem = "is empty; it must select the labels of spec.template.metadata"
        if where != "spec.selector":
            problem = "has labels that spec.selector does not match"
        raise ManifestError(where, problem)
    return spec, template


def _labelled(template: Raw, labels: Mapping[str, str]) -> Raw:
    metadata = mapping(template, "metadata", "spec.template")
    merged = {**mapping(metadata, "labels", "spec.template.metadata"), **labels}
    return {**template, "metadata": {**metadata, "labels": merged}}


def _body(template: Raw | Mapping[str, Any]) -> Raw:
    metadata = mapping(template, "metadata")
    return {
        "labels": mapping(metadata, "labels"),
        "annotations": mapping(metadata, "annotations"),
        "spec": dict(mapping(template, "spec")),
    }


def _made(
    api_version: str,
    kind: str,
    name: str,
    owner: Raw,
    *,
    spec: Raw,
    labels: Mapping[str, Any],
    annotations: Mapping[str, Any] | None = None,
) -> Raw:
    """Return a new object that `owner` controls, in the namespace of `owner`."""
    reference = {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": f"{owner['kind']}/{namespace_of(owner)}/{name_of(owner)}",
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": namespace_of(owner),
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
        "ownerReferences": [reference],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(name: str, owner: Raw, template: Raw) -> Raw:
    return _made("v1", "Pod", name, owner, **_body(template))


def _with_claims(pod: Raw, claims: Mapping[str, str]) -> Raw:
    """Return the pod with a volume for each item of `claims` (volume name to claim name)."""
    others = [
        volume
        for volume in mappings(pod["spec"], "volumes", "spec")
        if volume.get("name") not in claims
    ]
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in claims.items()
    ]
    return {**pod, "spec": {**pod["spec"], "volumes": [*volumes, *others]}}


def _on_node(pod: Raw, node: str) -> Raw:
    # As in daemonset_util.go.
    affinity = dict(mapping(pod["spec"], "affinity", "spec"))
    node_affinity = dict(mapping(affinity, "nodeAffinity", "spec.affinity"))
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchFields": [field]}]
    }
    affinity["nodeAffinity"] = node_affinity
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def _digest(value: Any) -> str:
    return "".join(
        _ALPHABET[byte % len(_ALPHABET)] for byte in sha256(orjson.dumps(value)).digest()
    )
