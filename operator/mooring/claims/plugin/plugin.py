"""Allocates devices to a pod's claims and reserves the claims for the pod (dynamicresources).

PreFilter finds the claims. Filter searches devices on each node. Reserve marks the allocation as
"in flight": its devices are in use although it is not written yet. PreBind writes the allocation to
the claims, and waits until the devices are bound. Unreserve removes the written reservation.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from mooring.claims.claim_report import ClaimsReport, ExplainsClaims
from mooring.claims.model.device_classes import DeviceClass
from mooring.claims.model.resource_claims import Allocation, DeviceId, ResourceClaim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.claim_explanation import (
    claim_states,
    devices_excluded,
    devices_to_free,
)
from mooring.claims.plugin.claim_writer import ClaimWriter
from mooring.claims.plugin.equivalence import (
    EquivalentNodes,
    Result,
    score_of,
)
from mooring.claims.plugin.extended_resource_claims import (
    NewClaim,
    extended_resources_of,
)
from mooring.claims.plugin.pod_claims import (
    PodClaims,
    binding_failure,
    claims_of,
    is_bindable,
    is_reserved,
    may_be_freed,
    pod_claims,
)
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.post_filter import PodGroupPostFilterState, PostFilterState
from mooring.framework.verdicts import (
    SKIP,
    Explanation,
    PluginError,
    Skip,
    Unschedulable,
)
from mooring.gpu_cards.card_plugin import AssignsInTrials
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod, Uid
from mooring.model.selectors import LabelSelector
from mooring.pausing import pause
from mooring.policy.durations import Duration
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel
from mooring.quota.model.queue import CAPACITY_SCHEDULING
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView


class DynamicResourcesArgs(PolicyModel):
    """Arguments of DynamicResources: the time limit for the binding of devices."""

    filter_timeout: Duration = timedelta(seconds=10)
    """Has no effect: searches for devices are limited in steps, not in time."""
    binding_timeout: Duration = timedelta(seconds=600)

    def mistakes(self) -> Iterator[FieldError]:
        """Yield the mistakes: a negative filter timeout, or a binding timeout below a second."""
        if self.filter_timeout < timedelta(0):
            yield FieldError("filterTimeout", "must be 0s or more")
        if self.binding_timeout < timedelta(seconds=1):
            yield FieldError("bindingTimeout", "must be 1s or more")


_NO_DEVICES: Final = "cannot allocate all claims"
_ELSEWHERE: Final = "resourceclaim not available on the node"
_MEMBERS_AT_ONCE: Final = 20
"""The number of a group's members that PostFilter examines before it lets other tasks run."""


