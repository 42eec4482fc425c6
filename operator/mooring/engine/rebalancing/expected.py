"""The replacements of pods that are moved, and the places that are kept for them.

A place is kept as preemption keeps one: by a nomination to the node, so that nobody of equal or
lower priority takes it. Until the replacement exists, a copy of the pod that leaves is nominated,
under a uid of its own. The replacement takes its nomination over before anything is decided about
it, and the ordinary decision then finds this node first.

A pod for which room is made has a place in the same way: a nomination of its own would end with its
next attempt, which finds no room yet. It gets the nomination once there is room.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Final

from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.plan import Move, Step
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod, Uid
from mooring.model.pod_spec import PodSpec
from mooring.queueing.queue import SchedulingQueue
from mooring.state.cluster import ClusterState

__all__ = ["Expected", "ExpectedReplacements", "as_new", "place_of", "place_uid"]

_PLACE: Final = "/replacement"
"""What the uid of a place has behind that of the pod that leaves, or for which room is made.

No object's uid has a slash.
"""
_NOT_COMPARED: Final = frozenset(("gates", "limit_exceeded", "demands", "memory"))
"""Fields of a spec in which a running pod differs from a new one of its template."""
_COMPARED: Final = tuple(each.name for each in fields(PodSpec) if each.name not in _NOT_COMPARED)


def as_new(pod: Pod, node: Node) -> Pod:
    """Return the pod as its controller makes it again, under the uid of its place.

    `node` is the one that the pod is on.
    """
    return replace(created_anew(pod, node), uid=place_uid(pod.uid), ready=False)


def place_uid(uid: Uid) -> Uid:
    """Return the uid of the place for the replacement of this pod, or for the pod itself."""
    return Uid(f"{uid}{_PLACE}")


def place_of(uid: Uid) -> bool:
    """Return whether the uid is that of a place, and no pod has it."""
    return uid.endswith(_PLACE)


@dataclass(slots=True, eq=False)
class Expected:
    """The replacement of a pod that leaves its node, and the place that is kept for it.

    Attributes:
        move: The pod that leaves, and the node for which its replacement is meant.
        place: What is nominated to the node until the replacement comes.
        others: The pods of the controller that waited for a node before.
        replacement: The pod that came in its place, None until then.
        changed: Whether the controller makes pods of another spec by now.
    """

    move: Move
    place: Pod
    others: frozenset[Uid]
    replacement: Pod | None = None
    changed: bool = False

    def is_for(self, pod: Pod) -> bool:
        """Return whether a new pod of the controller may be the replacement.

        A pod of another namespace names a controller that is not its own.
        """
        leaving = self.move.pod
        if pod.namespace != leaving.namespace:
            return False
        if self.replacement is not None or pod.uid == leaving.uid or pod.uid in self.others:
            return False
        owner = leaving.owner
        return owner is None or owner.kind != "StatefulSet" or pod.name == leaving.name


class ExpectedReplacements:
    """Recognizes replacements as they come, and gives each the place that is kept for it."""

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self._by_owner: defaultdict[str, list[Expected]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def keep(self, move: Move, place: Pod) -> Expected:
        """Keep the place on the target of the move, and expect the replacement from now on.

        For the place see `as_new`.
        """
        owner = _owner_of(move.pod)
        waiting = self._state.unscheduled.values()
        others = frozenset(pod.uid for pod in waiting if _owner_of(pod) == owner)
        expected = Expected(move, place, others)
        self._by_owner[owner].append(expected)
        self._state.nominate(expected.place, move.target)
        return expected

    def of(self, moves: Iterable[Move]) -> list[Expected]:
        """Return what is expected of those of these moves that are under way."""
        leaving = {move.pod.uid for move in moves}
        awaited = chain.from_iterable(self._by_owner.values())
        return [expected for expected in awaited if expected.move.pod.uid in leaving]

    def hold_room(self, step: Step, moves: Iterable[Move]) -> None:
        """Keep places for the pods that the step makes room for; `moves` are still to be made.

        None is kept on a node to which one of these goes, or one that is under way.
        """
        under_way = (expected.move for expected in self.of(step.moves))
        targets = {move.target for move in chain(moves, under_way)}
        for pod, node in self.waiting(step):
            if node not in targets:
                self._state.nominate(replace(pod, uid=place_uid(pod.uid)), node)

    def give_room(self, step: Step, *, to_pods: bool) -> None:
        """Give back the places of the pods that the step makes room for, or give them to the pods.

        That they end is told, so that the pods are tried again: each of them, because of equal pods
        that are not nominated one is tried for all.
        """
        for pod, node in self.waiting(step) if to_pods else ():
            if self._state.nominations.get(pod.uid) is None:
                self._state.nominate(pod, node)
                self._queue.nominated(pod.uid)
        for ref in step.fits:
            self._state.withdraw(place_uid(ref.uid))

    def waiting(self, step: Step) -> list[tuple[Pod, str]]:
        """Return the pods that the step makes room for and that have no node yet, with theirs."""
        pods = (self._state.unscheduled.get(ref.uid) for ref in step.fits)
        return [
            (pod, node)
            for pod, node in zip(pods, step.nodes, strict=True)
            if pod is not None and self._state.pods.get(pod.uid) is None
        ]

    def forget(self, expected: Expected) -> None:
        """Expect the replacement no more, and give back what is still kept for it."""
        self.give_back(expected)
        owner = _owner_of(expected.move.pod)
        found = self._by_owner[owner]
        if expected in found:
            found.remove(expected)
        if not found:
            del self._by_owner[owner]

    def give_back(self, expected: Expected) -> None:
        """Keep no place any more; the replacement is still expected."""
        self._state.withdraw(expected.place.uid)
        replacement = expected.replacement
        if replacement is None or self._state.evictions.awaits_victims(replacement):
            return  # what preemption frees for it is its own
        nominee = self._state.nominations.get(replacement.uid)
        if nominee is not None and self._state.nodes.names[nominee.row] == expected.move.target:
            self._state.withdraw(replacement.uid)

    def arrived(self, pod: Pod) -> None:
        """Note a pod that is shown without a node for the first time.

        If it is an expected replacement, it is nominated to the node of its place.
        """
        if (expected := self._match(pod)) is not None:
            self._state.pass_nomination(expected.place.uid, pod)

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Note replacements that are shown on a node before they were shown without one."""
        if not self._by_owner:
            return
        for event in events:
            pod = event.after
            if event.kind is Kind.POD and event.action is Action.ADD and isinstance(pod, Pod):
                self._note_placed(pod)

    def _note_placed(self, pod: Pod) -> None:
        placed = self._state.pods.get(pod.uid)
        if placed is None or placed.assumed:
            return  # an assumed pod was shown without a node
        if (expected := self._match(pod)) is not None:
            self._state.withdraw(expected.place.uid)

    def _match(self, pod: Pod) -> Expected | None:
        """Return what is expected of this pod's controller; None if the pod is none of that."""
        if pod.owner is None or pod.owner.uid not in self._by_owner:
            return None
        awaited = self._by_owner[pod.owner.uid]
        if any(e.replacement is not None and e.replacement.uid == pod.uid for e in awaited):
            return None
        for expected in awaited:
            if expected.is_for(pod):
                if _is_of_one_template(expected.move.pod.spec, pod.spec):
                    expected.replacement = pod
                    return expected
                expected.changed = True
        return None


def _owner_of(pod: Pod) -> str:
    """Return the uid of the pod's controller; "" if it has none."""
    return pod.owner.uid if pod.owner is not None else ""


def _is_of_one_template(running: PodSpec, new: PodSpec) -> bool:
    return running is new or all(getattr(running, name) == getattr(new, name) for name in _COMPARED)
