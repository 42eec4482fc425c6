"""Requests for GPUs as in a cluster of Alibaba, drawn with a seed.

How many cards pods request follows table 1 of Weng et al., "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). The table says
neither how large shares are nor what cpu pods request beside. Both are counted in 906 of the 8,152
pods of the trace that the paper published (cluster-trace-gpu-v2023, openb_pod_list_default.csv:
pods 0-225, 2131-2356, 4677-4900 and 7079-7308; what occurs once is left out). The cores of nodes
with 1, 4 and 8 cards are those of that trace's list of nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from devices.objects import WHOLE, gpu_node, share_pod, whole_pod
from mooring.testing.builders import pod

T = TypeVar("T")

CARD: Final = 1000
"""Memory units of a card, so that shares are in thousandths."""
MILLI: Final = "example.com/gpu-milli"
"""What plain counting counts: thousandths of cards, over all cards of a node."""

CLASSES: Final[dict[int | str, float]] = {0: 13.3, "share": 37.8, 1: 48.0, 2: 0.2, 4: 0.2, 8: 0.5}
"""Percent of the pods, by the number of cards they request."""

SHARES: Final = {
    (810, 3152): 86,
    (470, 11908): 47,
    (470, 8000): 42,
    (650, 11908): 33,
    (320, 4000): 23,
    (460, 6000): 16,
    (220, 4000): 14,
    (230, 4000): 14,
    (550, 4152): 13,
    (590, 3152): 13,
    (370, 4152): 10,
    (160, 4000): 9,
    (320, 8000): 7,
    (480, 4000): 4,
    (230, 8000): 4,
    (220, 8000): 4,
    (110, 4000): 3,
    (320, 1000): 3,
    (650, 8000): 3,
    (330, 4000): 3,
    (50, 4000): 2,
    (810, 4152): 2,
    (270, 4152): 2,
}
"""How many pods there were by thousandths of a card and millicores."""

CPU: Final[dict[int, dict[int, int]]] = {
    0: {12500: 38, 32000: 26, 8000: 22, 15400: 15, 12000: 2},
    1: {
        3152: 97,
        11300: 85,
        12000: 49,
        18708: 41,
        11400: 26,
        16000: 24,
        4000: 20,
        11908: 18,
        8000: 16,
        16400: 10,
        9810: 6,
        24200: 5,
        14200: 4,
        15700: 3,
        8200: 2,
        15200: 2,
    },
    2: {16200: 3, 30200: 1},
    4: {32200: 7, 60200: 3},
    8: {64200: 7, 88000: 5},
}
"""How many pods there were by number of whole cards and millicores."""

NODES: Final = {(1, 8): 40, (4, 96): 45, (4, 32): 15, (8, 96): 89, (8, 128): 9, (8, 64): 2}
"""How many nodes there are of so many cards and cores: 200 nodes with 1,080 cards.

All of the trace's nodes of one card have 8 cores. Of those with 8 cards 89 % have 96 cores, 9 % 128
and 2 % 64. Of the cards in nodes of two and four cards three quarters come with much cpu, as in
nodes of 96 cores and 4 cards, and one quarter with 8 cores each.
"""


@dataclass(frozen=True)
class Request:
    """Whole cards, or thousandths of one, and millicores."""

    cards: int = 0
    share: int = 0
    cpu: int = 0

    @property
    def milli(self) -> int:
        """The request in thousandths of a card."""
        return self.share or self.cards * CARD


def requests(seed: int) -> Iterator[Request]:
    """Yield requests without end; the same seed, the same requests."""
    random = Random(seed)  # noqa: S311 - an experiment is to be repeated
    while True:
        kind = _drawn(random, CLASSES)
        if isinstance(kind, int):
            yield Request(cards=kind, cpu=_drawn(random, CPU[kind]))
        else:
            share, cpu = _drawn(random, SHARES)
            yield Request(share=share, cpu=cpu)


def _drawn(random: Random, weights: Mapping[T, float]) -> T:
    """Return one of the keys, each as often as its weight says."""
    return random.choices([*weights], [*weights.values()])[0]


def cards_in(counts: Mapping[tuple[int, int], int]) -> int:
    """Return how many cards these nodes have."""
    return sum(cards * count for (cards, _), count in counts.items())


def nodes(counts: Mapping[tuple[int, int], int]) -> Iterator[dict[str, Any]]:
    """Yield nodes of so many cards and cores, with more memory than their pods can use."""
    for (cards, cores), count in counts.items():
        for index in range(count):
            name = f"node-{cards}-{cores}-{index:03}"
            raw = gpu_node(name, cards, CARD, pods=1000, cpu=str(cores))
            for field in ("allocatable", "capacity"):
                raw["status"][field][MILLI] = str(cards * CARD)
            yield raw


def raw_pod(name: str, request: Request) -> dict[str, Any]:
    """Return the pod of a request; it also requests what plain counting counts."""
    cpu = f"{request.cpu}m"
    if request.share:
        raw = share_pod(name, request.share, cpu=cpu)
    elif request.cards:
        raw = whole_pod(name, request.cards, cpu=cpu)
    else:
        return pod(name, cpu=cpu)
    amounts = raw["spec"]["containers"][0]["resources"]["requests"]
    amounts[MILLI] = str(request.milli)
    assert request.share or WHOLE in amounts
    return raw
