"""Records when each replica decided about each pod, and its knowledge of the cluster then.

After each turn of a replica's event loop, `Decisions` reads its assumed pods: a pod was decided
about in the turn in which it was assumed. In that turn the replica knew at least what its watches
had shown some time before, and at most the server's state, plus its own assumed pods.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from mooring.kube.api_resources import NODE, POD, Resource
from mooring.state.nominations import Nominee
from simulation.constraints import Surroundings
from simulation.storage import Change, Raw, Storage

if TYPE_CHECKING:
    from simulation.replica import Replica
    from simulation.watches import Watches


_TAKES_SECONDS: Final = 0.5
_TAKES_TURNS: Final = 100
"""What a watch has told is in the replica's books so many seconds and turns later at most."""


@dataclass
class _Assumption:
    """A pod that a replica assumed on a node."""

    node: str
    since: float
    until: float
    """The last time at which it was still assumed."""


class Decision(NamedTuple):
    """The knowledge of a replica when it chose a node for a pod."""

    pods: list[Raw]
    """The versions of the pod that it can have known."""
    around: Surroundings


class Decisions:
    """Records the assumed pods of each process, with times."""

    def __init__(self, storage: Storage, watches: "Watches") -> None:
        self._storage = storage
        self._watches = watches
        self._assumed: defaultdict[str, dict[str, list[_Assumption]]]
        self._assumed = defaultdict(lambda: defaultdict(list))
        """By identity and uid."""
        self._turned: defaultdict[str, deque[float]]
        self._turned = defaultdict(lambda: deque(maxlen=_TAKES_TURNS))
        """When each process had its last turns."""
        self._begins: dict[tuple[str, str], float] = {}
        """By identity and uid, the time before the turn after which the pod was assumed."""
        self._nominated: dict[str, dict[str, tuple[Nominee, float]]] = {}
        """By identity and uid, the nomination in force, and when it was seen first."""

    def look(self, replica: "Replica", now: float) -> None:
        """Record the replica's assumed pods; call this after each of its turns."""
        identity, scheduler = replica.identity, replica.scheduler
        is_there = replica.alive and scheduler is not None
        state = scheduler.engine.scheduler.state if scheduler is not None else None
        if is_there and state is not None and state.is_tried:
            return  # an attempt pauses, and tries pods on nodes
        turns = self._turned[identity]
        turns.append(now)
        if not is_there or state is None:
            return
        seen = self._nominated.get(identity, {})
        self._nominated[identity] = {}
        for nominee in state.nominations:
            known = seen.get(nominee.pod.uid)
            since = known[1] if known is not None and known[0] is nominee else now
            self._nominated[identity][nominee.pod.uid] = nominee, since
        if not state.pods.assumed:
            return
        before = turns[-2] if len(turns) > 1 else now
        for uid, placed in state.pods.assumed.items():
            node, periods = state.nodes.names[placed.row], self._assumed[identity][uid]
            if periods and periods[-1].node == node and periods[-1].until >= before:
                periods[-1].until = now
            else:
                periods.append(_Assumption(node, now, now))
                self._begins[identity, uid] = min(turns[0], now - _TAKES_SECONDS)

    def decided_at(self, identity: str, uid: str, now: float) -> float:
        """Return when the process last decided about the pod; `now` if it has not."""
        periods = self._assumed[identity].get(uid)
        return periods[-1].since if periods else now

    def assumed(self, identity: str, uid: str, at: float) -> bool:
        """Return whether the process assumed the pod at this time."""
        return any(each.since <= at <= each.until for each in self._assumed[identity].get(uid, ()))

    def nominated_since(self, identity: str, uid: str) -> float:
        """Return when the process made the pod's current nomination; infinity without one.

        A nomination that is withdrawn and made again in one turn counts as a new one.
        """
        known = self._nominated.get(identity, {}).get(uid)
        return known[1] if known is not None else inf

    def about(self, binding: Change) -> Decision | None:
        """Return the decision for a Binding; None if the replica had not assumed the pod there."""
        identity, raw = binding.by, binding.object
        uid, node = raw["metadata"]["uid"], raw["spec"]["nodeName"]
        periods = self._assumed[identity].get(uid) or ()
        at = next((period.since for period in reversed(periods) if period.node == node), None)
        if at is None:
            return None
        since = self._begins[identity, uid]
        told = self._watches.told
        pods = self._versions(POD, told(identity, POD, at=since), at)
        nodes = self._versions(NODE, told(identity, NODE, at=since), at)
        pending = self._versions(POD, told(identity, POD, "kopf", at=since), at)
        for other in dict.fromkeys((*pods, *self._assumed[identity])):
            versions = pods.setdefault(other, [])
            versions.extend(self._as_assumed(identity, other, versions, at))
        by_name: dict[str, list[Raw | None]] = defaultdict(list)
        for versions in nodes.values():
            names = {one["metadata"]["name"] for one in versions if one is not None}
            for name in names:
                by_name[name] += versions
        own = [one for one in pending[uid] if one is not None]
        return Decision(own, Surroundings(by_name, pods))

    def _as_assumed(
        self, identity: str, uid: str, versions: list[Raw | None], at: float
    ) -> Iterator[Raw | None]:
        """Yield the versions of the pod that the replica may count on the node at that time.

        If the pod was assumed before and still is, only the assumed version counts, or None if the
        pod may have gone. Until a watch shows it bound, a replica counts the assumed version, even
        if the pod has ended or gone: no watch shows a pod that ended before its binding.
        """
        periods = self._assumed[identity].get(uid) or ()
        last = next((period for period in reversed(periods) if period.since <= at), None)
        if last is None or last.until < at - _TAKES_SECONDS:
            return
        shown = [one for one in versions if one is not None]
        if last.since < at <= last.until:
            if len(shown) == len(versions):
                versions.clear()
            shown = shown or [self._last(uid)]
        elif not shown:
            yield None  # no watch shows it, and it has been forgotten since it was assumed
        if last.since < at - _TAKES_SECONDS:  # its labels may have changed before it was bound
            told = self._watches.told(identity, POD, "kopf", at=self._begins[identity, uid])
            known = self._versions(POD, told, last.since).get(uid, ())
            shown += [one for one in known if one is not None]
        for one in shown:
            status = {**(one.get("status") or {}), "phase": "Pending"}
            yield {**one, "spec": {**one["spec"], "nodeName": last.node}, "status": status}

    def _last(self, uid: str) -> Raw:
        """Return the last version of the pod."""
        changes = (c for c in reversed(self._storage.history) if c.resource is POD)
        return next(c.object for c in changes if c.object["metadata"]["uid"] == uid)

    def _versions(self, resource: Resource, since: int, at: float) -> dict[str, list[Raw | None]]:
        """Return by uid each object's versions from `since` until `at`; None: it was absent."""
        found: dict[str, list[Raw | None]] = {
            raw["metadata"]["uid"]: [raw] for raw in self._storage.all(resource)
        }
        history = self._storage.history
        until = bisect_right(history, at, key=lambda change: change.at)
        for index in range(len(history) - 1, -1, -1):
            change = history[index]
            if change.version <= since and index < until:
                break
            if change.resource is not resource:
                continue
            before = change.before if change.verb != "ADDED" else None
            versions = found.setdefault(change.object["metadata"]["uid"], [None])
            if index >= until:
                versions[:] = [before]
            else:
                versions.append(before)
        return {uid: each for uid, each in found.items() if any(each)}
