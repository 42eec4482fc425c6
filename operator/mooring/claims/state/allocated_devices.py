"""Counts the uses of devices by claims (allocateddevices.go of kube-scheduler's plugin).

A device that several claims share is free only when no claim uses it any more. Therefore uses are
counted, while kube-scheduler only keeps sets of devices.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from mooring.claims.model.resource_claims import DeviceId, DeviceResult
from mooring.model.indexes import add_count, drop_item
from mooring.model.quantity import Quantity

_KEPT: Final = 16_384
"""The number of changes that are remembered; for an older version, `changed_since` returns None."""

_NOTHING: Final[Mapping[str, Hashable]] = {}


class AllocatedDevices:
    """The devices that claims use; a device with only admin access is not in use."""

    def __init__(self) -> None:
        self._of_claim: dict[str, tuple[DeviceResult, ...]] = {}
        self._dedicated: Counter[DeviceId] = Counter()
        self._shares: Counter[DeviceId] = Counter()
        self._consuming: Counter[DeviceId] = Counter()
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._of_driver: Counter[str] = Counter()
        self._of_pool: dict[tuple[str, str], dict[str, Hashable]] = {}
        """The uses of devices (see `_use`), by the key (driver, pool) and by the device's name."""
        self._holders: defaultdict[DeviceId, dict[str, None]] = defaultdict(dict)
        self.dedicated: Final[Mapping[DeviceId, int]] = MappingProxyType(self._dedicated)
        """The number of claims that hold a device, for devices that are not shared."""
        self.shares: Final[Mapping[DeviceId, int]] = MappingProxyType(self._shares)
        """The number of a device's shares that claims hold, for shared devices."""
        self.consumed: Final[Mapping[DeviceId, Mapping[str, int]]] = MappingProxyType(
            self._consumed
        )
        """The consumed amounts of shared devices, by device and capacity, in billionths.

        A device has an entry while at least one of its shares states consumed amounts.
        """
        self.of_driver: Final[Mapping[str, int]] = MappingProxyType(self._of_driver)
        """The number of devices in use, by driver; a shared device is counted once."""
        self.version = 0
        """A number that grows with every change of the devices in use."""
        self._changed: deque[tuple[int, DeviceId]] = deque(maxlen=_KEPT)

    def changed_since(self, version: int) -> Collection[DeviceId] | None:
        """Return the devices that changed after this version; None if the version is too old."""
        if len(self._changed) == _KEPT and self._changed[0][0] > version:
            return None
        found: dict[DeviceId, None] = {}
        for changed, device in reversed(self._changed):
            if changed <= version:
                break
            found[device] = None
        return found

    def of_pool(self, driver: str, pool: str) -> Mapping[str, Hashable]:
        """Return, by the name of each device in use, a key that says how the device is used."""
        return self._of_pool.get((driver, pool), _NOTHING)

    def holders(self, device: DeviceId) -> Collection[str]:
        """Return the uids of the claims that hold the device, even if only with admin access."""
        return tuple(self._holders.get(device, ()))

    def put(self, claim: str, results: Iterable[DeviceResult]) -> bool:
        """Set the claim's devices; return whether they have changed.

        A result that is listed twice is counted once.
        """
        # An allocation may be written and still in flight.
        after = tuple({(r.device, r.share_id, r.request): r for r in results}.values())
        before = self._of_claim.get(claim, ())
        if before == after:
            return False
        self.version += 1
        for result in before:
            self._count(claim, result, -1)
        for result in after:
            self._count(claim, result, 1)
        if after:
            self._of_claim[claim] = after
        else:
            del self._of_claim[claim]
        return True

    def _count(self, claim: str, result: DeviceResult, sign: int) -> None:
        device = result.device
        self._changed.append((self.version, device))
        if sign > 0:
            self._holders[device][claim] = None
        else:
            drop_item(self._holders, device, claim)
        if result.admin_access:
            return
        was_in_use = device in self._dedicated or device in self._shares
        add_count(self._shares if result.share_id else self._dedicated, device, sign)
        if result.share_id and result.consumed is not None:
            self._count_consumed(device, result.consumed, sign)
        is_in_use = device in self._dedicated or device in self._shares
        if is_in_use != was_in_use:
            add_count(self._of_driver, device.driver, sign)
        self._note_in_pool(device, is_in_use=is_in_use)

    def _count_consumed(self, device: DeviceId, amounts: Mapping[str, Quantity], sign: int) -> None:
        add_count(self._consuming, device, sign)
        if device not in self._consuming:
            self._consumed.pop(device, None)
            return
        consumed = self._consumed.setdefault(device, {})
        for name, amount in amounts.items():
            consumed[name] = consumed.get(name, 0) + sign * amount.nano

    def _note_in_pool(self, device: DeviceId, *, is_in_use: bool) -> None:
        pool = device.driver, device.pool
        if is_in_use:
            self._of_pool.setdefault(pool, {})[device.device] = self._use(device)
        else:
            drop_item(self._of_pool, pool, device.device)

    def _use(self, device: DeviceId) -> Hashable:
        if device not in self._shares:
            return None
        consumed = self._consumed.get(device)
        amounts = None if consumed is None else tuple(sorted(consumed.items()))
        return device in self._dedicated, amounts
