"""Pods with resource claims (dynamicresources/).

Mooring does not allocate devices by ResourceClaim: a pod that has any is refused with a reason. For
all other pods this says after a failed search what upstream's plugin says, so that messages agree.
"""

from typing import ClassVar

from mooring.framework.attempt import Attempt
from mooring.framework.handle import Handle
from mooring.framework.verdicts import SKIP, Refused, Skip
from mooring.model.changes import Action, Change, Kind
from mooring.model.pod import Pod
from mooring.policy.args import DynamicResourcesArgs
from mooring.state.snapshot import Snapshot

__all__ = ["DynamicResources"]


class DynamicResources:
    """Refuses pods with resource claims."""

    name: ClassVar[str] = "DynamicResources"
    row_local: ClassVar[bool] = False
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    wakes_on: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset()

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: Snapshot) -> Skip | Refused:
        """Placing such a pod without its devices would be worse than not placing it."""
        if pod.shape.claims_devices:
            return Refused("pod has resource claims, which Mooring does not allocate")
        return SKIP

    def cures(self, _pod: Pod, _change: Change, _cluster: Snapshot) -> bool:
        """Nothing does."""
        return False

    def post_filter(self, attempt: Attempt) -> Refused:
        """There is never a claim to deallocate.

        If another plugin's pre_filter has refused the pod, upstream's never ran and its post-filter
        fails with the error text for missing state, which is what users see there.
        """
        if attempt.diagnosis.pre_filter is not None:
            return Refused("not found")
        return Refused("no new claims to deallocate", resolvable=True)
