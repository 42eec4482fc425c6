"""When pods may be moved, how many within an hour, and which ones are left alone for a time."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from mooring.model.bounded_cache import BoundedCache
from mooring.policy.rebalancing import Window

__all__ = ["HOUR", "Evictions", "Rests", "is_open"]

HOUR: Final = 3600.0
_DAY: Final = 24 * HOUR
_FIRST_DAY: Final = 3
"""The epoch began on a Thursday."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_TIMES: Final = 100_000
_REST_BYTES: Final = 4 * 2**20
_BYTES_PER_REST: Final = 256


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Return whether pods may be moved now, in seconds since the epoch; always without windows."""
    return not windows or any(_is_open(window, now) for window in windows)


def _is_open(window: Window, now: float) -> bool:
    start, end = _seconds(window.start), _seconds(window.end)
    lasts = (end - start) % _DAY or _DAY
    since_start = (now - start) % _DAY
    began_on = _DAYS[(int((now - since_start) // _DAY) + _FIRST_DAY) % len(_DAYS)]
    return since_start < lasts and (not window.days or began_on in window.days)


def _seconds(time_of_day: str) -> float:
    """Return the seconds from midnight to a time such as 22:00."""
    hours, _, minutes = time_of_day.partition(":")
    return int(hours) * HOUR + int(minutes) * 60.0


class Evictions:
    """The evictions of a profile within the last hour of the clock, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_MOST_TIMES)

    def note(self, count: int = 1, *, seconds_ago: float = 0.0) -> None:
        """Note so many evictions; a former leader's were before those that are noted already."""
        at = self._clock() - seconds_ago
        if seconds_ago:
            self._times.extendleft([at] * min(count, _MOST_TIMES))
        else:
            self._times.extend([at] * count)

    def __len__(self) -> int:
        while self._times and self._times[0] <= self._clock() - HOUR:
            self._times.popleft()
        return len(self._times)


class Rests:
    """Until when pods and the pods of controllers are left alone, by their uids."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: BoundedCache[str, tuple[str, float]] = BoundedCache(
            _REST_BYTES, lambda _uid, _until: _BYTES_PER_REST
        )

    def rest(self, uid: str, seconds: float) -> None:
        """Leave the pod or the pods of the controller alone for so long, from now on."""
        if seconds > 0:
            self._until.put(uid, (uid, self._clock() + seconds))

    def resting(self) -> frozenset[str]:
        """Return the uids of those that are left alone now."""
        now, found = self._clock(), self._until.values()
        for uid, until in found:
            if until <= now:
                self._until.pop(uid)
        return frozenset(uid for uid, until in found if until > now)
