"""Finds decisions that may be wrong because a simulation runs no controllers."""

from collections.abc import Iterable, Iterator
from typing import Final

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.wording import listed
from mooring.state.cluster import ClusterState
from mooring.volumes.model.pod_volumes import ClaimVolume

_MOST_NAMED: Final = 3


def unplayed(
    state: ClusterState, pending: Iterable[Pod], without_status: Iterable[str]
) -> Iterator[str]:
    """Yield a note for each controller that a simulation lacks and that could change a decision.

    `without_status` has the keys of PodDisruptionBudgets without status.disruptionsAllowed.
    """
    budgets = [key for key in without_status if _selects_some(key, state)]
    if budgets:
        yield (
            "no disruption controller counts what budgets allow: "
            f"{listed(budgets, _MOST_NAMED)} without status.disruptionsAllowed allows no eviction, "
            "as for kube-scheduler"
        )
    claims = [*dict.fromkeys(key for pod in pending for key in _unbound(pod, state))]
    if claims:
        yield (
            f"no volume controller binds claims: {listed(claims, _MOST_NAMED)} stays unbound; a "
            "claim is bound with spec.volumeName and the annotation "
            'pv.kubernetes.io/bind-completed: "yes"'
        )


def _selects_some(key: str, state: ClusterState) -> bool:
    budget = state.objects.of(Kind.POD_DISRUPTION_BUDGET)[key]
    return budget.selector is not None and any(
        placed.pod.namespace == budget.namespace and budget.selector.matches(placed.pod.labels)
        for placed in state.pods
        if placed.pod.node_name is not None
    )


def _unbound(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yield the keys of the pod's claims that a volume controller would already have bound."""
    classes = state.objects.of(Kind.STORAGE_CLASS)
    for volume in pod.volumes:
        if isinstance(volume, ClaimVolume):
            key = f"{pod.namespace}/{volume.claim}"
            claim = state.objects.of(Kind.PERSISTENT_VOLUME_CLAIM).get(key)
            if claim is not None and not claim.bound:
                found = classes.get(claim.storage_class)
                if found is None or not found.waits_for_consumer or claim.volume_name:
                    yield key
