"""Documents of policies: profiles of Mooring, and configurations of kube-scheduler."""

from collections.abc import Mapping
from typing import Any


def profile(name: str, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a SchedulingProfile, with this in its metadata beside the name."""
    return {
        "apiVersion": "scheduling.mooring.dev/v1alpha1",
        "kind": "SchedulingProfile",
        "metadata": {"name": name, **(metadata or {})},
        "spec": spec,
    }


def kube_configuration(**fields: Any) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration of version v1."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **fields,
    }
