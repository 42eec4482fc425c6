"""The cluster as decisions read it, and the only code that changes it.

The mirror calls `put`, `delete` and `replacing`. For pods without a node, kopf's handlers call
`put_unscheduled` and `delete_unscheduled`. The scheduler calls `assume`, `forget`, `nominate` and
`withdraw` for its own decisions. Each call first makes its changes, then delivers its cluster
events to the sink that `on_events` has set. If the sink changes the cluster, the new events are
delivered after the sink has returned. All of this runs on one thread: nothing is locked, and a
decision reads the live columns without a copy.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import fields, replace
from itertools import count
from sys import getsizeof
from typing import Any, Final

import numpy as np

from mooring.claims.model.resource_claims import (
    Allocation,
    ClaimSpec,
    ResourceClaim,
    claim_of_scheduler,
)
from mooring.claims.state.dynamic_resources import ClaimTables
from mooring.gpu_cards.model.cards import Assignment, CardFormat
from mooring.gpu_cards.state.card_counts import Cards
from mooring.gpu_cards.state.card_formats import CardFormats
from mooring.groups.model.pod_group import (
    GroupFormat,
    GroupKey,
    PodGroup,
    Reservation,
    consumer_of,
)
from mooring.groups.state.pod_groups import GROUP_KINDS, PodGroups, PodGroupState
from mooring.model.bounded_cache import BoundedCache
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.indexes import drop_item
from mooring.model.kubernetes_rules import KubernetesRules, rules_of_server
from mooring.model.node import REGION, ZONE, Node
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.quota.state.queues import Queues, demand_of
from mooring.state.evictions import Evictions
from mooring.state.nodes import NodeTable
from mooring.state.nominations import LOWEST_PRIORITY, Nominations
from mooring.state.objects import Objects
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import NO_QUEUE, Assumption, PlacedPod, PodTable
from mooring.state.topology.counts import TopologyCounts
from mooring.state.topology.default_selectors import DefaultSelectors
from mooring.volumes.model.storage_objects import PersistentVolume, PersistentVolumeClaim
from mooring.volumes.state.storage import Storage

_ENDED_BYTES: Final = 2**20
"""The most bytes of the uids of ended pods: about 3,000 uids. Then the oldest are forgotten."""
_TOPOLOGY_LABELS: Final = (ZONE, REGION)
"""The labels that a pod gets from its node when it is bound."""

EventSink = Callable[[tuple[ClusterEvent, ...]], None]


class ClusterState:
    """Nodes, the pods on nodes, and all other objects that scheduling decisions read."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.pods = PodTable()
        self.objects = Objects()
        self.topology = TopologyCounts(self.nodes, self.objects)
        self.default_selector = DefaultSelectors(self.objects)
        self.storage = Storage(self.nodes, self.objects)
        self.devices = CardFormats(self.nodes, self.pods)
        self.dynamic_resources = ClaimTables(self.objects)
        self.pod_groups = PodGroups(self.pods)
        self.pod_columns = PodColumns(self.pods)
        self._queues = Queues(self.objects, self.nodes, self.pod_groups.queue_of)
        self.nominations = Nominations(self.pod_columns, self._queues.number_of, demand_of)
        self._arrivals = count()
        self.evictions = Evictions(self.objects, self.pods, self.pod_columns)
        self._on_unknown_nodes: dict[str, dict[str, PlacedPod]] = {}
        """The pods whose node does not exist, by the node's name, then by their uid."""
        self._ended: BoundedCache[Uid, Uid] = BoundedCache(
            _ENDED_BYTES, lambda uid, _: getsizeof(uid)
        )
        """The uids of pods that were on a node and have recently ended."""
        self._server_version = ""
        self._kubernetes = rules_of_server("")
        self._sink: EventSink = _drop
        self._undelivered: deque[tuple[ClusterEvent, ...]] = deque()
        self._holds_events = False
        """Whether events must wait, because the sink runs or `delivered_after` is open."""
        self._trials = 0
        """The number of open trials; a trial may be opened inside another trial."""

    def on_events(self, sink: EventSink) -> None:
        """Deliver all cluster events to `sink`; raise RuntimeError if there is a sink already."""
        if self._sink is not _drop:
            raise RuntimeError("cluster events have one sink, and it is there already")
        self._sink = sink

    @property
    def server_version(self) -> str:
        """The API server's version (1.37); "" until it is known."""
        return self._server_version

    def follow_server(self, version: str) -> None:
        """Use the rules of Kubernetes `version`; if the rules change, count resized pods again."""
        before, self._server_version = self._kubernetes, version
        self._kubernetes = self.evictions.kubernetes = rules_of_server(version)
        if self._kubernetes is not before:
            for placed in tuple(self.pods):
                # An assumed pod counts by these rules once its watch shows it.
                if placed.pod.spec.demands is not None and not placed.assumed:
                    self.put(Kind.POD, placed.pod.uid, placed.pod)

    def devices_known(self, why_not: str | None) -> None:
        """Store `why_not`: the reason why some devices are unknown, or None if all are known.

        When None replaces a reason, deliver an UPDATE event of a ResourceSlice without the object.
        """
        before, self.dynamic_resources.unknown = self.dynamic_resources.unknown, why_not
        if before is not None and why_not is None:
            self._deliver((ClusterEvent(Kind.RESOURCE_SLICE, Action.UPDATE, None, None),))

    @property
    def kubernetes(self) -> KubernetesRules:
        """The rules of the API server's version; a profile may follow another version."""
        return self._kubernetes

    @contextmanager
    def delivered_after(self) -> Iterator[None]:
        """Deliver the events of all writes in the `with` block when the block ends.

        The receiver of the events then sees the result of all these writes. If blocks are nested,
        the outermost block delivers the events.
        """
        held, self._holds_events = self._holds_events, True
        try:
            yield
        finally:
            self._holds_events = held
            self._deliver_waiting()

    def put(self, kind: Kind, key: str, value: Any) -> None:
        """Store the object, which the API server sent, in place of its known version.

        A pod that has no node, or has finished, is removed instead. `key` is the object's key as in
        `mooring.model.objects.identity`.
        """
        self._deliver(self._put(kind, key, value))

    def delete(self, kind: Kind, key: str) -> None:
        """Remove an object that no longer exists; for `key` see `put`.

        For a pod, `has_ended` is then True.
        """
        if kind is Kind.POD:
            self._ended.put(uid := Uid(key), uid)
        self._deliver(self._delete(kind, key))

    def _deliver(self, events: tuple[ClusterEvent, ...]) -> None:
        if events:
            self._undelivered.append(events)
            self._deliver_waiting()

    def _deliver_waiting(self) -> None:
        if self._holds_events:
            return
        self._holds_events = True
        try:
            while self._undelivered:
                self._sink(self._undelivered.popleft())
        finally:
            self._holds_events = False

    def _put(self, kind: Kind, key: str, value: Any) -> tuple[ClusterEvent, ...]:
        if kind is Kind.POD:
            return self._put_pod(value)
        if kind is Kind.NODE:
            with self._relabelling(value.name, value.labels):
                before: object | None = self.nodes.put(value)
            row = self.nodes.row_of[value.name]
            self.devices.node_changed(row, value)
            if not isinstance(before, Node) or _offered(before) != _offered(value):
                self._queues.changed(kind, key, before, value)
            if before is None:
                self._move(self._on_unknown_nodes.get(key, {}).values(), row)
                self.storage.node_changed(key)
        else:
            before = self.objects.put(kind, key, value)
            before = self._object_changed(kind, key, before, value)
            if kind is Kind.NAMESPACE and before != value:
                self.topology.namespace_changed(key)
        if _same_object(before, value):
            return ()  # a heartbeat or a relist that shows what is known
        action = Action.ADD if before is None else Action.UPDATE
        return (ClusterEvent(kind, action, before, value),)

    def _delete_pod(self, uid: Uid) -> tuple[ClusterEvent, ...]:
        known = self.pods.get(uid)
        if known is None:
            return ()
        if not known.assumed:
            self.pod_groups.left_its_node(known.pod)
        self._detach(uid)
        self.evictions.victim_removed(known.pod, assumed=known.assumed)
        return (ClusterEvent(Kind.POD, Action.DELETE, known.pod, None),) if known.announced else ()

    def _delete(self, kind: Kind, key: str) -> tuple[ClusterEvent, ...]:
        before: object | None
        if kind is Kind.POD:
            return self._delete_pod(Uid(key))
        if kind is Kind.NODE:
            row = self.nodes.row_of.get(key)
            if row is not None:
                self._withdraw_from(row)
                if pods := self.pods.on(row):
                    self._move(pods, self.nodes.unknown_row)
            before = self.nodes.drop(key)
            self._queues.changed(kind, key, before, None)
            if row is not None:
                self.devices.node_changed(row, None)
            self.storage.node_changed(key)
        else:
            before = self.objects.pop(kind, key)
            before = self._object_changed(kind, key, before, None)
            if kind is Kind.NAMESPACE:
                self.topology.namespace_changed(key)
        return (ClusterEvent(kind, Action.DELETE, before, None),) if before is not None else ()

    def known(self, kind: Kind, key: str) -> Any | None:
        """Return the known version of the object; None if unknown, or for a pod without a node."""
        if kind is Kind.POD:
            placed = self.pods.get(Uid(key))
            return placed.pod if placed is not None else None
        if kind is Kind.NODE:
            row = self.nodes.row_of.get(key)
            return self.nodes.nodes[row] if row is not None else None
        return self.objects.of(kind).get(key)

    def keys(self, kind: Kind) -> Iterable[str]:
        """Return the keys of the kind's known objects; assumed pods are left out.

        The caller can iterate over the result only once.
        """
        # A list would need much memory with 150,000 pods.
        if kind is Kind.NODE:
            return tuple(node.name for node in self.nodes.nodes if node is not None)
        if kind is Kind.POD:
            assumed = frozenset(self.pods.assumed)
            placed = deque(self.pods)
            uids = (placed.popleft().pod.uid for _ in range(len(placed)))
            return (uid for uid in uids if uid not in assumed)
        return tuple(self.objects.of(kind))

    def replacing(self, kind: Kind, values: Mapping[str, Any], before: Iterable[str]) -> None:
        """Replace all objects of a kind in small steps; decisions may be made between the steps.

        Args:
            kind: The kind of the objects.
            values: The objects of the API server's list, by key; None keeps the known object.
            before: The keys that were known when the list was requested. Objects with these keys
                that are not in `values` are removed, except assumed pods.
        """
        # In this order, no decision sees more free capacity on a node than the node had before the
        # list or has after it.
        changed = defaultdict[str, list[Pod]](list)
        joined = dict[str, None]()
        for key, value in values.items():
            if isinstance(value, Pod) and (node := self._node_it_changes(key, value)) is not None:
                changed[node].append(value)
                if value.node_name is not None and value.node_name != node:
                    joined |= {node: None, value.node_name: None}  # one step for both
            elif value is not None:
                self.put(kind, key, value)
            pause()
        together = [pod for node in joined for pod in changed.pop(node, ())]
        for node, pods in (("", together), *changed.items()):
            # A node that does not exist has no free capacity, but may have any number of pods.
            exists = not node or node in self.nodes.row_of
            for step in (pods,) if exists else ((pod,) for pod in pods):
                self._deliver(tuple(event for pod in step for event in self._put_pod(pod)))
                pause()
        for key in before:
            if key not in values and not (kind is Kind.POD and Uid(key) in self.pods.assumed):
                self.delete(kind, key)
            pause()

    def has_ended(self, uid: Uid) -> bool:
        """Return whether the pod of this uid was on a node and has recently ended."""
        # kopf's watch may be late and still show such a pod without a node.
        return self._ended.get(uid) is not None

    def unconfirmed(self) -> tuple[Uid, ...]:
        """Return the uids of assumed pods that are bound, but that no watch has shown bound yet."""
        assumed = self.pods.assumed.items()
        return tuple(uid for uid, placed in assumed if placed.deadline is not None)

    def doubt(self, uids: Iterable[Uid]) -> None:
        """Let `overdue` return these pods, if they are still assumed.

        Call this for bound pods that are not in a later list of the API server: perhaps they were
        deleted.
        """
        for uid in uids:
            if (assumption := self.pods.assumption(uid)) is not None:
                assumption.deadline = -math.inf

    def _node_it_changes(self, key: str, pod: Pod) -> str | None:
        """Return the stored pod's node if the new version `pod` uses other resources there."""
        known = self.known(Kind.POD, key)
        if not isinstance(known, Pod):
            return None
        stays = known.node_name == pod.node_name and not pod.finished
        return None if stays and _in_place(known, pod) else known.node_name

    @property
    def unscheduled(self) -> Mapping[Uid, Pod]:
        """The pods that have no node for the API server, by uid; this includes assumed pods."""
        return self.pod_groups.unscheduled

    def put_unscheduled(self, pod: Pod) -> None:
        """Store a new or changed pod without a node, and update its nomination.

        No event is delivered if the pod is in no pod group, or if only its status has changed.
        """
        before = self.pod_groups.put_unscheduled(pod)
        if (nominee := self.nominations.get(pod.uid)) is not None:
            self.nominations.put_back(nominee._replace(pod=pod))
        versions = (pod,) if before is None else (pod, before)
        in_group = any(self.pod_groups.key_of(each) is not None for each in versions)
        if in_group and (before is None or _changed(before, pod)):
            action = Action.ADD if before is None else Action.UPDATE
            self._deliver((ClusterEvent(Kind.UNSCHEDULED_POD, action, before, pod),))

    def delete_unscheduled(self, uid: Uid) -> None:
        """Remove the pod from `unscheduled`, because it was bound, has ended or was deleted.

        Deliver an event if the pod is on no node and was a member of a pod group.
        """
        before = self.pod_groups.drop_unscheduled(uid)
        if before is None or self.pods.get(uid) is not None:
            return
        if self.pod_groups.key_of(before) is not None:
            self._deliver((ClusterEvent(Kind.UNSCHEDULED_POD, Action.DELETE, before, None),))

    def assume(self, pod: Pod, row: int) -> None:
        """Count the pod on the node of this row before the API server knows of its binding.

        End the pod's nomination and its wait for victims. If it was nominated to another node,
        deliver a DELETE event.
        """
        gone = self._delete_pod(pod.uid)
        self.evictions.stop_waiting(pod)
        nominee = self.nominations.get(pod.uid)
        withdrawn = self._withdraw_elsewhere(pod, row)
        assumption = Assumption(was_nominated=nominee is not None and not withdrawn)
        assumed = PlacedPod(self._as_bound(pod, row), row, assumption)
        self._attach(assumed)
        self._publish_demand(assumed)
        # No ADD yet: a Reserve or Permit plugin may reject the pod, and rejected pods would requeue
        # each other for ever.
        self._deliver((*gone, *withdrawn))

    def _as_bound(self, pod: Pod, row: int) -> Pod:
        node, labels = self.nodes.nodes[row], pod.labels
        # From 1.35 on, the API server copies these labels to the pod. With them, the pod need not
        # be counted again when the watch shows it.
        if node is not None and self.kubernetes.binding_gives_topology_labels:
            given = {key: node.labels[key] for key in _TOPOLOGY_LABELS if key in node.labels}
            labels = {**labels, **given} if given else labels
        return replace(pod, node_name=self.nodes.names[row], labels=labels)

    def announce(self, pod: Pod) -> None:
        """Deliver the ADD event of an assumed pod; no second ADD follows when the watch shows it.

        The scheduler calls this after Reserve, when Permit accepts the pod or lets it wait.
        """
        assumed = self.pods.assumed.get(pod.uid)
        if assumed is not None and assumed.assumption is not None and not assumed.announced:
            assumed.assumption.announced = True
            self._deliver((ClusterEvent(Kind.POD, Action.ADD, None, assumed.pod),))

    def forget(self, pod: Pod) -> None:
        """Take the assumed pod off its node and release its claims, because its binding has failed.

        Deliver events for the freed resources. A pod that the watch has already shown bound stays
        on its node, but its eviction ends.
        """
        freed = self._release_claims(pod.uid)
        assumed, assumption = self.pods.assumed.get(pod.uid), self.pods.assumption(pod.uid)
        if assumed is None or assumption is None:
            # An eviction came too late to stop the binding. The DELETE events make the queue retry
            # the preemptors.
            preemptors = self.evictions.abandon(pod)
            withdrawn = [event for p in preemptors for event in self._withdraw(p.uid)]
            self._deliver((*freed, *withdrawn))
            return
        events = self._delete_pod(pod.uid)
        if not assumption.announced and assumption.was_nominated:
            nominee = replace(pod, nominated_node=assumed.pod.node_name)
            events = (ClusterEvent(Kind.POD, Action.DELETE, nominee, None),)
        self._deliver(events)

    def expect_confirmation(self, pod: Pod, deadline: float) -> None:
        """Set the time by which the watch must show the assumed pod as bound (see `overdue`)."""
        assumption = self.pods.assumption(pod.uid)
        if assumption is not None:
            assumption.deadline = deadline

    def nominate(
        self,
        pod: Pod,
        node: str,
        *,
        reservation: Reservation | None = None,
        victims: Iterable[Pod] = (),
    ) -> None:
        """Nominate the pod to this node and no other; an unknown node ends the nomination.

        `victims` are evicted for the pod. With a `reservation`, the node is reserved for the pod.
        Deliver a DELETE event if another nomination ends.
        """
        row = self.nodes.row_of.get(node)
        withdrawn = self._withdraw_elsewhere(pod, row)
        if row is not None and self.nodes.nodes[row] is not None:
            evicted = max((victim.spec.priority for victim in victims), default=LOWEST_PRIORITY)
            self.nominations.put(pod, row, reservation, evicted)
        self._deliver(withdrawn)

    def withdraw(self, uid: Uid) -> None:
        """End the nomination of the pod of this uid, and its wait for victims.

        Deliver a DELETE event. Do nothing if the pod is not nominated.
        """
        self._deliver(self._withdraw(uid))

    def pass_nomination(self, uid: Uid, pod: Pod) -> bool:
        """Give the nomination of the pod `uid` to `pod`; return False if there is none.

        The pod `uid` is a copy with which rebalancing has kept room for `pod`.
        """
        nominee = self.nominations.drop(uid)
        if nominee is None:
            return False
        self.evictions.stop_waiting(nominee.pod)
        # No event is delivered, because no resources become free.
        self.nominations.put_back(nominee._replace(pod=pod, moved=True))
        return True

    def _withdraw(self, uid: Uid) -> tuple[ClusterEvent, ...]:
        nominee = self.nominations.drop(uid)
        if nominee is None:
            return ()
        self.evictions.stop_waiting(nominee.pod)
        pod = replace(nominee.pod, nominated_node=self.nodes.names[nominee.row])
        return (ClusterEvent(Kind.POD, Action.DELETE, pod, None),)

    def begin_evictions(self, preemptor: Pod, victims: Iterable[Pod]) -> list[Pod]:
        """Let the preemptor wait until the victims have left their nodes; return the pods to evict.

        A victim that is terminating, or is being evicted for another preemptor, is not returned.
        """
        return self.evictions.begin(preemptor, victims)

    def abandon_eviction(self, victim: Pod) -> list[Pod]:
        """End the failed eviction of the victim; return the preemptors that waited for it."""
        return self.evictions.abandon(victim)

    def eviction_refused(self, victim: Pod, *, by_budget: bool) -> None:
        """Remember for up to two minutes that the Eviction API refused to evict the victim.

        If a disruption budget was the reason (`by_budget`), the victim's budgets allow no eviction
        until their status is written again.
        """
        self.evictions.eviction_refused(victim, by_budget=by_budget)

    def grow_older(self) -> None:
        """Forget old records of evictions (see Evictions); call this every OLDER_SECONDS."""
        self.evictions.grow_older()

    def assume_volumes(
        self,
        pod: Pod,
        volumes: Sequence[PersistentVolume],
        claims: Sequence[PersistentVolumeClaim],
    ) -> None:
        """Use these versions of volumes and claims until the watch shows newer ones."""
        self.storage.volumes.assume(pod.uid, volumes, claims)

    def restore_volumes(self, pod: Pod) -> None:
        """Undo `assume_volumes` for the pod; objects that another pod has assumed stay assumed."""
        self.storage.volumes.restore(pod.uid)

    def track_cards(self, form: CardFormat, *, demand: bool = False) -> Cards:
        """Return the counts of GPU cards in this format; the state keeps them up to date.

        With `demand`, the pods' typical requests for cards are also counted.
        """
        return self.devices.track(form, demand=demand)

    def assign_cards(self, pod: Pod, form: CardFormat, assignment: Assignment) -> None:
        """Assign these cards to the assumed pod, until the watch shows the pod's annotations."""
        placed = self.pods.assumed.get(pod.uid)
        if placed is not None:
            self.devices.assign(placed, form, assignment)
            self.nodes.changes.mark(placed.row)

    def hold_claims(self, holder: Uid, allocations: Mapping[str, Allocation]) -> None:
        """Mark the allocations (by claim uid) as in flight for the pod with the uid `holder`.

        The devices are in use until `release_claims` or `forget`. A claim that is in flight for
        another pod does not change.
        """
        self.dynamic_resources.claims.hold(holder, allocations)

    def release_claims(self, holder: Uid, claims: Iterable[str] | None = None) -> None:
        """Undo `hold_claims` for the claims with these uids; None means all claims of `holder`.

        Deliver an UPDATE for each claim whose devices become free.
        """
        self._deliver(self._release_claims(holder, claims))

    def _release_claims(
        self, holder: Uid, claims: Iterable[str] | None = None
    ) -> tuple[ClusterEvent, ...]:
        return tuple(
            ClusterEvent(
                Kind.RESOURCE_CLAIM, Action.UPDATE, replace(claim, allocation=allocation), claim
            )
            for claim, allocation in self.dynamic_resources.claims.release(holder, claims)
            if claim.allocation is None
        )

    def settle_claims(self, pod: Pod) -> None:
        """Allocate the pod's claims and reserve them for the pod in the state only.

        Simulations use this instead of PreBind, which writes to an API server.
        """
        claims = self.dynamic_resources.claims
        of_group = self.pod_groups.of(pod)
        group = of_group.definition if of_group is not None else None
        for claim in claims.named_by(pod):
            allocation = claim.allocation or claims.in_flight(claim.uid)
            mine = consumer_of(pod, claim, group)
            others = [each for each in claim.reserved_for if each.uid != mine.uid]
            if allocation is not None:
                reserved = replace(claim, allocation=allocation, reserved_for=(*others, mine))
                self.put(Kind.RESOURCE_CLAIM, claim.key, reserved)
        for uid, allocation in claims.held(pod.uid).items():
            if claims.of_uid(uid) is None:  # the claim for extended resources, which is created
                name = f"{pod.name}-extended-resources-{pod.uid}"
                new = claim_of_scheduler(pod.namespace, name, uid, pod.uid)
                made = replace(
                    new, allocation=allocation, reserved_for=(consumer_of(pod, new, None),)
                )
                self.put(Kind.RESOURCE_CLAIM, made.key, made)
        self.release_claims(pod.uid)

    def assume_claim(self, claim: ResourceClaim) -> bool:
        """Store `claim`, an answer of the API server, before the watch shows it.

        Return False if the watch has already shown a newer version, or the deletion of the claim.
        """
        before = self.dynamic_resources.claims.assume(claim)
        # No second event follows when the watch shows the same version.
        if before is not None:
            self._deliver((ClusterEvent(Kind.RESOURCE_CLAIM, Action.UPDATE, before, claim),))
        return before is not None

    def track_pod_groups(self, formats: tuple[GroupFormat, ...]) -> None:
        """Recognize pod groups by exactly these formats from now on.

        Assign every pod to its group again. Other tasks may run meanwhile; the caller must keep
        them from changing the state.
        """
        counted = self.pod_groups.track(formats)
        try:
            for pod in counted:
                self._renew_group(pod)
                pause()
        finally:  # whoever is ended in a pause leaves nothing half counted
            for pod in counted:
                self._renew_group(pod)

    def _renew_group(self, pod: Pod) -> None:
        self._queues.names_changed()
        if (placed := self.pods.get(pod.uid)) is not None:
            self.pod_columns.renew(placed, self.pod_groups.number_of(pod.uid))

    @property
    def queues(self) -> Queues:
        """The Queues (of quota), after all changes of Queues and namespaces have been applied.

        While the changes are applied, other tasks may run, but must not change the state.
        """
        if not self._queues.is_settled:
            namespaces = self._queues.settle()
            for placed in tuple(self.pods) if namespaces is None else self._in(namespaces):
                self._renew_queue(placed)
                pause()
            self.nominations.requeue()
            self._queues.settled()
        return self._queues

    def _in(self, namespaces: Iterable[str]) -> list[PlacedPod]:
        chosen = self.pod_columns.in_namespaces(namespaces) & (self.pod_columns.rows >= 0)
        pods = (self.pod_columns.pods[slot] for slot in np.flatnonzero(chosen).tolist())
        found = (self.pods.get(pod.uid) for pod in pods if pod is not None)
        return [placed for placed in found if placed is not None]

    def _renew_queue(self, placed: PlacedPod, *, leaves: bool = True) -> None:
        before, number = placed.queue, self._queues.number_of(placed.pod)
        # Without `leaves`, users cannot enlarge a quota by removing labels from pods on nodes.
        if before != number and (leaves or number != NO_QUEUE):
            self._queues.detach(before, placed.pod)
            self._queues.attach(number, placed.pod)
            placed.queue = number
            self.pod_columns.requeue(placed.slot, number)

    def _renew_queues_of(self, group: PodGroupState) -> None:
        members = group.unscheduled, group.assumed, group.assigned, group.terminating
        for uid in (uid for pods in members for uid in pods):
            if (placed := self.pods.get(uid)) is not None:
                self._renew_queue(placed, leaves=False)
            if (nominee := self.nominations.get(uid)) is not None:
                self.nominations.put_back(nominee)

    def take_changed_groups(self) -> dict[GroupKey, None]:
        """Return the keys of groups changed since the last call; the first call returns all."""
        return self.pod_groups.take_changed()

    @contextmanager
    def trial(self, *, frees_claims: bool = False) -> Iterator["Trial"]:
        """Begin a dry run on the live state; the end of the context undoes all changes.

        No event is delivered. With `frees_claims`, removing a pod also frees the devices of claims
        that no other pod uses.
        """
        # As in kube-scheduler, preemption does not set `frees_claims`.
        self._trials += 1
        try:
            with self.delivered_after(), self.pod_groups.trial(), ExitStack() as undo:
                yield Trial(self, undo, frees_claims=frees_claims)
        finally:
            self._trials -= 1

    @property
    def is_tried(self) -> bool:
        """Whether a trial is open; decisions must then not be carried out."""
        return self._trials > 0

    def overdue(self, now: float) -> list[Pod]:
        """Return the assumed pods whose binding the watch has not shown by their deadline."""
        return [
            placed.pod
            for placed in self.pods.assumed.values()
            if placed.deadline is not None and placed.deadline <= now
        ]

    def pods_of(self, node: str) -> tuple[PlacedPod, ...]:
        """Return the pods on the node of this name, even if the node does not exist."""
        row = self.nodes.row_of.get(node)
        if row is not None:
            return tuple(self.pods.on(row))
        return tuple(self._on_unknown_nodes.get(node, {}).values())

    def pods_without_node(self) -> list[PlacedPod]:
        """Return the pods whose node does not exist."""
        return [placed for pods in self._on_unknown_nodes.values() for placed in pods.values()]

    def _put_pod(self, pod: Pod) -> tuple[ClusterEvent, ...]:
        pod = self._with_demand(pod)
        if pod.node_name is None or pod.finished:
            return self._delete_pod(pod.uid)
        known = self.pods.get(pod.uid)
        self.pod_groups.drop_unscheduled(pod.uid)  # a pod keeps its node until it is gone
        if known is not None and known.pod.node_name != pod.node_name:
            # An assumed pod may turn up on another node.
            return (*self._delete_pod(pod.uid), *self._put_pod(pod))
        if known is not None and _in_place(known.pod, pod):
            return self._update_in_place(known, pod)
        self._detach(pod.uid)
        row = self.nodes.row_of.get(pod.node_name)
        withdrawn = self._withdraw_elsewhere(pod, row) if known is None else ()
        row = self.nodes.unknown_row if row is None else row
        cards = known.cards if known is not None else None
        queue = known.queue if known is not None else NO_QUEUE
        placed = PlacedPod(pod, row, cards=cards, queue=queue)
        self._attach(placed)
        if known is None:
            self._publish_demand(placed)
        else:
            self.devices.renew(placed)
        if pod.terminating:
            self.evictions.victim_terminating(pod)
        if known is None or not known.announced:
            return (*withdrawn, ClusterEvent(Kind.POD, Action.ADD, None, pod))
        return (ClusterEvent(Kind.POD, Action.UPDATE, known.pod, pod),)

    def _with_demand(self, pod: Pod) -> Pod:
        demands = pod.spec.demands
        # Only the demand of a pod that is being resized depends on the version.
        if demands is None:
            return pod
        demand, known = demands[self.kubernetes.version], self.pods.get(pod.uid)
        if known is not None and known.pod.spec.demands is demands:
            before = known.pod.spec
            if before.demand is demand:
                return replace(pod, spec=before)  # so that both are seen to be equal
        return replace(pod, spec=replace(pod.spec, demand=demand))

    def _update_in_place(self, known: PlacedPod, pod: Pod) -> tuple[ClusterEvent, ...]:
        """Replace a placed pod by a newer version with equal requests on the same node."""
        before, announced = known.pod, known.announced
        known.pod, known.assumption = pod, None
        self.pods.assumed.pop(pod.uid, None)
        # Labels may differ: users change them, and not every API server adds labels of the node.
        recounted = not _is_equivalent(before, pod)
        if recounted:
            self.topology.detach(known.equivalent, known.row)
            known.equivalent = self.topology.attach(pod, known.row)
        self.pod_groups.attach(known)
        if before.labels != pod.labels or before.annotations != pod.annotations:
            self._renew_queue(known, leaves=False)
        self.pod_columns.renew(known, self.pod_groups.number_of(pod.uid))
        if self.devices.renew(known) or recounted:
            self.nodes.changes.mark(known.row)
        if pod.terminating and not before.terminating:
            self.evictions.victim_terminating(pod)
        if not announced:
            return (ClusterEvent(Kind.POD, Action.ADD, None, pod),)
        if before.annotations == pod.annotations and not recounted:
            return ()  # a status that nothing depends on, of which there are many
        return (ClusterEvent(Kind.POD, Action.UPDATE, before, pod),)

    def _publish_demand(self, placed: PlacedPod) -> None:
        if self.devices.publish(placed):
            # This makes all cached scores invalid.
            self.nodes.set_version += 1

    def _withdraw_elsewhere(self, pod: Pod, row: int | None) -> tuple[ClusterEvent, ...]:
        nominee = self.nominations.get(pod.uid)
        withdrawn = self._withdraw(pod.uid)
        return () if nominee is not None and nominee.row == row else withdrawn

    def _object_changed(self, kind: Kind, key: str, before: Any, after: Any) -> Any:
        """Update what is derived from the object; return the version that decisions have used."""
        self.storage.object_changed(kind, key, before, after)
        self._queues.changed(kind, key, before, after)
        if kind in GROUP_KINDS:
            group = self.pod_groups.define(kind, key, after)
            names = [each.queue if isinstance(each, PodGroup) else "" for each in (before, after)]
            if names[0] != names[1]:  # a status is written often, and there may be 50,000 members
                self._renew_queues_of(group)
        if kind is Kind.POD_DISRUPTION_BUDGET:
            self.evictions.budget_written(key, after)
        return self.dynamic_resources.object_changed(kind, key, before, after)

    def _relabelling(self, node: str, labels: Mapping[str, str]) -> AbstractContextManager[None]:
        """Count the node's pods again after a `with` block that changes the node's labels."""
        row = self.nodes.row_of.get(node)
        known = self.nodes.nodes[row] if row is not None else None
        if row is None or known is None or known.labels == labels:
            return nullcontext()
        return self.topology.relabelling([placed.equivalent for placed in self.pods.on(row)], row)

    def _withdraw_from(self, row: int) -> None:
        for nominee in self.nominations:
            if nominee.row == row:
                self.nominations.drop(nominee.pod.uid)
                self.evictions.stop_waiting(nominee.pod)

    def _move(self, pods: Iterable[PlacedPod], row: int) -> None:
        """Move the pods, all of one row, to `row`: their node was added or deleted."""
        moved = tuple(pods)
        if not moved:
            return
        before = moved[0].row
        self.devices.detach(moved)
        self.nodes.move_pods([placed.pod for placed in moved], before, row)
        left = iter(moved)
        try:
            for placed in left:
                self._move_one(placed, row)
                # A task that runs in the pause must not change the state.
                pause()
        finally:  # whoever is ended in a pause leaves nothing half moved
            for placed in left:
                self._move_one(placed, row)
            self.devices.attach(moved)

    def _move_one(self, placed: PlacedPod, row: int) -> None:
        before, pod = placed.row, placed.pod
        self._leave_unknown_node(placed)
        self.storage.remove_pod(before, pod)
        self.storage.add_pod(row, pod)
        self.topology.move(placed.equivalent, before, row)
        self.pods.move(placed, row)
        self.pod_columns.move(placed)
        self._enter_unknown_node(placed)

    def _attach(self, placed: PlacedPod, arrival: int | None = None) -> None:
        self.pod_groups.attach(placed)
        self._enter(placed, next(self._arrivals) if arrival is None else arrival)

    def _detach(self, uid: Uid) -> int | None:
        placed = self.pods.get(uid)
        if placed is None:
            return None
        arrival = self._leave(placed)
        self.pod_groups.detach(placed)
        return arrival

    def _enter(self, placed: PlacedPod, arrival: int) -> None:
        # `_leave` undoes exactly this.
        pod, row = placed.pod, placed.row
        self.pods.put(placed)
        self.nodes.add_pod(row, pod)
        placed.equivalent = self.topology.attach(pod, row)
        self.storage.add_pod(row, pod)
        self._enter_unknown_node(placed)
        self.devices.attach((placed,))
        if (queue := self._queues.number_of(pod)) != NO_QUEUE:
            placed.queue = queue  # else it stays in its former queue; see `_renew_queue`
        self._queues.attach(placed.queue, pod)
        self.pod_columns.place(
            placed,
            arrival=arrival,
            evicting=self.evictions.evicting(pod),
            group=self.pod_groups.number_of(pod.uid),
        )

    def _leave(self, placed: PlacedPod) -> int:
        pod, row = placed.pod, placed.row
        self._queues.detach(placed.queue, pod)
        arrival = self.pod_columns.displace(placed)
        self._leave_unknown_node(placed)
        self.devices.detach((placed,))
        self.storage.remove_pod(row, pod)
        self.topology.detach(placed.equivalent, row)
        self.nodes.remove_pod(row, pod)
        self.pods.pop(pod.uid)
        return arrival

    def _enter_unknown_node(self, placed: PlacedPod) -> None:
        if self.nodes.is_unknown(placed.row):
            on_same = self._on_unknown_nodes.setdefault(placed.pod.node_name or "", {})
            on_same[placed.pod.uid] = placed

    def _leave_unknown_node(self, placed: PlacedPod) -> None:
        if self.nodes.is_unknown(placed.row):
            drop_item(self._on_unknown_nodes, placed.pod.node_name or "", placed.pod.uid)