class DynamicResources(AssignsInTrials, ExplainsClaims):
    """Rejects nodes without devices for the pod's claims, and allocates devices.

    A node scores higher if the claims get earlier alternatives of their requests there.
    """

    name: ClassVar[str] = "DynamicResources"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.MAX
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            *((Kind.RESOURCE_CLAIM, action) for action in Action),
            *((Kind.DEVICE_TAINT_RULE, action) for action in Action),
            *(
                (kind, action)
                for kind in (Kind.NODE, Kind.DEVICE_CLASS, Kind.RESOURCE_SLICE)
                for action in (Action.ADD, Action.UPDATE)
            ),
            (Kind.RESOURCE_SLICE, Action.DELETE),
            (Kind.DEVICE_CLASS, Action.DELETE),
            (Kind.POD, Action.DELETE),
        }
    )

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._timeout = args.binding_timeout.total_seconds()
        self._rules = handle.kubernetes
        self._cluster = handle.cluster
        self._api = handle.api
        self._cache = handle.assume_cache
        self._writer = ClaimWriter(handle.api, handle.assume_cache, handle.cluster)
        self._evaluations = handle.evaluations
        self._metrics, self._profile = handle.device_metrics, handle.profile
        self._nodes = EquivalentNodes(handle.kubernetes, handle.evaluations)
        self._expected: dict[Uid, dict[str, Allocation]] = {}
        """The allocations that a pod's claims had at Reserve, by the pod's uid and the claim's uid.

        This, `_begun` and `_new` have entries until PreBind succeeds, or `unreserve` is called.
        """
        self._begun: dict[Uid, dict[str, ResourceClaim]] = {}
        """The claims that PreBind has begun to write, by the pod's uid and the claim's uid."""
        self._unreserved = count()
        """Numbers the calls of `unreserve`. The number is in the name under which a call keeps
        allocations in flight after the pod is forgotten."""
        self._new: dict[Uid, NewClaim] = {}
        """The claims for extended resources that PreBind must create, by the pod's uid."""
        self._overdue: dict[str, None] = {}
        """The uids of claims whose devices were not bound in time, until PostFilter frees them."""

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """Return why the pod must wait for its claims; None if all exist and it may use them."""
        claims = claims_of(pod, self._cluster) if pod.spec.resource_claims else None
        return claims if isinstance(claims, Unschedulable) else None

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | PodClaims | Unschedulable:
        """Return the pod's claims; SKIP if the pod needs no claims or devices.

        Return Unschedulable if no node is suitable at present.
        """
        if not pod.spec.resource_claims and not pod.spec.containers:
            return SKIP
        claims = pod_claims(pod, cluster)
        if isinstance(claims, Unschedulable):
            return claims
        claims.extended = extended_resources_of(pod, cluster, self._rules)
        unknown = cluster.dynamic_resources.unknown
        if unknown is not None and claims.extended is not None:
            return Unschedulable(unknown)
        if not claims.claims and claims.extended is None:
            return SKIP
        claims.broken = frozenset(c.uid for c in claims.claims if self._is_broken(c))
        return claims

    def filter(self, pod: Pod, nodes: NodeView, claims: PodClaims) -> BoolArray:
        """Return bool[nodes]: True where all claims of the pod have devices or can get devices."""
        fits = self._available(nodes, claims)
        left = np.flatnonzero(fits)
        if len(left):
            looked_at = nodes.take(nodes.rows[left])
            for positions, waiting in claims.on_nodes(looked_at):
                found = self._nodes.results(
                    looked_at.take(looked_at.rows[positions]), waiting, self._cluster
                )
                fits[left[positions]] = found.fits
        return fits

    def explain(self, pod: Pod, nodes: NodeView, claims: PodClaims) -> Explanation:
        """Return the reason for each rejected node; evicting pods cannot help on any of them."""
        if not claims.to_allocate and claims.extended is None:
            return Explanation.single(_ELSEWHERE, len(nodes), resolvable=False)
        numbers = {_ELSEWHERE: 0}
        said = np.zeros(len(nodes), np.int64)
        for positions, waiting in claims.on_nodes(nodes):
            found = self._nodes.results(nodes.take(nodes.rows[positions]), waiting, self._cluster)
            by_class, which = found.by_class()
            texts = [numbers.setdefault(_text(each), len(numbers)) for each in by_class]
            said[positions] = np.array(texts, np.int64)[which]
        for position, text in enumerate(self._rejections(claims, nodes)):
            if text:
                said[position] = numbers.setdefault(text, len(numbers))
        return Explanation.from_masks(
            ((text, said == number) for text, number in sorted(numbers.items())),
            resolvable=np.zeros(len(nodes), np.bool_),
        )

    def explain_claims(self, pod: Pod) -> ClaimsReport | None:
        """Return the states of the pod's claims, and why claims have no devices.

        Returns None if the pod names no claims.
        """
        if not pod.spec.resource_claims:
            return None
        states, count = claim_states(pod, self._cluster), self._cluster.node_count
        try:
            claims = pod_claims(pod, self._cluster)
        except PluginError as error:
            return ClaimsReport(states, 0, count, str(error))
        if isinstance(claims, Unschedulable):
            return ClaimsReport(states, 0, count, claims.reason)
        waiting = claims.to_allocate
        if not waiting:
            return ClaimsReport(states, 0, 0)
        self._evaluations.begin_attempt()
        try:
            classes = self._nodes.classes(self._cluster, waiting)
        except PluginFailed:
            return ClaimsReport(states, 0, count)
        budget = Budget(evaluations=self._evaluations)
        allocator = self._nodes.allocator(waiting, self._cluster, budget)
        return devices_excluded(pod, self._cluster, self._nodes, classes, allocator)

    def rows_if_freed(self, pod: Pod, rows: IntArray) -> list[int]:
        """Return the `rows` whose nodes might have enough devices if all devices were free."""
        claims, found = self.pre_filter(pod, self._cluster), list[tuple[int, int]]()
        if isinstance(claims, PodClaims):
            nodes = self._cluster.nodes.take(rows)
            for positions, waiting in claims.on_nodes(nodes):
                self._evaluations.begin_attempt()
                classes = self._nodes.classes(self._cluster, waiting)
                budget = Budget(evaluations=self._evaluations)
                allocator = self._nodes.allocator(waiting, self._cluster, budget)
                found += devices_to_free(
                    rows[positions], self._cluster, self._nodes, classes, allocator
                )
        return [row for _, row in sorted(found)]

    def post_filter(self, state: PostFilterState) -> Unschedulable:
        """Free a claim that makes nodes unsuitable, if no other pod uses the claim.

        The devices are freed in a task. The message of the result says what is freed, or why
        nothing is freed.
        """
        rejected_by = state.diagnosis.pre_filter_plugins
        if rejected_by == {CAPACITY_SCHEDULING}:
            return Unschedulable("", resolvable=True)  # no claim keeps the pod off a node
        if state.diagnosis.pre_filter is not None and self.name not in rejected_by:
            # As in kube-scheduler: PreFilter of another plugin rejected the pod.
            return Unschedulable("not found")
        claims = self.pre_filter(state.pod, state.cluster)
        if not isinstance(claims, PodClaims):
            return self._nothing_to_free("no new claims to deallocate")
        rows = [group.rows for group in state.diagnosis.rejected if group.plugin == self.name]
        nodes = state.cluster.nodes.take(np.unique(np.concatenate(rows))) if rows else None
        freed = self._freed(state.pod, claims, nodes)
        if freed is None:
            return self._nothing_to_free("still not schedulable")
        return Unschedulable(freed, resolvable=True)

    def pod_group_post_filter(self, state: PodGroupPostFilterState) -> Unschedulable:
        """Free a claim of each member of the group, as `post_filter` does for one pod."""
        done, cluster, without = "", state.cluster, set[int]()
        for number, member in enumerate(state.members):
            if number % _MEMBERS_AT_ONCE == 0:
                pause()
            if id(member.spec) in without:
                continue
            claims = self.pre_filter(member, cluster)
            if claims is SKIP and not member.spec.resource_claims:
                without.add(id(member.spec))  # which the members keep
            if isinstance(claims, PodClaims):
                nodes = cluster.nodes.take(cluster.nodes_in_order)
                if self._freed(member, claims, nodes) is not None:
                    done = "deallocation and deletion of ResourceClaims completed"
        return Unschedulable(done, resolvable=True)

    def pre_score(self, pod: Pod, _nodes: NodeView, cluster: ClusterView) -> Skip | PodClaims:
        """Return the pod's claims; SKIP if no request has alternatives that are scored."""
        if not self._rules.device_alternatives_scored or not pod.spec.resource_claims:
            return SKIP
        claims = self.pre_filter(pod, cluster)
        if not isinstance(claims, PodClaims):
            return SKIP
        requests = (r for claim in claims.claims for r in claim.spec.requests)
        return claims if any(r.first_available for r in requests) else SKIP

    def score(self, pod: Pod, nodes: NodeView, claims: PodClaims) -> IntArray:
        """Return int64[nodes]: the sum of a score for each request that has alternatives.

        A request scores 8 on nodes where it gets its first alternative, 7 for the second, etc.
        """
        known = sum(
            score_of(c, a) for c in claims.claims if (a := claims.allocation(c)) is not None
        )
        scores = np.full(len(nodes), known, np.int64)
        for positions, waiting in claims.on_nodes(nodes):
            found = self._nodes.results(nodes.take(nodes.rows[positions]), waiting, self._cluster)
            scores[positions] += found.scores
        return scores

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """Mark devices of the node as in flight for the pod; return why this fails, or None.

        Also stores what `pre_bind` needs. Does nothing if the node was deleted.
        """
        row = self._cluster.row(node)
        if row is None:
            return None
        claims = claims_of(pod, self._cluster) if pod.spec.resource_claims else None
        if isinstance(claims, list):
            self._expected[pod.uid] = {c.uid: c.allocation for c in claims if c.allocation}
        found = self._assigned(pod, row)
        if isinstance(found, NewClaim):
            self._new[pod.uid] = found
        return found if isinstance(found, Unschedulable) else None

    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Mark devices of the row's node as in flight for the pod; return why this fails, or None.

        Call this only in a trial. A pod that has devices keeps them. Raises PluginFailed if the
        attempt's budget is used up.
        """
        if self._cluster.dynamic_resources.claims.held(pod.uid):
            return None
        try:
            found = self._assigned(pod, row)
        except PluginFailed:
            raise
        except PluginError as error:
            return Unschedulable(str(error))
        return found if isinstance(found, Unschedulable) else None

    def unreserve(self, pod: Pod, _node: str) -> None:
        """In a task, remove the pod's reservations, and delete its claim for extended resources."""
        self._expected.pop(pod.uid, None)
        self._new.pop(pod.uid, None)
        begun, known = self._begun.pop(pod.uid, {}), self._cluster.dynamic_resources
        left = [*known.claims.reserved_for(pod.uid), *known.claims.for_extended_resources(pod)]
        claims = begun | {claim.uid: claim for claim in left}
        if not claims:
            return
        # PreBind may have written these claims, so they stay in flight until they are read again.
        # Other devices in flight are freed when the pod is forgotten.
        held = known.claims.held(pod.uid)
        holder = Uid(f"{pod.uid}/unreserve/{next(self._unreserved)}")
        self._cache.hold_claims(holder, {uid: held[uid] for uid in begun if uid in held})
        self._api.later(partial(self._writer.unreserve, pod, claims.values(), holder))

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Write the devices to the pod's claims, and wait until they are bound.

        If necessary, create the claim for extended resources. Raises PluginError if a claim has
        changed, or if its devices are not bound in time.
        """
        new = self._new.get(pod.uid)
        if not pod.spec.resource_claims and new is None:
            return
        claims = claims_of(pod, self._cluster)
        if isinstance(claims, Unschedulable):
            raise PluginError(claims.reason)
        held = self._cluster.dynamic_resources.claims.held(pod.uid)
        expected = {**self._expected.get(pod.uid, {}), **held}
        for claim in claims:
            if claim.uid not in expected:
                raise PluginError(f"claim {claim.key} is another one than before")
            if not is_reserved(claim, pod, self._cluster):
                self._begun.setdefault(pod.uid, {})[claim.uid] = claim
            await self._writer.reserve(pod, claim, expected[claim.uid], is_new=claim.uid in held)
        if new is not None:
            claims.append(await self._created(pod, new, held[new.claim.uid]))
        await self._until_bound(pod, node, [claim.uid for claim in claims])
        self._begun.pop(pod.uid, None)
        self._expected.pop(pod.uid, None)
        self._new.pop(pod.uid, None)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the event may free or add devices, or may change the pod's claims."""
        match event.before, event.after:
            case None, None:  # all devices are known now
                return QueueingHint.QUEUE
            case Node() as before, Node() as after:
                same = (before.labels, before.allocatable) == (after.labels, after.allocatable)
                return queue_if(not same)
            case ResourceClaim() | None as before, ResourceClaim() | None as after:
                return queue_if(self._may_help(pod, before, after))
            case DeviceClass() as gone, None:  # another may stand for the resource now
                return queue_if(gone.extended_resource in pod.spec.demand.resources)
            case Pod() as gone, _:  # what was in flight for a pod that was not bound is free
                return queue_if(gone.phase == "Pending" and self._has_claims(gone))
            case _:
                return QueueingHint.QUEUE

    def _may_help(
        self, pod: Pod, before: ResourceClaim | None, after: ResourceClaim | None
    ) -> bool:
        claims = claims_of(pod, self._cluster)
        if isinstance(claims, Unschedulable):
            return False
        if not _held(before) <= _held(after):
            return True
        if before is not None and after is None:  # the claim that an earlier attempt has left?
            return before.for_extended_resources and before.controller_uid == pod.uid
        if after is None or all(claim.uid != after.uid for claim in claims):
            return False
        if before is None or before.uid != after.uid:  # no watch may have seen the former one go
            return True
        return _status(before) != _status(after)

    def _has_claims(self, pod: Pod) -> bool:
        if pod.spec.resource_claims:
            return True
        return extended_resources_of(pod, self._cluster, self._rules) is not None

    def _nothing_to_free(self, text: str) -> Unschedulable:
        return Unschedulable(
            text if self._rules.claims_in_preemption_message else "", resolvable=True
        )

    def _is_broken(self, claim: ResourceClaim) -> bool:
        if claim.allocation is None:
            return False
        return binding_failure(claim) is not None or (
            claim.uid in self._overdue and not is_bindable(claim)
        )

    def _freed(self, pod: Pod, claims: PodClaims, nodes: NodeView | None) -> str | None:
        """Begin to free a claim that makes nodes unsuitable; return PostFilter's message."""
        if claims.extended is not None and claims.extended.stale is not None:
            self._api.later(partial(self._writer.delete, pod, claims.extended.stale))
            return "deletion of ResourceClaim completed"
        for claim in self._unavailable(claims, nodes):
            if may_be_freed(claim, pod, self._cluster):
                if not self._cluster.is_tried:
                    self._overdue.pop(claim.uid, None)
                    self._writer.deallocate_later(pod, claim)
                return "deallocation of ResourceClaim completed"
        return None

    def _unavailable(self, claims: PodClaims, nodes: NodeView | None) -> Iterator[ResourceClaim]:
        if nodes is None:
            return
        for claim in claims.claims:
            if claim.allocation is None:
                continue
            where = claim.allocation.node_selector
            if claim.uid in claims.broken or (
                where is not None and not nodes.admitted(LabelSelector(), where).all()
            ):
                yield claim

    def _rejections(self, claims: PodClaims, nodes: NodeView) -> list[str]:
        if claims.extended is None or claims.extended.fits_anywhere:
            return []
        return claims.extended.rejections(nodes)

    def _available(self, nodes: NodeView, claims: PodClaims) -> BoolArray:
        """Return bool[nodes]: True where the pod can use the devices that it has already."""
        if claims.broken:
            return np.zeros(len(nodes), np.bool_)
        fits = nodes.present.copy()
        rejections = self._rejections(claims, nodes)
        if rejections:
            fits &= np.array([not text for text in rejections], np.bool_)
        for selector in claims.node_selectors:
            fits &= nodes.admitted(LabelSelector(), selector)
        return fits

    def _assigned(self, pod: Pod, row: int) -> NewClaim | Unschedulable | None:
        """Hold devices on the node for the pod; return the claim that PreBind must create."""
        claims = self.pre_filter(pod, self._cluster)
        if isinstance(claims, Unschedulable):
            return claims
        if claims is SKIP:
            return None
        held, new = dict(claims.in_flight), None
        nodes = self._cluster.nodes.take(np.array([row], np.int64))
        node = nodes.node(0)
        for _, waiting in claims.on_nodes(nodes):
            results = self._nodes.results(nodes, waiting, self._cluster)
            found, moves = results.of(0), results.moves_of(0)
            if not isinstance(found, list):
                return Unschedulable(_text(found))
            if moves is not None and node is not None:
                # Nothing is searched that Filter has found, if the node's class is still the same.
                ids, pools = _share_ids(waiting), self._nodes.pools(row)
                allocator = self._nodes.allocator(waiting, self._cluster, Budget())
                found = allocator.repeat(node.name, node.labels, ids, pools, moves)
            held |= {claim.uid: each for claim, each in zip(waiting, found, strict=True)}
        if held:
            self._cache.hold_claims(pod.uid, held)
        if claims.extended is not None and node is not None:
            new = claims.extended.new_claim(node)
        return new

    async def _created(self, pod: Pod, new: NewClaim, allocation: Allocation) -> ResourceClaim:
        try:
            claim = await self._writer.create(pod, new)
        except Exception:
            self._metrics.claim_created("failure")
            raise
        self._metrics.claim_created("success")
        self._begun.setdefault(pod.uid, {})[claim.uid] = claim
        await self._writer.until_known(claim)
        self._cache.hold_claims(pod.uid, {claim.uid: allocation})
        self._cache.release_claims(pod.uid, [new.claim.uid])
        await self._writer.reserve(pod, claim, allocation, is_new=True)
        await self._api.set_pod_status(pod, new.status_fields(claim))
        return claim

    async def _until_bound(self, pod: Pod, node: str, uids: list[str]) -> None:
        since, status = self._api.unix_nanoseconds(), "error"
        try:
            if (late := self._first_unbound(uids)) is not None:
                note = f"waiting for binding conditions for device on node {node}"
                self._api.record(pod, "BindingConditionsPending", note)
                try:
                    left = self._left(late)
                    await self._api.until(lambda: self._first_unbound(uids) is None, left)
                except TimeoutError as error:
                    late, status = self._first_unbound(uids) or late, "timeout"
                    self._note_overdue(late)
                    raise PluginError(f"device binding timeout: claim={late.name}") from error
            status = "success"
        except _BindingFailedError:
            status = "failure"
            raise
        finally:
            seconds = (self._api.unix_nanoseconds() - since) / 1e9
            self._count_binding(uids, status, seconds)

    def _first_unbound(self, uids: list[str]) -> ResourceClaim | None:
        claims = self._cluster.dynamic_resources.claims
        for uid in uids:
            claim = claims.of_uid(uid)
            if claim is None:
                raise PluginError("a claim of the pod was deleted")
            failed = binding_failure(claim)
            if failed is not None:
                raise _BindingFailedError(
                    f"device binding failed: claim={claim.name}, "
                    f'reason={failed.reason}, message="{failed.message}"'
                )
            if not is_bindable(claim):
                return claim
        return None

    def _count_binding(self, uids: list[str], status: str, seconds: float) -> None:
        claims = map(self._cluster.dynamic_resources.claims.of_uid, uids)
        allocations = [claim.allocation for claim in claims if claim is not None]
        results = [result for a in allocations if a is not None for result in a.results]
        waited = [result.device.driver for result in results if result.binding_conditions]
        if waited:
            drivers = [result.device.driver for result in results]
            self._metrics.devices_bound(self._profile, drivers, waited, status, seconds)

    def _left(self, claim: ResourceClaim) -> float:
        now = self._api.unix_nanoseconds() / 1e9
        since = claim.allocation.time if claim.allocation is not None else None
        return max(0.0, self._timeout - (now - since if since is not None else 0.0))

    def _note_overdue(self, claim: ResourceClaim) -> None:
        claims = self._cluster.dynamic_resources.claims
        for uid in [uid for uid in self._overdue if claims.of_uid(uid) is None]:
            del self._overdue[uid]
        self._overdue[claim.uid] = None


class _BindingFailedError(PluginError):
    """A driver says that a device of the pod cannot be bound."""


def _text(result: Result) -> str:
    if isinstance(result, AllocationError):
        return result.text
    return _NO_DEVICES if result is None else _ELSEWHERE


def _share_ids(claims: Sequence[ResourceClaim]) -> Callable[[], str]:
    first = claims[0]
    numbers = count()
    return lambda: str(
        uuid5(NAMESPACE_URL, f"{first.uid}/{first.resource_version}/{next(numbers)}")
    )


def _held(claim: ResourceClaim | None) -> set[tuple[DeviceId, str, bool | None]]:
    if claim is None or claim.allocation is None:
        return set()
    return {(r.device, r.share_id, r.admin_access) for r in claim.allocation.results}


def _status(claim: ResourceClaim) -> tuple[Any, ...]:
    return claim.allocation, claim.reserved_for, claim.device_statuses, claim.malformed
