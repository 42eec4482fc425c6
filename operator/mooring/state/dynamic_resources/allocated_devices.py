"""Which devices are in use, counted by claim (allocateddevices.go of kube-scheduler's plugin).

A device that several claims share is free only when the last of them is gone. So every use is
counted, unlike in kube-scheduler, which keeps sets.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from mooring.model.resource_claims import DeviceId, DeviceResult

__all__ = ["AllocatedDevices"]

_KEPT: Final = 16_384
"""Changes of devices that readers can catch up with."""


_Counted = TypeVar("_Counted", DeviceId, str)


class AllocatedDevices:
    """The devices that claims hold; those allocated with admin access are not in use by that."""

    def __init__(self) -> None:
        self._of_claim: dict[str, tuple[DeviceResult, ...]] = {}
        self._dedicated: Counter[DeviceId] = Counter()
        self._shares: Counter[DeviceId] = Counter()
        self._consuming: Counter[DeviceId] = Counter()
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._of_driver: Counter[str] = Counter()
        self._of_pool: dict[tuple[str, str], dict[str, None]] = {}
        self._holders: defaultdict[DeviceId, dict[str, None]] = defaultdict(dict)
        self.version = 0
        """Grows with every change."""
        self._changed: deque[tuple[int, DeviceId]] = deque(maxlen=_KEPT)

    def changed_since(self, version: int) -> Collection[DeviceId] | None:
        """Return the devices that changed after this version; None if that is too long ago."""
        if len(self._changed) == _KEPT and self._changed[0][0] > version:
            return None
        found: dict[DeviceId, None] = {}
        for changed, device in reversed(self._changed):
            if changed <= version:
                break
            found[device] = None
        return found

    @property
    def dedicated(self) -> Mapping[DeviceId, int]:
        """The devices that are not shared, and how many claims hold each."""
        return MappingProxyType(self._dedicated)

    @property
    def shares(self) -> Mapping[DeviceId, int]:
        """The devices that are shared, and how many shares of each are held."""
        return MappingProxyType(self._shares)

    @property
    def consumed(self) -> Mapping[DeviceId, Mapping[str, int]]:
        """What is consumed of the capacities of shared devices, in billionths.

        A device has an entry as long as a share of it says what it consumes, if only nothing.
        """
        return MappingProxyType(self._consumed)

    @property
    def of_driver(self) -> Mapping[str, int]:
        """How many devices of each driver are in use; a shared one counts once."""
        return MappingProxyType(self._of_driver)

    def of_pool(self, driver: str, pool: str) -> Collection[str]:
        """Return the names of the pool's devices that are in use."""
        return self._of_pool.get((driver, pool), ())

    def holders(self, device: DeviceId) -> Collection[str]:
        """Return the uids of the claims that have the device, also those with admin access."""
        return tuple(self._holders.get(device, ()))

    def put(self, claim: str, results: Iterable[DeviceResult]) -> bool:
        """Have the claim of this uid hold exactly these; return whether that is a change.

        A result that is listed twice counts once: the claim may be known with its allocation while
        the same allocation is still in flight.
        """
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
        elif device in self._holders:
            self._holders[device].pop(claim, None)
            if not self._holders[device]:
                del self._holders[device]
        if result.admin_access:
            return
        was_in_use = device in self._dedicated or device in self._shares
        _add(self._shares if result.share_id else self._dedicated, device, sign)
        is_in_use = device in self._dedicated or device in self._shares
        if is_in_use != was_in_use:
            _add(self._of_driver, device.driver, sign)
            self._count_in_pool(device, is_in_use=is_in_use)
        if not result.share_id:
            return
        if result.consumed is None:
            return
        _add(self._consuming, device, sign)
        if device not in self._consuming:
            self._consumed.pop(device, None)
            return
        consumed = self._consumed.setdefault(device, {})
        for name, amount in result.consumed.items():
            consumed[name] = consumed.get(name, 0) + sign * amount.nano

    def _count_in_pool(self, device: DeviceId, *, is_in_use: bool) -> None:
        of_pool = self._of_pool.setdefault((device.driver, device.pool), {})
        if is_in_use:
            of_pool[device.device] = None
            return
        del of_pool[device.device]
        if not of_pool:
            del self._of_pool[device.driver, device.pool]


def _add(counts: Counter[_Counted], what: _Counted, amount: int) -> None:
    counts[what] += amount
    if not counts[what]:
        del counts[what]
