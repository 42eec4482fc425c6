"""Objects as users write them in YAML or JSON, before an API server has stored them."""

import json
from collections.abc import Iterable
from typing import Any, Final

import yaml

GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""The label that names a pod's group."""


def new(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the object without the fields that an API server adds."""
    metadata = {k: v for k, v in raw["metadata"].items() if k in ("name", "namespace", "labels")}
    return {**{k: v for k, v in raw.items() if k != "status"}, "metadata": metadata}


class _WithoutAliases(yaml.SafeDumper):
    """A YAML dumper that writes repeated values in full, as kubectl does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def text(*objects: dict[str, Any]) -> str:
    return yaml.dump_all((new(each) for each in objects), Dumper=_WithoutAliases)


def listed(objects: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})


def deployment(name: str, replicas: int, cpu: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def gang(name: str, minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum},
    }