def _offered(node: Node) -> tuple[int, Mapping[str, int]]:
    return node.pod_slots, node.allocatable


def _same_object(before: object | None, after: object) -> bool:
    if isinstance(before, Node) and isinstance(after, Node):
        return all(getattr(before, f.name) == getattr(after, f.name) for f in fields(Node))
    if isinstance(before, PodGroup) and isinstance(after, PodGroup):
        # Decisions do not read the status.
        return replace(before, status=after.status) == after
    return before == after


def _changed(before: Pod, pod: Pod) -> bool:
    return (
        before.spec is not pod.spec
        or before.labels != pod.labels
        or before.annotations != pod.annotations
        or before.terminating != pod.terminating
    )


def _in_place(known: Pod, pod: Pod) -> bool:
    return (
        known.spec.demand == pod.spec.demand
        and known.spec.host_ports == pod.spec.host_ports
        and known.volumes == pod.volumes
        and known.claim_names == pod.claim_names
    )


def _is_equivalent(known: Pod, pod: Pod) -> bool:
    # Inter-pod affinity and topology spread read nothing else of a pod on a node.
    return (
        known.labels == pod.labels
        and known.spec.affinity == pod.spec.affinity
        and known.terminating == pod.terminating
    )


def _drop(_events: tuple[ClusterEvent, ...]) -> None:
    """Ignore the events of a simulation, to which nothing reacts."""


