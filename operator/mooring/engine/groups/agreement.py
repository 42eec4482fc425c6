"""Says whether the members of a group agree with it and with each other."""

from collections.abc import Iterable
from itertools import chain

from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.pod import Pod
from mooring.model.pod_group import GroupSource
from mooring.state.pod_groups import PodGroupState

__all__ = ["disagreement"]


def disagreement(
    group: PodGroupState, pods: Iterable[Pod], kubernetes: KubernetesRules
) -> str | None:
    """Return in which way these members or those on nodes differ from the group; None if in none.

    See validatePodGroup in kube-scheduler's schedule_one_podgroup.go.
    """
    definition = group.definition
    if definition is None or group.key.source is not GroupSource.KUBERNETES:
        return None
    if not kubernetes.group_members_agree:
        return None
    priority, preempts = definition.priority or 0, definition.preempts
    whose = " as the pod group's preemption policy" if preempts is not None else ""
    on_nodes = (placed.pod for placed in chain(group.assumed.values(), group.assigned.values()))
    for spec in dict.fromkeys(pod.spec for pod in chain(pods, on_nodes)):
        if spec.priority != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {spec.priority} and {priority}"
            )
        preempts = spec.preempts if preempts is None else preempts
        if spec.preempts is not preempts:
            return (
                f"all pods in a single pod group should have the same preemption policy{whose}, "
                f"got {_policy(spec.preempts)} and {_policy(preempts)}"
            )
    return None


def _policy(spec_preempts: object) -> str:
    return "PreemptLowerPriority" if spec_preempts else "Never"
