"""Whether there are enough devices for several requests at once."""

from collections import deque
from collections.abc import Mapping, Sequence


def enough_devices(counts: Sequence[int], devices: Mapping[int, int]) -> bool:
    """Return whether every request can have its number of devices, each device only once.

    Args:
        counts: The devices that each request needs.
        devices: The number of devices by the set of requests that they suit, as a bit mask.
    """
    left = dict(devices)
    given = [dict.fromkeys(devices, 0) for _ in counts]
    return all(
        _give_one(request, left, given)
        for request, count in enumerate(counts)
        for _ in range(count)
    )


def _give_one(request: int, left: dict[int, int], given: list[dict[int, int]]) -> bool:
    """Give the request a device, if need be one that another request can replace.

    It is a shortest augmenting path of a bipartite matching in which equal devices are one node.
    """
    came_by: dict[int, tuple[int, int]] = {}
    waiting = deque([request])
    looked_at = set[int]()
    while waiting:
        taker = waiting.popleft()
        for mask, number in left.items():
            if mask in looked_at or not mask >> taker & 1:
                continue
            looked_at.add(mask)
            if number:
                left[mask] = number - 1
                given[taker][mask] += 1
                while taker != request:
                    former, between = came_by[taker]
                    given[taker][between] -= 1
                    given[former][between] += 1
                    taker = former
                return True
            for other, has in enumerate(given):
                if has[mask] and other != request and other not in came_by:
                    came_by[other] = (taker, mask)
                    waiting.append(other)
    return False
