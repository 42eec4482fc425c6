"""Scores nodes so that typical claims lose as few places as possible.

The places of a claim on a node are the number of equal claims that the node can still satisfy. If
the pod gets half a card, a claim for a whole card loses a place, unless the card was already
divided.

The measure follows Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). It also works for
partitionable devices, shared counters, consumed capacity and constraints.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mooring.claims.model.resource_claims import DeviceId, ResourceClaim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.equivalence import EquivalentNodes, NodeClasses
from mooring.claims.plugin.extended_resource_claims import extended_resources_of
from mooring.claims.plugin.pod_claims import PodClaims, pod_claims
from mooring.claims.plugin.pools import Pool
from mooring.claims.plugin.typical_claims import TypicalClaims, kind_of
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, PluginError, Skip, Unschedulable
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

MOST_PLACES: Final = 64
"""The most places on a node that are counted for each claim."""
_MOST_KINDS: Final = 8
"""The most kinds of claims that are typical: the most common kinds."""
_MOST_STEPS: Final = 1_000
"""The most steps of the search for one place; if a search needs more, the count of places ends."""
_MOST_COUNTS: Final = 300_000
_COUNTS_PER_NODE: Final = 4 * _MOST_KINDS
"""The number of cached results of `_number` per node, at 200 bytes each; the oldest are dropped."""
_MOST_CLASSES: Final = 10_000
"""The most node classes in an entry of `_known`. In large clusters it is twice the number of nodes.
A full entry is emptied."""
_MAX: Final = 100
_SCALE: Final = 1_000
_UNITS_PER_DEVICE: Final = 5
"""The units of the attempt's budget (`Evaluations`) for finding the claims that hold a device."""


_Kinds = Sequence[tuple[bytes, Sequence[ResourceClaim]]]
"""A sequence of pairs, one for each kind of claims: the key of the kind, and claims of the kind."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A node of class `of_class`; it would be of class `unused` if no device were in use."""

    row: int
    of_class: Hashable
    unused: Hashable


