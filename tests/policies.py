"""Documents of policies: profiles of Mooring, and configurations of kube-scheduler."""

from collections.abc import Mapping
from typing import Any, Final

from mooring.framework.registry import NoArgs
from mooring.plugins import SHIPPED
from mooring.policy.defaults import KUBE_SCHEDULER_PLUGINS
from mooring.policy.reading import PolicyModel

KUBE_SCHEDULER_ARGS: Final[Mapping[str, type[PolicyModel]]] = {
    plugin.name: plugin.Args
    for plugin in SHIPPED
    if plugin.name in KUBE_SCHEDULER_PLUGINS - {"GangScheduling"}
    and getattr(plugin, "Args", NoArgs) is not NoArgs
}
"""The arguments of kube-scheduler's plugins, by plugin name; those of GangScheduling are ours."""


def profile(name: str, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a SchedulingProfile; `metadata` has fields besides the name."""
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
