"""Queues of other schedulers as in files, and the Queues that Mooring makes from them."""

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.policy.imports.queues import QueueImport
from mooring.quota.model.elastic_quota import KOORDINATOR


def queue_object(api: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return an object; `api` is its apiVersion and kind, as in `kueue.x-k8s.io/v1beta2 Cohort`."""
    version, _, kind = api.partition(" ")
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": dict(spec),
    }


def elastic_quota(namespace: str, name: str = "quota", **spec: Any) -> dict[str, Any]:
    """Return an ElasticQuota of scheduler-plugins."""
    api = "scheduling.x-k8s.io/v1alpha1 ElasticQuota"
    return queue_object(api, name, spec, namespace=namespace, uid=f"uid-{namespace}-{name}")


def koordinator_quota(
    name: str,
    parent: str = "",
    *,
    namespace: str = "kube-system",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return an ElasticQuota of Koordinator; labels and annotations get Koordinator's prefix."""
    raw = elastic_quota(namespace, name, **spec)
    raw["apiVersion"] = "scheduling.sigs.k8s.io/v1alpha1"
    for field, fields in (
        ("labels", {"parent": parent, **(labels or {})}),
        ("annotations", annotations),
    ):
        raw["metadata"][field] = {
            f"{KOORDINATOR}{key}": value for key, value in (fields or {}).items()
        }
    return raw


def node(name: str, **allocatable: str) -> dict[str, Any]:
    """Return a Node with these allocatable amounts; `gpu` stands for nvidia.com/gpu."""
    names = {"gpu": "nvidia.com/gpu"}
    amounts = {names.get(resource, resource): amount for resource, amount in allocatable.items()}
    status = {"allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def imported(objects: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the specs of the Queues made from the objects, by name, and the notes for the user."""
    reader = QueueImport()
    for raw in objects:
        assert reader.read(raw["apiVersion"].rpartition("/")[0], raw["kind"], raw)
    return {raw["metadata"]["name"]: raw["spec"] for raw in reader.manifests()}, reader.notes


def quotas(spec: Mapping[str, Any]) -> dict[str, tuple[str | None, ...]]:
    """Return nominalQuota, borrowingLimit and lendingLimit of each resource of a Queue."""
    fields = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return {one["name"]: tuple(map(one.get, fields)) for one in spec.get("resources", ())}
