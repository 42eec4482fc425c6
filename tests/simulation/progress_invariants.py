"""The invariants of progress while actors act: pods get nodes, and no pod stays assumed.

The world checks them every few seconds. Waiting that faults explain does not count. Before it
counts, for some time the pod waited, a node had room for it, no fault was in force, the same
replica led with a current mirror, and pod, node and profiles did not change. How to add one: see
`simulation.invariants`.
"""

from typing import TYPE_CHECKING, Final

from mooring.kube.api_resources import SCHEDULING_PROFILE
from mooring.run.build import Engine
from simulation.actors.extenders import Extenders
from simulation.actors.faults import Faults
from simulation.actors.plugins import Plugins
from simulation.actors.profiles import Profiles
from simulation.cluster_books import kept_for_others
from simulation.scenario import ACME
from simulation.state_invariants import leader

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


LOOK_SECONDS: Final = 3.0
_TRIED_SECONDS: Final = 30.0
"""Three times the longest backoff: one for the pod, and two for equal pods that are tried first."""
_SETTLE_SECONDS: Final = 20.0
"""How long after its deadline an assumption may take to be settled."""


class Progress:
    """Records since when nothing has prevented progress."""

    def __init__(self) -> None:
        self._leader = ""
        self._undisturbed_since = 0.0
        self._profiles_changed = 0.0
        self._assumed_at: dict[str, float] = {}
        """By node and by uid, when the leader last had a pod assumed there, or this one."""

    def note(self, change: "Change") -> None:
        if change.resource is SCHEDULING_PROFILE and "status" not in change.what:
            self._profiles_changed = change.at

    def look(self, world: "World") -> str | None:
        """Return an error if something should have progressed and has not; else None."""
        now, found = world.timeline.now, leader(world)
        extenders = world.actor(Extenders)
        identity = found[0] if found is not None else ""
        wrong = extenders.is_troubled or (extenders.has_lied and not world.is_calm)
        if identity != self._leader or wrong or not world.actor(Profiles).is_valid(world):
            self._leader, self._undisturbed_since = identity, now
        if found is None:
            return None
        since = max(self._undisturbed_since, world.actor(Faults).over_at, self._profiles_changed)
        state = found[1].scheduler.state
        for uid, placed in state.pods.assumed.items():
            self._assumed_at |= {state.nodes.names[placed.row]: now, uid: now}
        return _beyond_its_deadline(found[1], since, now) or self._waits(world, since, now)

    def _waits(self, world: "World", since: float, now: float) -> str | None:
        """Return an error with a pod that has waited too long and the nodes that fit; else None."""
        books = world.books
        plugins_since = max(since, world.actor(Plugins).troubled_until)
        for pod in books.pods.values():
            begins = plugins_since if pod.scheduler == ACME else since
            # A Binding that nobody answers ends after 30 s.
            waits_since = books.waits_since.get(pod.uid, now)
            begins = max(begins, waits_since, self._assumed_at.get(pod.uid, 0.0))
            if begins > now - _TRIED_SECONDS or not books.waits(pod):
                continue
            fitting = [
                name
                for name in books.nodes
                if max(books.changed_at[name], self._assumed_at.get(name, 0.0))
                <= now - _TRIED_SECONDS
                and books.takes(name, pod)
            ]
            if fitting and not kept_for_others(books, pod, fitting):
                return f"a pod waits: {pod.key} ({pod.uid}), and {fitting} would take it"
        return None


def _beyond_its_deadline(engine: Engine, since: float, now: float) -> str | None:
    """Return an error with an assumed pod that is neither being bound nor within its deadline."""
    scheduler = engine.scheduler
    for uid, placed in scheduler.state.pods.assumed.items():
        if placed.deadline is None:
            if uid not in scheduler.being_bound and scheduler.queue.get(uid) is None:
                return f"a pod is assumed that nobody binds: {placed.pod.key} ({uid})"
        elif max(placed.deadline, since) + _SETTLE_SECONDS < now:
            return f"a pod is assumed beyond its deadline: {placed.pod.key} ({uid})"
    return None
