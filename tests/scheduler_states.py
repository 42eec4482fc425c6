"""The state that the parts of the engine share, without a scheduling loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mooring.framework.registry import Registry
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.process.turn import Turn
from mooring.run.build import Options, build_scheduler_state
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import cluster
from mooring.testing.fakes import FakeApi

SHIPPED_ONLY: Final = Registry(SHIPPED, {})


def scheduler_state(
    *objects: Mapping[str, Any],
    registry: Registry = SHIPPED_ONLY,
    api: FakeApi | None = None,
    most_per_attempt: int | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> SchedulerState:
    """Return a scheduler state over these objects, without a profile in force and without pods.

    For `most_per_attempt` see `Evaluations`. By default its clock stands still.
    """
    return build_scheduler_state(
        cluster(*objects),
        api or FakeApi(),
        registry,
        options=Options(most_per_attempt=most_per_attempt),
        turn=Turn(),
        clock=clock,
        now=now,
        sleep=sleep,
    )


def put_profile(
    shared: SchedulerState,
    name: str = "default-scheduler",
    *,
    registry: Registry = SHIPPED_ONLY,
    **spec: Any,
) -> ActiveProfile:
    """Put the profile in force; `spec` is the spec that a user writes."""
    read_spec = read(SchedulingProfileSpec, spec, "spec")
    return shared.profiles.put(SchedulingProfile(name, read_spec), resolve(read_spec, registry))


class HeardReports(PodStatusReporter):
    """A reporter that writes nothing and keeps all reports, each with the pod's name."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.gates: list[tuple[str, str]] = []
        self.alone: list[tuple[str, str]] = []
        self.misspellings: list[tuple[str, str]] = []
        self.is_newest = True

    def error(self, pod: Pod, message: str, *_: object) -> None:
        self.errors.append((pod.name, message))

    def gated(self, pod: Pod, message: str) -> None:
        self.gates.append((pod.name, message))

    def no_profile(self, pod: Pod, message: str) -> None:
        self.alone.append((pod.name, message))

    def misspelt(self, pod: Pod, message: str) -> None:
        self.misspellings.append((pod.name, message))

    def is_nominated_by_status(self, _pod: Pod) -> bool:
        """Return the attribute `is_newest`, which a test sets."""
        return self.is_newest


def silent_pod_enqueuer(shared: SchedulerState) -> PodEnqueuer:
    """Return a pod enqueuer whose reports are not written."""
    return PodEnqueuer(shared, HeardReports(), not_pending=lambda _: None)