class DeviceFragmentation:
    """Prefers nodes where the pod's devices take the fewest places from typical claims."""

    name: ClassVar[str] = "DeviceFragmentation"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[NoArgs]] = NoArgs

    def __init__(self, _args: NoArgs, handle: Handle) -> None:
        self._rules = handle.kubernetes
        self._cluster = handle.cluster
        self._evaluations = handle.evaluations
        self._nodes = EquivalentNodes(handle.kubernetes, handle.evaluations)
        self._unused = EquivalentNodes(
            handle.kubernetes, handle.evaluations, allocated=AllocatedDevices()
        )
        self._typical = TypicalClaims()
        self._places: dict[Hashable, int] = {}
        """Caches the results of `_number`."""
        self._known: dict[Hashable, dict[Hashable, list[int]]] = {}
        """Caches the numbers of lost places that `_lost` computes, by kinds and by node class."""
        self._classes_version = -1

    def pre_score(self, pod: Pod, _nodes: NodeView, cluster: ClusterView) -> Skip | PodClaims:
        """Return the pod's claims; SKIP if it needs no devices, or if its claims cannot be used."""
        try:
            claims = pod_claims(pod, cluster)
        except PluginError:
            return SKIP
        if isinstance(claims, Unschedulable) or cluster.dynamic_resources.unknown is not None:
            return SKIP
        claims.extended = extended_resources_of(pod, cluster, self._rules)
        return claims if claims.to_allocate or claims.extended is not None else SKIP

    def score(self, pod: Pod, nodes: NodeView, claims: PodClaims) -> IntArray:
        """Return int64[nodes]: 100 if the node keeps room for as many typical claims; else less.

        Raises PluginFailed if the attempt's time ends before all nodes are examined.
        """
        scores = np.full(len(nodes), _MAX, np.int64)
        typical = self._typical.most_common(self._cluster, _MOST_KINDS)
        for positions, waiting in claims.on_nodes(nodes):
            kinds = [(kind_of([each]), [each]) for each, _ in typical]
            weights = np.array([number for _, number in typical], np.int64)
            of_node, of_unused = self._classes([*waiting, *(each for each, _ in typical)])
            rows = nodes.rows[positions]
            both = np.stack((of_node.numbers[rows], of_unused.numbers[rows]))
            distinct, first, of = np.unique(both, axis=1, return_index=True, return_inverse=True)
            places = [
                _Place(row, (of_node.serial, used), (of_unused.serial, unused))
                for row, used, unused in zip(rows[first].tolist(), *distinct.tolist(), strict=True)
            ]
            lost = self._lost(places, waiting, kinds) @ weights
            lost //= max(int(weights.sum()), 1)
            scores[positions] = (_MAX * _SCALE // (_SCALE + lost))[of.reshape(-1)]
        return scores

    def _classes(self, claims: Sequence[ResourceClaim]) -> tuple[NodeClasses, NodeClasses]:
        of_node = self._nodes.classes(self._cluster, claims)
        of_unused = self._unused.classes(self._cluster, claims)
        version = self._cluster.dynamic_resources.classes.version
        if version != self._classes_version:
            self._places.clear()
            self._known.clear()
            self._classes_version = version
        return of_node, of_unused

    def _lost(
        self, nodes: Sequence[_Place], waiting: Sequence[ResourceClaim], kinds: _Kinds
    ) -> IntArray:
        """Return int64[nodes, kinds]: the room that a kind of claims loses; see `_lost_by`."""
        own = kind_of(waiting)
        key = own, tuple(kind for kind, _ in kinds)
        known = self._known.pop(key, None) or {}
        if len(self._known) >= _MOST_KINDS:
            del self._known[next(iter(self._known))]
        if len(known) >= max(_MOST_CLASSES, 2 * len(self._cluster.nodes)):
            known = {}
        self._known[key] = known
        found = []
        for at in nodes:
            pair = at.of_class, at.unused
            if pair not in known:
                known[pair] = [self._lost_by(kind, each, at, own, waiting) for kind, each in kinds]
            found.append(known[pair])
        return np.array(found, np.int64).reshape(len(found), len(kinds))

    def _lost_by(
        self,
        kind: bytes,
        claims: Sequence[ResourceClaim],
        at: _Place,
        own: bytes,
        waiting: Sequence[ResourceClaim],
    ) -> int:
        before = self._number((at.of_class, kind), at, claims)
        if not before:
            return 0
        after = self._number((at.of_class, own, kind), at, claims, beside=waiting)
        if after >= before:
            return 0
        # In thousandths of a place of the pod. If an empty node can have six such pods or two
        # claims of the kind, a place of the kind is worth three places of the pod.
        own_places = self._number((None, at.unused, own), at, waiting, unused=True)
        places = self._number((None, at.unused, kind), at, claims, unused=True)
        return (before - after) * _SCALE * own_places // max(places, 1)

    def _number(
        self,
        key: Hashable,
        at: _Place,
        claims: Sequence[ResourceClaim],
        *,
        unused: bool = False,
        beside: Sequence[ResourceClaim] = (),
    ) -> int:
        """Return how often the node can serve `claims` once the claims `beside` have devices."""
        known = self._places.get(key)
        if known is not None:
            return known
        known = self._counted(at, claims, unused, beside)
        most = max(_MOST_COUNTS, _COUNTS_PER_NODE * len(self._cluster.nodes))
        while len(self._places) >= most:
            del self._places[next(iter(self._places))]
        self._places[key] = known
        return known

    def _counted(
        self,
        at: _Place,
        claims: Sequence[ResourceClaim],
        unused: bool,  # noqa: FBT001 - as in `_number`
        beside: Sequence[ResourceClaim],
    ) -> int:
        node, pools = self._cluster.node(at.row), self._nodes.pools(at.row)
        if node is None:
            raise ValueError(f"row {at.row} is no node")
        allocated = AllocatedDevices() if unused else self._in_use(pools)
        # Each search may take as many steps as are left at least.
        budget = Budget(0, _MOST_STEPS, _MOST_STEPS, self._evaluations)

        def take(allocator: Allocator, number: str) -> bool:
            """Allocate the claims once more; return False if that fails."""
            try:
                found = allocator.allocate(node.name, node.labels, lambda: number, pools)
            except AllocationError:
                return False
            for index, each in enumerate(found or ()):
                allocated.put(f"{number}/{index}", each.results)
            return found is not None

        if beside:
            take(self._nodes.allocator(beside, self._cluster, budget, allocated), "beside")
        allocator, places = self._nodes.allocator(claims, self._cluster, budget, allocated), 0
        while places < MOST_PLACES and take(allocator, str(places)):
            places += 1
        return places

    def _in_use(self, pools: Sequence[Pool]) -> AllocatedDevices:
        """Return all devices of the claims that use a device of these pools."""
        devices, found = self._cluster.dynamic_resources, AllocatedDevices()
        uids = dict[str, None]()
        for pool in pools:
            for each in (*pool.slices, *pool.others):
                self._evaluations.spend(_UNITS_PER_DEVICE * len(each.devices))
                for name in (device.name for device in each.devices):
                    holders = devices.claims.allocated.holders(
                        DeviceId(pool.driver, pool.name, name)
                    )
                    uids.update(dict.fromkeys(holders))
        for uid in uids:
            claim, in_flight = devices.claims.of_uid(uid), devices.claims.in_flight(uid)
            known = claim.allocation if claim is not None else None
            found.put(uid, [r for each in (known, in_flight) if each for r in each.results])
        return found
