"""Makes the objects of an operation from the templates of its workload."""

from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import yaml

from bench.scheduler_perf.reading import Operation, read_template

Raw = dict[str, Any]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PAUSE: Final = "registry.k8s.io/pause:3.10"
_NODE_RESOURCES: Final = {"pods": "110", "cpu": "4", "memory": "32Gi"}
_POD_RESOURCES: Final = {"cpu": "100m", "memory": "500Mi"}


def rendered(path: Path, params: Mapping[str, Any] | None, count: int) -> Iterator[Raw]:
    """Yield an object for each index; some may be identical, so callers must not change them."""
    template = read_template(path)
    found: Raw | None = None
    for index in range(count):
        if found is None or template.depends_on_index:
            text = template.render({**(params or {}), "Index": index, "Count": count})
            found = yaml.load(text, _LOADER)  # noqa: S506 - one of the safe loaders
        yield found


def named_nodes(operation: Operation, folder: Path, number: int) -> Iterator[Raw]:
    """Yield the nodes of operation number `number`, under names that are known in advance."""
    fields = operation.fields
    path = fields.get("nodeTemplatePath")
    params = fields.get("templateParams")
    plain = _plain_node(f"node-{number}-")
    bases = rendered(folder / path, params, operation.count) if path else [plain] * operation.count
    labelled = fields.get("labelNodePrepareStrategy", {})
    values = cycle(labelled.get("labelValues", [None]))
    unique = fields.get("uniqueNodeLabelStrategy", {}).get("labelKey")
    allocatable = (fields.get("nodeAllocatableStrategy") or {}).get("nodeAllocatable")
    for index, (base, value) in enumerate(zip(bases, values, strict=False)):
        metadata = base["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{number}-{index:05}"
        labels = {**(metadata.get("labels") or {}), "kubernetes.io/hostname": name}
        if labelled:
            labels[labelled["labelKey"]] = value
        if unique:
            labels[unique] = name
        node = {**base, "metadata": {**metadata, "name": name, "labels": labels}}
        if allocatable:
            status = node["status"]
            before = status.get("allocatable") or status["capacity"]
            node["status"] = {**status, "allocatable": {**before, **allocatable}}
        yield node


def csi_node(operation: Operation, node: str) -> Raw | None:
    """Return the node's CSINode if the operation has CSI drivers, else None."""
    strategy = operation.fields.get("nodeAllocatableStrategy") or {}
    drivers = strategy.get("csiNodeAllocatable") or {}
    if not drivers:
        return None
    plugins = ",".join(strategy.get("migratedPlugins") or ())
    return {
        "metadata": {
            "name": node,
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": plugins},
        },
        "spec": {
            "drivers": [
                {"name": name, "nodeID": node, "allocatable": amount}
                for name, amount in drivers.items()
            ]
        },
    }


def pods(operation: Operation, folder: Path, default: str | None, scheduler: str) -> Iterator[Raw]:
    """Yield the operation's pods with this scheduler's name."""
    fields = operation.fields
    path = fields.get("podTemplatePath") or default
    if not path:
        for _ in range(operation.count):
            yield for_scheduler(_plain_pod(), scheduler)
        return
    batch = fields.get("signatureBatchSize") or 1
    found = rendered(folder / path, fields.get("templateParams"), operation.count)
    for index, pod in enumerate(found):
        metadata = pod.get("metadata") or {}
        labels = {
            **(metadata.get("labels") or {}),
            "signature": f"signature-label-{index // batch}",
        }
        yield for_scheduler({**pod, "metadata": {**metadata, "labels": labels}}, scheduler)


def for_scheduler(pod: Raw, scheduler: str) -> Raw:
    """Return the pod with the scheduler's name, unless it has one."""
    return {**pod, "spec": {"schedulerName": scheduler, **pod["spec"]}}


def volumes(operation: Operation, folder: Path, namespace: str) -> Iterator[tuple[Raw, Raw]]:
    """Yield a claim and its volume for each pod; none if the operation's pods have no volumes."""
    claim_path = operation.fields.get("persistentVolumeClaimTemplatePath")
    if not claim_path:
        return
    (claim,) = rendered(folder / claim_path, None, 1)
    (volume,) = rendered(folder / operation.fields["persistentVolumeTemplatePath"], None, 1)
    for index in range(operation.count):
        claim_name, name = f"pvc-{index}", f"{namespace}-vol-{index}"
        spec = {
            **volume["spec"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": claim_name,
            },
        }
        for source, key in (("csi", "volumeHandle"), ("awsElasticBlockStore", "volumeID")):
            if source in spec:
                spec[source] = {**spec[source], key: name}
        yield (
            {
                **claim,
                "metadata": {**(claim.get("metadata") or {}), "name": claim_name},
                "spec": {**claim["spec"], "volumeName": name},
            },
            {**volume, "metadata": {**(volume.get("metadata") or {}), "name": name}, "spec": spec},
        )


def with_claim(pod: Raw, index: int) -> Raw:
    """Return the pod with a volume for the claim that `volumes` yields for this index."""
    volume = {"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{index}"}}
    return {**pod, "spec": {**pod["spec"], "volumes": [volume]}}


def _plain_node(prefix: str) -> Raw:
    return {
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": _NODE_RESOURCES,
            "allocatable": _NODE_RESOURCES,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _plain_pod() -> Raw:
    container = {
        "name": "pause",
        "image": PAUSE,
        "ports": [{"containerPort": 80}],
        "resources": {"limits": _POD_RESOURCES, "requests": _POD_RESOURCES},
    }
    return {"metadata": {"generateName": "pod-"}, "spec": {"containers": [container]}}
