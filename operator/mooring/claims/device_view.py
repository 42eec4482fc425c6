"""The devices of nodes, with their states, claims and pods."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.claims.model.resource_claims import DeviceId, ResourceClaim
from mooring.claims.model.resource_slices import Device, ResourceSlice, Version
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.cel_selectors import cel_selectors
from mooring.claims.plugin.counters import Counters
from mooring.claims.plugin.pools import Inventory, Pool, node_matches, pools_of_node
from mooring.model.events import Kind
from mooring.model.node import Node
from mooring.model.quantity import Quantity
from mooring.observe.documents import plain
from mooring.state.cluster_view import ClusterView

FREE: Final = "free"
IN_USE: Final = "in use"
_SHARED: Final = "shared"
_TAINTED: Final = "tainted"
_NO_COUNTERS: Final = "no counters left"
_INCOMPLETE: Final = "incomplete pool"
_INVALID: Final = "invalid pool"


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim that uses a device, as `namespace/name`, and the claim's pods."""

    claim: str
    pods: tuple[str, ...]
    admin_access: bool


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device that a node can use.

    Attributes:
        state: `free`, `in use`, `shared` (more claims may share it), `tainted`, `no counters left`
            (other devices use up its counters), `incomplete pool` or `invalid pool`.
        taints: Only taints with the effect NoSchedule or NoExecute.
        classes: The names of the DeviceClasses that select the device.
        capacity: Each capacity's amount and, if the device is shared, the consumed amount.
    """

    id: DeviceId
    state: str
    classes: tuple[str, ...]
    taints: tuple[str, ...]
    attributes: Mapping[str, str]
    capacity: Mapping[str, tuple[str, str | None]]
    holders: tuple[Holder, ...]

    def document(self) -> dict[str, Any]:
        """Return the device as a dict of JSON values."""
        return {
            "driver": self.id.driver,
            "pool": self.id.pool,
            "device": self.id.device,
            "state": self.state,
            "classes": list(self.classes),
            "taints": list(self.taints),
            "attributes": dict(self.attributes),
            "capacity": {
                name: {"value": value, **({} if used is None else {"consumed": used})}
                for name, (value, used) in self.capacity.items()
            },
            "holders": plain(self.holders),
        }


class Devices:
    """The devices of a cluster; the cluster must not change while this object is used.

    If `classes` is True, each device gets the names of the DeviceClasses that select it.
    """

    def __init__(self, cluster: ClusterView, *, classes: bool) -> None:
        self._cluster = cluster
        self._claims = cluster.dynamic_resources.claims
        self._rules = cluster.kubernetes
        self._inventory = Inventory(cluster.dynamic_resources.slices.all(), self._rules)
        self._selectors = cel_selectors(self._rules)
        found = cluster.objects(Kind.DEVICE_CLASS) if classes else {}
        self._classes = [found[name] for name in sorted(found)]
        self._counters = Counters(self._is_in_use, by_driver=self._rules.counters_by_driver)
        self._seen: dict[int, Pool] = {}
        """Pools for several nodes whose devices were already yielded, by the pool's `id()`."""
        self._told: set[DeviceId] = set()

    def of_node(self, row: int) -> Iterator[NodeDevice]:
        """Yield the devices that only the node of this row can use."""
        for node, pool in self._pools(row):
            for each, device in _devices(pool, node, _is_own):
                yield self._device(pool, each, device)

    def of_several(self, row: int) -> Iterator[NodeDevice]:
        """Yield the node's devices that other nodes can use too; skip devices yielded before."""
        for node, pool in self._pools(row):
            if id(pool) in self._seen:
                continue
            if not any(each.per_device_node_selection for each in pool.slices):
                self._seen[id(pool)] = pool
            for each, device in _devices(pool, node, lambda *of: not _is_own(*of)):
                key = DeviceId(each.driver, each.pool, device.name)
                if key not in self._told:
                    self._told.add(key)
                    yield self._device(pool, each, device)

    def count(self, row: int) -> int:
        """Return the number of devices that the node can use, in any state."""
        return sum(
            1 for node, pool in self._pools(row) for _ in _devices(pool, node, lambda *_: True)
        )

    def _pools(self, row: int) -> Iterator[tuple[Node, Pool]]:
        node = self._cluster.node(row)
        if node is not None:
            for pool in pools_of_node(self._inventory, node.name, node.labels, self._rules):
                yield node, pool

    def _device(self, pool: Pool, each: ResourceSlice, device: Device) -> NodeDevice:
        key = DeviceId(each.driver, each.pool, device.name)
        taints = [t.text for t in device.taints if t.effect in ("NoSchedule", "NoExecute")]
        return NodeDevice(
            key,
            self._state(pool, device, key, tainted=bool(taints)),
            tuple(self._classes_of(device, key)),
            tuple(taints),
            {name: _text(value) for name, value in device.attributes.items()},
            dict(self._capacity(device, key)),
            tuple(self._holder(claim, key) for claim in self._claims.users(key)),
        )

    def _state(self, pool: Pool, device: Device, key: DeviceId, *, tainted: bool) -> str:
        if not pool.usable:
            return _INCOMPLETE if pool.incomplete else _INVALID
        if key in self._claims.allocated.dedicated:
            return IN_USE
        if tainted:
            return _TAINTED
        if key in self._claims.allocated.shares:
            return _SHARED
        if device.consumes and not self._counters.fit(pool, device):
            return _NO_COUNTERS
        return FREE

    def _is_in_use(self, key: DeviceId) -> bool:
        used = self._claims.allocated
        return key in used.dedicated or key in used.shares or key in used.consumed

    def _classes_of(self, device: Device, key: DeviceId) -> Iterator[str]:
        for each in self._classes:
            try:
                if self._selectors.match(each.selectors, device, key, f"class {each.name}"):
                    yield each.name
            except AllocationError:
                continue

    def _capacity(
        self, device: Device, key: DeviceId
    ) -> Iterator[tuple[str, tuple[str, str | None]]]:
        consumed = self._claims.allocated.consumed.get(key)
        for name, capacity in device.capacity.items():
            used = None
            if consumed is not None:
                used = Quantity(consumed.get(name, 0), capacity.value.format).text
            yield name, (capacity.value.text, used)

    def _holder(self, claim: ResourceClaim, key: DeviceId) -> Holder:
        allocation = claim.allocation or self._claims.in_flight(claim.uid)
        results = allocation.results if allocation is not None else ()
        pods = dict.fromkeys(
            f"{claim.namespace}/{each.name}"
            for each in claim.reserved_for
            if (each.group, each.resource) == ("", "pods")
        )
        for uid in self._claims.holders(claim.uid):
            placed = self._cluster.pod(uid)
            if placed is not None:
                pods[placed.pod.key] = None
        admin = all(each.admin_access for each in results if each.device == key)
        return Holder(claim.key, tuple(pods), admin_access=admin)


def _devices(
    pool: Pool, node: Node, wanted: Callable[[ResourceSlice, Device, Node], bool]
) -> Iterator[tuple[ResourceSlice, Device]]:
    for each in pool.slices:
        for device in each.devices:
            elsewhere = each.per_device_node_selection and not node_matches(
                device, node.name, node.labels
            )
            if not elsewhere and wanted(each, device, node):
                yield each, device


def _is_own(each: ResourceSlice, device: Device, node: Node) -> bool:
    return node.name in (each.node_name, device.node_name)


def _text(value: object) -> str:
    if isinstance(value, Version):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
