"""What a post-filter plugin is given when no node fits, and what it may answer."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from mooring.framework.diagnosis import Diagnosis
from mooring.model.pod import Pod
from mooring.policy.profile import Preemption
from mooring.state.cluster import Trial
from mooring.state.snapshot import Snapshot

__all__ = ["DryRun", "Nomination", "NotEligible", "PostFilterState"]


class DryRun(Protocol):
    """Questions about a cluster that differs from the real one."""

    resource_requests: Mapping[str, int] | None
    """Where only the pods' requests can be in the pod's way: what must be free, beside a slot.

    Then counting answers what `rejection` would answer after a trial. None: other filters of
    this pod depend on other pods too.
    """

    def trial(self) -> AbstractContextManager[Trial]:
        """Inside, pods may be taken away and put somewhere; afterwards nothing has happened."""

    def rejection(self, row: int) -> tuple[str, ...]:
        """Why the pod cannot go to the row now, nominated pods counted; () if it can."""


@dataclass(frozen=True, slots=True, eq=False)
class PostFilterState:
    """A pod that fits nowhere, and why; `now` is in seconds since the epoch."""

    pod: Pod
    diagnosis: Diagnosis
    cluster: Snapshot
    dry_run: DryRun
    limits: Preemption
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Nomination:
    """Room is made on `node` if the victims leave.

    `strict` says that they must leave by the Eviction API, which respects every budget.
    """

    node: str
    victims: tuple[Pod, ...]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class NotEligible:
    """The plugin does not even look, for this reason; a nomination the pod has stays as it is."""

    reason: str
