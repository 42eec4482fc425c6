"""Requests for GPUs as in a cluster of Alibaba, drawn with a seed.

The classes and their frequencies are those of table 1 of Weng et al., "Beware of Fragmentation:
Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). How large
shares are is not in that table; they are drawn so that their mean, 0.56 of a card, is what the
table's two columns imply. The cpu beside is not in it either: nodes have 9 cores per card, and
pods request 2 to 12 cores per card, with a share 2 to 8.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from devices.objects import WHOLE, gpu_node, share_pod, whole_pod
from mooring.testing.builders import pod

__all__ = ["CARD", "MILLI", "NODES", "Request", "cards_in", "nodes", "raw_pod", "requests"]

CARD: Final = 1000
"""Memory units of a card, so that shares are in thousandths."""
MILLI: Final = "example.com/gpu-milli"
"""What plain counting counts: thousandths of cards, over all cards of a node."""

CLASSES: Final[dict[int | str, float]] = {0: 13.3, "share": 37.8, 1: 48.0, 2: 0.2, 4: 0.2, 8: 0.5}
"""Percent of the pods, by the number of cards they request."""
SHARES: Final = {200: 8, 300: 10, 400: 15, 500: 20, 600: 15, 700: 7, 800: 10, 900: 10, 950: 5}
"""Percent of the shares, by thousandths of a card."""

CORES_PER_CARD: Final = 9
"""Just more than pods request for each card on average, so that cpu is as scarce as GPU."""
CORES: Final = (2, 4, 6, 8, 12)
"""Cores of a pod, or for each of its cards; each is as frequent."""

NODES: Final = {1: 40, 4: 60, 8: 100}
"""How many nodes there are of each number of cards: 200 nodes with 1,080 cards."""


@dataclass(frozen=True)
class Request:
    """Whole cards, or thousandths of one, and cores."""

    cards: int = 0
    share: int = 0
    cores: int = 0

    @property
    def milli(self) -> int:
        """The request in thousandths of a card."""
        return self.share or self.cards * CARD


def requests(seed: int) -> Iterator[Request]:
    """Requests without end; the same seed, the same requests."""
    random = Random(seed)  # noqa: S311 - an experiment is to be repeated
    classes, frequencies = [*CLASSES], [*CLASSES.values()]
    shares, weights = [*SHARES], [*SHARES.values()]
    while True:
        kind = random.choices(classes, frequencies)[0]
        cores = random.choice(CORES)
        if isinstance(kind, int):
            yield Request(cards=kind, cores=cores * max(1, kind))
        else:
            share = random.choices(shares, weights)[0]
            yield Request(share=share, cores=min(cores, 8))


def cards_in(counts: dict[int, int]) -> int:
    """How many cards these nodes have."""
    return sum(cards * count for cards, count in counts.items())


def nodes(counts: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Nodes of the sizes, with more memory than their pods can use."""
    for cards, count in counts.items():
        for index in range(count):
            cpu = str(cards * CORES_PER_CARD)
            raw = gpu_node(f"node-{cards}-{index:03}", cards, CARD, pods=1000, cpu=cpu)
            for field in ("allocatable", "capacity"):
                raw["status"][field][MILLI] = str(cards * CARD)
            yield raw


def raw_pod(name: str, request: Request) -> dict[str, Any]:
    """The pod of a request; beside what it needs it tells what plain counting counts."""
    if request.share:
        raw = share_pod(name, request.share, cpu=request.cores)
    elif request.cards:
        raw = whole_pod(name, request.cards, cpu=request.cores)
    else:
        return pod(name, cpu=request.cores)
    amounts = raw["spec"]["containers"][0]["resources"]["requests"]
    amounts[MILLI] = str(request.milli)
    assert request.share or WHOLE in amounts
    return raw