class Trial:
    """Changes pods, nominations, claims and selectors for a dry run; see `ClusterState.trial`."""

    def __init__(self, state: ClusterState, undo: ExitStack, *, frees_claims: bool) -> None:
        self._state = state
        self._undo = undo
        self._frees_claims = frees_claims
        self._added: dict[Uid, Mapping[str, Allocation]] = {}
        """Maps the uid of an added pod to the allocations that were in flight for the pod before
        the trial."""
        self._assuming: dict[Uid, Pod] = {}
        """The added pods that had no assumed volumes before the trial, by uid."""
        self._removed: dict[Uid, tuple[PlacedPod, int | None]] = {}
        """Maps a uid to the removed pod and the arrival number that the pod had before the
        trial."""
        self._freed: dict[Uid, ExitStack] = {}
        """Maps the uid of a removed pod to an ExitStack that restores the claims which the removal
        freed."""
        undo.callback(self._restore)

    def remove(self, uid: Uid) -> None:
        """Remove the placed pod of this uid; do nothing if it is on no existing node.

        If this trial added the pod, undo its changes of claims and volumes, too.
        """
        placed = self._state.pods.get(uid)
        if placed is not None and self._state.nodes.nodes[placed.row] is not None:
            arrival = self._state._detach(uid)  # noqa: SLF001 - the other half of one class
            if uid in self._added:
                self._take_claims_back(uid, self._added.pop(uid))
            else:
                self._removed[uid] = placed, arrival
                self._free_claims(uid)

    def withdraw(self, uid: Uid) -> None:
        """Remove the nomination of the pod of this uid, if it has one."""
        nominee = self._state.nominations.drop(uid)
        if nominee is not None:
            self._undo.callback(self._state.nominations.put_back, nominee)

    def add(self, pod: Pod, row: int) -> None:
        """Add the pod, which must not be on a node now, to the node of this row.

        A pod that this trial removed from the node gets its arrival number and its claims back.
        """
        placed, arrival = self._removed.get(pod.uid, (None, None))
        if placed is not None and placed.pod is pod and placed.row == row:
            self._state._attach(placed, arrival)  # noqa: SLF001 - see above
            del self._removed[pod.uid]
            if pod.uid in self._freed:
                self._freed.pop(pod.uid).close()
        else:
            added = PlacedPod(pod, row, Assumption(announced=True))
            self._state._attach(added)  # noqa: SLF001 - see above
            self._added[pod.uid] = self._state.dynamic_resources.claims.held(pod.uid)
            if pod.volumes and not self._state.storage.volumes.holds(pod.uid):
                self._assuming[pod.uid] = pod

    def hold_claims(self, holder: Uid, allocations: Mapping[str, Allocation]) -> None:
        """Mark these allocations (by claim uid) as in flight for a pod that this trial added."""
        self._state.hold_claims(holder, allocations)

    def nominate(self, pod: Pod, row: int) -> None:
        """Nominate the pod to the node of this row; the pod must not be nominated now."""
        self._state.nominations.put(pod, row)
        self._undo.callback(self._state.nominations.drop, pod.uid)

    def put(self, kind: Kind, key: str, value: Any) -> None:
        """Store a Service or a controller of pods, so that its selector is used.

        Other kinds are not allowed, because the trial could not undo their effects.
        """
        objects = self._state.objects
        before = objects.put(kind, key, value)
        if before is None:
            self._undo.callback(objects.pop, kind, key)
        else:
            self._undo.callback(objects.put, kind, key, before)

    def ask(self, claim: str, spec: ClaimSpec) -> None:
        """Replace the requests of the ResourceClaim of uid `claim`, which must not be allocated."""
        claims = self._state.dynamic_resources.claims
        self._undo.enter_context(claims.asking(claim, spec))

    def _free_claims(self, uid: Uid) -> None:
        if not self._frees_claims:
            return
        freed = self._freed[uid] = ExitStack()
        freed.enter_context(self._state.dynamic_resources.claims.without(uid))

    def _take_claims_back(self, uid: Uid, held: Mapping[str, Allocation]) -> None:
        claims = self._state.dynamic_resources.claims
        claims.release(uid)
        claims.hold(uid, held)
        if (pod := self._assuming.pop(uid, None)) is not None:
            self._state.restore_volumes(pod)

    def _restore(self) -> None:
        for uid, held in reversed(self._added.items()):
            self._state._detach(uid)  # noqa: SLF001 - see above
            self._take_claims_back(uid, held)
        for freed in reversed(self._freed.values()):
            freed.close()
        for placed, arrival in reversed(self._removed.values()):
            self._state._attach(placed, arrival)  # noqa: SLF001 - see above
