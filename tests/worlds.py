"""What the engine's parts share, without a loop that works on it."""

from typing import Any, Final

from mooring.engine.cures import Cures
from mooring.engine.order import QueueOrder
from mooring.engine.profiles import InForce, Profiles
from mooring.engine.world import World
from mooring.framework.registry import Registry
from mooring.framework.waiting import WaitingRoom
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.state.queue import SchedulingQueue
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster
from mooring.testing.fakes import handle

__all__ = ["SHIPPED_ONLY", "put_profile", "world"]

SHIPPED_ONLY: Final = Registry(SHIPPED, {})


def world(*objects: dict[str, Any], registry: Registry = SHIPPED_ONLY) -> World:
    """A world of these objects, in which no profile is in force and no pod waits."""
    state = cluster(*objects)
    snapshot = Snapshot(state)
    profiles = Profiles(registry, handle(state))
    cures = Cures(profiles, snapshot)
    queue = SchedulingQueue(QueueOrder(profiles, snapshot).of, cures.signature, cures.may_cure)
    return World(state, snapshot, queue, profiles, WaitingRoom())


def put_profile(
    shared: World,
    name: str = "default-scheduler",
    *,
    registry: Registry = SHIPPED_ONLY,
    **spec: Any,
) -> InForce:
    """The profile is in force; `spec` is as a user writes it."""
    read_spec = read(SchedulingProfileSpec, spec, "spec")
    return shared.profiles.put(SchedulingProfile(name, read_spec), resolve(read_spec, registry))
