"""The cluster as decisions read it, and the only code that changes it.

Everything the mirror sees comes in through `put`, `delete` and `replace`; what the scheduler itself
decides comes in through `assume` and `forget`. Each returns the changes that others (the queue)
must hear of. All of it is synchronous and runs on one thread, so there is nothing to lock and the
live columns are the snapshot of a decision.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from mooring.model.devices import Assignment, CardFormat
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.storage import PersistentVolume, PersistentVolumeClaim
from mooring.state.devices.cards import Cards
from mooring.state.devices.devices import Devices
from mooring.state.evictions import Evictions
from mooring.state.nodes import NodeTable
from mooring.state.nominations import Nominations
from mooring.state.objects import Objects
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import PodState, PodTable
from mooring.state.storage.storage import Storage
from mooring.state.topology.counts import TopologyCounts
from mooring.state.topology.default_selectors import DefaultSelectors

__all__ = ["ClusterState", "Trial"]


class ClusterState:
    """Nodes, the pods placed on them, and every other object a decision reads."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.pods = PodTable()
        self.objects = Objects()
        self.terms = TopologyCounts(self.nodes, self.objects)
        self.default_selector = DefaultSelectors(self.objects)
        self.storage = Storage(self.nodes, self.objects)
        self.devices = Devices(self.nodes, self.pods)
        self.pod_columns = PodColumns()
        self.nominations = Nominations(self.pod_columns)
        self.evictions = Evictions(self.objects, self.pods, self.pod_columns)

    def put(self, kind: Kind, key: str, value: Any) -> tuple[ClusterEvent, ...]:
        """The object is as the API server says; `key` is its name, or namespace/name."""
        if kind is Kind.POD:
            return self._put_pod(value)
        if kind is Kind.NODE:
            with self._relabelling(value.name, value.labels):
                before: object | None = self.nodes.put(value)
            self.devices.node_changed(self.nodes.row_of[value.name])
            if before is None:
                self.storage.node_changed(key)
        else:
            before = self.objects.put(kind, key, value)
            self.storage.object_changed(kind, key, before, value)
            if kind is Kind.NAMESPACE and before != value:
                self.terms.namespace_changed(key)
        action = Action.ADD if before is None else Action.UPDATE
        return (ClusterEvent(kind, action, before, value),)

    def delete(self, kind: Kind, key: str, uid: str | None = None) -> tuple[ClusterEvent, ...]:
        """The object does not exist any more; with `uid`, only if that is the one known.

        A pod's name may be taken by its successor before the watch tells of its end.
        """
        before: object | None
        if kind is Kind.POD:
            known = self.pods.get(key)
            if known is None or uid not in (None, known.pod.uid):
                return ()
            self._detach(key)
            before = known.pod
        elif kind is Kind.NODE:
            self._withdraw_from(key)
            row = self.nodes.row_of.get(key)
            with self._relabelling(key, {}):
                before = self.nodes.drop(key)
            if row is not None:
                self.devices.node_changed(row)
            self.storage.node_changed(key)
        else:
            before = self.objects.pop(kind, key)
            self.storage.object_changed(kind, key, before, None)
            if kind is Kind.NAMESPACE:
                self.terms.namespace_changed(key)
        return (ClusterEvent(kind, Action.DELETE, before, None),) if before is not None else ()

    def known(self, kind: Kind, key: str) -> Any | None:
        """The object as it was last seen; a pod only if it holds a place."""
        if kind is Kind.POD:
            placed = self.pods.get(key)
            return placed.pod if placed is not None else None
        if kind is Kind.NODE:
            row = self.nodes.row_of.get(key)
            return self.nodes.nodes[row] if row is not None else None
        return self.objects.of(kind).get(key)

    def replace(self, kind: Kind, values: Mapping[str, Any]) -> tuple[ClusterEvent, ...]:
        """The objects of a kind are exactly these (a relist); assumed pods stay assumed."""
        gone = [key for key in self._keys(kind) if key not in values]
        changes = [change for key in gone for change in self.delete(kind, key)]
        for key, value in values.items():
            changes += self.put(kind, key, value)
        return tuple(changes)

    def assume(self, pod: Pod, row: int) -> tuple[ClusterEvent, ...]:
        """The pod holds the row from now on, before the API server knows of it.

        Whoever wants to be near it need not wait for the watch to confirm it, which is then no more
        than an update. If the name still has a place, it was a predecessor's, whose end the watch
        has yet to tell.
        """
        gone = self.delete(Kind.POD, pod.key)
        self.evictions.forget(pod)
        placed = replace(pod, node_name=self.nodes.names[row])
        return (*gone, *self._place(placed, row, assumed=True))

    def forget(self, pod: Pod) -> tuple[ClusterEvent, ...]:
        """The assumption is taken back, if this very pod is still assumed."""
        placed = self.pods.assumed.get(pod.key)
        if placed is None or placed.pod.uid != pod.uid:
            return ()
        return self.delete(Kind.POD, pod.key, pod.uid)

    def expect_confirmation(self, pod: Pod, deadline: float) -> None:
        """The binding went through: the watch must show it before `deadline` (seconds)."""
        placed = self.pods.assumed.get(pod.key)
        if placed is not None and placed.pod.uid == pod.uid:
            placed.deadline = deadline

    def nominate(self, pod: Pod, node: str) -> tuple[ClusterEvent, ...]:
        """Room is being made for the pod on the node; an unknown node nominates nothing.

        The room that was being made for it elsewhere is free for others.
        """
        row = self.nodes.row_of.get(node)
        withdrawn = self._withdraw_elsewhere(pod, row)
        if row is not None and self.nodes.nodes[row] is not None:
            self.nominations.put(pod, row)
        return withdrawn

    def withdraw(self, key: str) -> tuple[ClusterEvent, ...]:
        """The pod is nominated nowhere any more; the room kept for it is free for others."""
        nominee = self.nominations.drop(key)
        if nominee is None:
            return ()
        self.evictions.forget(nominee.pod)
        pod = replace(nominee.pod, nominated_node=self.nodes.names[nominee.row])
        return (ClusterEvent(Kind.POD, Action.DELETE, pod, None),)

    def assume_volumes(
        self,
        pod: Pod,
        volumes: Sequence[PersistentVolume],
        claims: Sequence[PersistentVolumeClaim],
    ) -> None:
        """Decisions see the objects like this until the watch shows newer versions of them."""
        self.storage.volumes.assume(pod.uid, volumes, claims)

    def restore_volumes(self, pod: Pod) -> None:
        """What was assumed for the pod, and for no other, is assumed no more."""
        self.storage.volumes.restore(pod.uid)

    def track_cards(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """The books of GPU cards in this format, kept as long as the caller keeps them.

        With `demand` they also tell which requests are typical.
        """
        return self.devices.track(form, demand=demand)

    def assign_cards(self, pod: Pod, form: CardFormat, assignment: Assignment) -> None:
        """The assumed pod has these cards of its node, until its annotations say otherwise."""
        placed = self.pods.assumed.get(pod.key)
        if placed is not None and placed.pod.uid == pod.uid:
            self.devices.assign(placed, form, assignment)
            self.nodes.changes.mark(placed.row)

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """A what-if on the live state; whatever is tried inside is undone at the end."""
        with ExitStack() as undo:
            yield Trial(self, undo)

    def overdue(self, now: float) -> list[Pod]:
        """Assumed pods whose confirmation has not come in time (`now` in seconds)."""
        return [
            placed.pod
            for placed in self.pods.assumed.values()
            if placed.deadline is not None and placed.deadline <= now
        ]

    def _keys(self, kind: Kind) -> Iterable[str]:
        if kind is Kind.NODE:
            return [node.name for node in self.nodes.nodes if node is not None]
        if kind is Kind.POD:
            return [placed.pod.key for placed in self.pods if not placed.assumed]
        return list(self.objects.of(kind))

    def _put_pod(self, pod: Pod) -> tuple[ClusterEvent, ...]:
        if pod.node_name is None or pod.finished:
            return self.delete(Kind.POD, pod.key, pod.uid)
        known = self.pods.get(pod.key)
        if known is not None and not _same_place(known.pod, pod):
            return (*self.delete(Kind.POD, pod.key), *self._put_pod(pod))
        if known is not None and _in_place(known.pod, pod):
            before = known.pod
            known.pod, known.assumed, known.deadline = pod, False, None
            self.pods.assumed.pop(pod.key, None)
            self.pod_columns.renew(pod)
            if self.devices.renew(known):
                self.nodes.changes.mark(known.row)
            if before.annotations == pod.annotations:
                return ()  # a status that nothing depends on, of which there are many
            return (ClusterEvent(Kind.POD, Action.UPDATE, before, pod),)
        if known is None:
            return self._place(pod, self.nodes.row(pod.node_name), assumed=False)
        self._detach(pod.key)
        placed = PodState(pod, self.nodes.row(pod.node_name), assumed=False, cards=known.cards)
        self._attach(placed)
        self.devices.renew(placed)
        return (ClusterEvent(Kind.POD, Action.UPDATE, known.pod, pod),)

    def _place(self, pod: Pod, row: int, *, assumed: bool) -> tuple[ClusterEvent, ...]:
        """The pod, which held no place, has one, and none that is kept for it."""
        withdrawn = self._withdraw_elsewhere(pod, row)
        placed = PodState(pod, row, assumed=assumed)
        self._attach(placed)
        if self.devices.publish(placed):
            self.nodes.set_version += 1
        return (*withdrawn, ClusterEvent(Kind.POD, Action.ADD, None, pod))

    def _withdraw_elsewhere(self, pod: Pod, row: int | None) -> tuple[ClusterEvent, ...]:
        """The pod's name is nominated nowhere; told unless this very pod takes the row itself."""
        nominee = self.nominations.get(pod.key)
        withdrawn = self.withdraw(pod.key)
        here = nominee is not None and (nominee.pod.uid, nominee.row) == (pod.uid, row)
        return () if here else withdrawn

    def _relabelling(self, node: str, labels: Mapping[str, str]) -> AbstractContextManager[None]:
        """Inside, the node may get these labels; counts of its pods per label follow."""
        row = self.nodes.row_of.get(node)
        known = self.nodes.nodes[row] if row is not None else None
        if row is None or (known is not None and known.labels == labels):
            return nullcontext()
        return self.terms.moving([placed.kind for placed in self.pods.on(row).values()], row)

    def _withdraw_from(self, node: str) -> None:
        """Nobody is nominated to a node that goes; its row may serve another name."""
        row = self.nodes.row_of.get(node)
        for nominee in self.nominations:
            if nominee.row == row:
                self.nominations.drop(nominee.pod.key)

    def _attach(self, placed: PodState) -> None:
        """The pod holds its place: every count of it goes up. `_detach` is the exact reverse."""
        self.pods.put(placed)
        self.nodes.add_pod(placed.row, placed.pod)
        placed.kind = self.terms.attach(placed.pod, placed.row)
        self.storage.add_pod(placed.row, placed.pod)
        self.devices.attach(placed)
        evicted = self.evictions.under_way(placed.pod)
        self.pod_columns.put(placed.pod, placed.row, nominated=False, evicted=evicted)

    def _detach(self, key: str) -> PodState | None:
        placed = self.pods.pop(key)
        if placed is not None:
            self.pod_columns.drop(placed.pod, nominated=False)
            self.devices.detach(placed)
            self.storage.remove_pod(placed.row, placed.pod)
            self.terms.detach(placed.kind, placed.row)
            self.nodes.remove_pod(placed.row, placed.pod)
        return placed


def _same_place(known: Pod, pod: Pod) -> bool:
    """Whether it is the same pod on the same node; an assumed one may turn up on another."""
    return known.uid == pod.uid and known.node_name == pod.node_name


def _in_place(known: Pod, pod: Pod) -> bool:
    """Whether nothing that is counted about the pod differs from what is known."""
    return (
        known.shape.demand == pod.shape.demand
        and known.shape.host_ports == pod.shape.host_ports
        and known.labels == pod.labels
        and known.shape.affinity == pod.shape.affinity
        and known.volumes == pod.volumes
        and known.terminating == pod.terminating
    )


class Trial:
    """Pods taken away and put somewhere for a question that is asked and then forgotten."""

    __slots__ = ("_state", "_undo")

    def __init__(self, state: ClusterState, undo: ExitStack) -> None:
        self._state = state
        self._undo = undo

    def remove(self, key: str) -> None:
        """As if the placed pod of this namespace/name were gone.

        One whose node does not exist any more stays: nothing but its pods keeps that row alive.
        """
        placed = self._state.pods.get(key)
        if placed is not None and self._state.nodes.nodes[placed.row] is not None:
            self._state._detach(key)  # noqa: SLF001 - the other half of one class
            self._undo.callback(self._state._attach, placed)  # noqa: SLF001

    def add(self, pod: Pod, row: int) -> None:
        """As if the pod, placed nowhere so far in this trial, were on the row."""
        self._state._attach(PodState(pod, row, assumed=True))  # noqa: SLF001
        self._undo.callback(self._state._detach, pod.key)  # noqa: SLF001
