"""The state that the parts of the engine share, without a loop that works on it."""

from typing import Any, Final

from mooring.engine.groups.reports import GroupReports
from mooring.engine.intake import Intake
from mooring.engine.profiles import InForce, Profiles
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.kube.client import ApiClient
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodGroupWriter
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.queueing.hints import QueueingHints
from mooring.queueing.queue import SchedulingQueue
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster
from mooring.testing.fakes import FakeApi, handle

__all__ = [
    "SHIPPED_ONLY",
    "group_reports",
    "put_profile",
    "scheduler_state",
    "silent_intake",
]

SHIPPED_ONLY: Final = Registry(SHIPPED, {})


def scheduler_state(
    *objects: dict[str, Any],
    registry: Registry = SHIPPED_ONLY,
    api: FakeApi | None = None,
    most_per_decision: int | None = None,
) -> SchedulerState:
    """A scheduler over these objects, in which no profile is in force and no pod waits.

    For `most_per_decision` see `Evaluations`.
    """
    state = cluster(*objects)
    snapshot = Snapshot(state)
    built_with = handle(state, api)
    queue = SchedulingQueue(QueueingHints(built_with))
    profiles = Profiles(registry, built_with, most_per_decision=most_per_decision)
    return SchedulerState(state, snapshot, queue, profiles, WaitingPods())


def put_profile(
    shared: SchedulerState,
    name: str = "default-scheduler",
    *,
    registry: Registry = SHIPPED_ONLY,
    **spec: Any,
) -> InForce:
    """The profile is in force; `spec` is as a user writes it."""
    read_spec = read(SchedulingProfileSpec, spec, "spec")
    return shared.profiles.put(SchedulingProfile(name, read_spec), resolve(read_spec, registry))


def group_reports(state: ClusterState, client: ApiClient) -> GroupReports:
    """Reports that note decisions about groups; nothing is written as long as they do not run."""
    return GroupReports(
        state,
        PodGroupWriter(client),
        EventRecorder(client, "mooring", "test"),
        owns=lambda _pod: True,
        served=dict,
        placed=lambda _seconds: None,
    )


def silent_intake(shared: SchedulerState) -> Intake:
    """An intake at time 0 that wakes nothing and tells nobody."""
    return Intake(
        shared,
        clock=lambda: 0.0,
        wake=lambda: None,
        left=lambda _: None,
        failed=lambda _pod, _message: None,
        gated=lambda _pod, _message: None,
        no_profile=lambda _pod, _message: None,
    )
