"""The pools of devices that a node can use (GatherPools of the allocator).

A driver publishes a pool as several slices of one generation; the pool is complete when all slices
exist. The search takes pools, and the slices of a pool, in the order of their names, because
drivers set priorities by names. Pools with binding conditions come last.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.claims.model.resource_slices import CounterSet, Device, ResourceSlice
from mooring.model.indexes import drop_item
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.selectors import NodeSelector

PoolKey = tuple[str, str]
"""A driver, and the name of one of its pools."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as a node sees it.

    Attributes:
        driver: The driver.
        name: The pool's name.
        incomplete: True if slices are missing; then no device can be allocated.
        invalid: The mistake if no device can be allocated; "" without a mistake.
        slices: The slices with devices for this node.
        others: The slices with devices for other nodes, which may consume the same counters.
        counter_sets: The sets of counters by name.
    """

    driver: str
    name: str
    incomplete: bool = False
    invalid: str = ""
    slices: tuple[ResourceSlice, ...] = ()
    others: tuple[ResourceSlice, ...] = ()
    counter_sets: Mapping[str, CounterSet] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether devices of the pool can be allocated."""
        return not self.incomplete and not self.invalid


class Inventory:
    """All slices of the cluster, by node and by pool."""

    def __init__(self, slices: Iterable[ResourceSlice], rules: KubernetesRules) -> None:
        self._rules = rules
        self._by_name: dict[str, ResourceSlice] = {}
        self._on_node: dict[str, dict[str, ResourceSlice]] = {}
        self._anywhere: dict[str, ResourceSlice] = {}
        self._by_pool: dict[PoolKey, dict[str, ResourceSlice]] = {}
        """The slices of each pool, by pool and by the slice's name."""
        self._built: dict[PoolKey, dict[tuple[int, ...], Pool | None]] = {}
        """Caches the pools that were built, by the identities of their slices."""
        for each in slices:
            self.put(each.name, each)

    def get(self, name: str) -> ResourceSlice | None:
        """Return the slice of this name; None if there is none."""
        return self._by_name.get(name)

    def put(self, name: str, after: ResourceSlice | None) -> None:
        """Set the slice of this name (None removes it), and drop its pools from the cache."""
        before = self._by_name.get(name)
        for each in (before, after):
            if each is not None:
                self._built.pop((each.driver, each.pool), None)
        if before is not None and (after is None or self._place(before) != self._place(after)):
            self._remove(before)
        if after is not None:
            self._by_name[name] = after
            self._by_pool.setdefault((after.driver, after.pool), {})[name] = after
            if self.is_on_node(after):
                self._on_node.setdefault(after.node_name, {})[name] = after
            else:
                self._anywhere[name] = after

    def _place(self, each: ResourceSlice) -> tuple[str, str, str, bool]:
        return each.driver, each.pool, each.node_name, self.is_on_node(each)

    def is_on_node(self, each: ResourceSlice) -> bool:
        """Return whether the slice applies only to the node in its `node_name`."""
        return _is_on_node(each, self._rules)

    def is_of_one_node(self, key: PoolKey) -> bool:
        """Return whether all slices of the pool are for the same single node."""
        slices = self._by_pool.get(key, _NO_SLICES).values()
        return len({each.node_name for each in slices}) == 1 and all(map(self.is_on_node, slices))

    def is_relevant(self, each: ResourceSlice, node_name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the slice may have devices or counters for the node."""
        return _relevant(each, node_name, labels, self._rules)

    def candidates(self, node_name: str) -> list[ResourceSlice]:
        """Return the slices that may have devices or counters for the node."""
        return [*self._on_node.get(node_name, _NO_SLICES).values(), *self._anywhere.values()]

    def pool(
        self, key: PoolKey, slices: list[ResourceSlice], rules: KubernetesRules
    ) -> Pool | None:
        """Return the pool as a node sees it; `slices` are the newest slices for this node.

        Returns None if `slices` is incomplete and the pool has a newer generation.
        """
        built, made_of = self._built.setdefault(key, {}), tuple(map(id, slices))
        if made_of not in built:
            built[made_of] = _pool(key, slices, [*self._by_pool[key].values()], rules)
        return built[made_of]

    def _remove(self, each: ResourceSlice) -> None:
        del self._by_name[each.name]
        drop_item(self._by_pool, (each.driver, each.pool), each.name)
        if self.is_on_node(each):
            drop_item(self._on_node, each.node_name, each.name)
        else:
            del self._anywhere[each.name]


_FEWEST_TO_SORT: Final = 2
_NO_SLICES: Final[Mapping[str, ResourceSlice]] = {}


def _is_on_node(each: ResourceSlice, rules: KubernetesRules) -> bool:
    return bool(each.node_name) and (rules.counter_slices_by_node or not each.shared_counters)


def slices_of_node(
    inventory: Inventory, node_name: str, labels: Mapping[str, str], rules: KubernetesRules
) -> dict[PoolKey, list[ResourceSlice]]:
    """Return the newest slices for this node, by pool."""
    relevant: dict[PoolKey, list[ResourceSlice]] = {}
    for each in inventory.candidates(node_name):
        if not _relevant(each, node_name, labels, rules):
            continue
        known = relevant.setdefault((each.driver, each.pool), [])
        if known and each.generation > known[0].generation:
            known.clear()
        if not known or each.generation == known[0].generation:
            known.append(each)
    return relevant


def pools_of_slices(
    inventory: Inventory, slices: Mapping[PoolKey, list[ResourceSlice]], rules: KubernetesRules
) -> list[Pool]:
    """Return the pools that the slices for a node form, in the order of the search."""
    found = (inventory.pool(key, some, rules) for key, some in slices.items())
    pools = [pool for pool in found if pool is not None]
    if len(pools) < _FEWEST_TO_SORT:
        return pools  # without a look at all devices
    return sorted(
        pools, key=lambda p: (_has_binding_conditions(p), p.driver.encode(), p.name.encode())
    )


def pools_of_node(
    inventory: Inventory, node_name: str, labels: Mapping[str, str], rules: KubernetesRules
) -> list[Pool]:
    """Return the pools for this node, in the order of the search."""
    slices = slices_of_node(inventory, node_name, labels, rules)
    return pools_of_slices(inventory, slices, rules)


def node_matches(
    slice_or_device: ResourceSlice | Device, node_name: str, labels: Mapping[str, str]
) -> bool:
    """Return whether the slice or device is for the node: by name, by selector or for all nodes."""
    if slice_or_device.node_name:
        return slice_or_device.node_name == node_name
    if slice_or_device.all_nodes:
        return True
    selector: NodeSelector | None = slice_or_device.node_selector
    return selector is not None and selector.matches(node_name, labels)


def _relevant(
    each: ResourceSlice, node_name: str, labels: Mapping[str, str], rules: KubernetesRules
) -> bool:
    if each.shared_counters and not rules.counter_slices_by_node:
        return True
    if each.node_name or each.all_nodes or each.node_selector is not None:
        return node_matches(each, node_name, labels)
    return each.per_device_node_selection and any(
        node_matches(device, node_name, labels) for device in each.devices
    )


def _pool(
    key: PoolKey,
    slices: list[ResourceSlice],
    all_slices: Sequence[ResourceSlice],
    rules: KubernetesRules,
) -> Pool | None:
    generation, count = slices[0].generation, _slice_count(slices, rules)
    others: list[ResourceSlice] = []
    if len(slices) != count:
        if any(each.generation > generation for each in all_slices):
            return None
        whole = [each for each in all_slices if each.generation == generation]
        if len(whole) != count:
            devices = tuple(each for each in slices if not each.shared_counters)
            return Pool(*key, incomplete=True, slices=devices)
        if len(slices) < len(whole):
            here = {each.name for each in slices}
            others = [each for each in whole if each.name not in here]
    ordered = sorted(slices, key=lambda each: each.name.encode())
    if rules.counter_slices_by_node:
        return _built(key, ordered, others, [*ordered, *others])
    return _built(key, ordered, others, ordered)


def _slice_count(slices: Sequence[ResourceSlice], rules: KubernetesRules) -> int:
    count = slices[0].slice_count
    if all(each.slice_count == count for each in slices):
        return count
    # In kube-scheduler, any of these slices may decide.
    first = min(slices, key=lambda each: (not _is_on_node(each, rules), each.name.encode()))
    return first.slice_count


def _built(
    key: PoolKey,
    slices: Sequence[ResourceSlice],
    others: Sequence[ResourceSlice],
    with_counters: Sequence[ResourceSlice],
) -> Pool:
    devices = tuple(each for each in slices if not each.shared_counters)
    elsewhere = tuple(each for each in others if not each.shared_counters)
    names = [device.name for each in devices for device in each.devices]
    if len(set(names)) < len(names):
        again = next(name for index, name in enumerate(names) if name in names[:index])
        return Pool(*key, invalid=f"duplicate device name {again}", slices=devices)
    sets: dict[str, CounterSet] = {}
    for counters in (c for each in with_counters for c in each.shared_counters):
        if counters.name in sets:
            invalid = f"duplicate counter set name {counters.name}"
            return Pool(*key, invalid=invalid, slices=devices)
        sets[counters.name] = counters
    invalid = _unknown_counter(devices, sets) or _unknown_counter(elsewhere, sets)
    return Pool(*key, invalid=invalid, slices=devices, others=elsewhere, counter_sets=sets)


def _unknown_counter(slices: Iterable[ResourceSlice], sets: Mapping[str, CounterSet]) -> str:
    for device in (device for each in slices for device in each.devices):
        for consumed in device.consumes:
            counters = sets.get(consumed.counter_set)
            if counters is None:
                return f"counter set {consumed.counter_set} not found"
            for name in sorted(consumed.counters):
                if name not in counters.counters:
                    return f"counter {name} not found in counter set {counters.name}"
    return ""


def _has_binding_conditions(pool: Pool) -> bool:
    return pool.usable and any(
        device.binding_conditions for each in pool.slices for device in each.devices
    )
