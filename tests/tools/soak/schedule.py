"""Chooses the times of faults from a seed, so that a run can be repeated."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from faults.rules import ASSIGNED_PODS, PENDING_PODS, Kind, Rule

SECONDS_BETWEEN: Final = (8.0, 14.0)
LONG_SECONDS_AFTER: Final = 30.0
"""The seconds after a fault that ends a lease, until the next fault: a successor must lead."""

WRITES: Final = "POST|PATCH|DELETE"
PODS: Final = "/pods"
WATCHES: Final = r"watch="


class Act(StrEnum):
    """A fault that the proxies do not cause."""

    KILL = "leader killed"
    STOP = "leader told to stop"
    PAUSE = "leader paused 20 s"
    API_SERVER = "API server restarted"
    ETCD = "etcd restarted"


class Target(StrEnum):
    """The replicas whose requests a fault strikes."""

    LEADER = "leader"
    ALL = "both"


@dataclass(frozen=True)
class Episode:
    """A fault at a certain time."""

    at: float
    """Seconds after the beginning of the run."""
    name: str
    what: Rule | Act
    target: Target = Target.ALL


def episodes(seed: int, seconds: float) -> Iterator[Episode]:
    """Yield the faults of a run in order: every kind once in random order, then all again."""
    draw = random.Random(seed)  # noqa: S311 - has to be repeatable
    at = draw.uniform(*SECONDS_BETWEEN)
    deck: list[str] = []
    while at < seconds:
        if not deck:
            deck = [*_NAMES]
            draw.shuffle(deck)
        episode = _episode(deck.pop(), at, draw)
        yield episode
        lasts = isinstance(episode.what, Act) or episode.target is Target.LEADER
        at += LONG_SECONDS_AFTER if lasts else draw.uniform(*SECONDS_BETWEEN)


_PARTITIONS: Final = {
    "both partitioned, 5 s": (5.0, Target.ALL),
    "leader partitioned 25 s": (25.0, Target.LEADER),
}
_NAMES: Final = (*(kind for kind in Kind if kind is not Kind.PARTITION), *Act, *_PARTITIONS)


def _episode(name: str, at: float, draw: random.Random) -> Episode:
    if name in _PARTITIONS:
        seconds, target = _PARTITIONS[name]
        return Episode(at, name, Rule(Kind.PARTITION, seconds=seconds), target)
    if isinstance(name, Act):
        return Episode(at, name, name)
    kind = Kind(name)
    seconds = draw.uniform(2.0, 6.0)
    count, probability = draw.randint(20, 200), draw.choice((0.2, 0.5, 1.0))
    match kind:
        case Kind.GONE | Kind.DUPLICATE:
            rule = Rule(kind, "GET", WATCHES, count, seconds)
        case Kind.DELAY:
            watch = draw.choice((ASSIGNED_PODS, PENDING_PODS))
            rule = Rule(kind, "GET", watch, 100_000, seconds, delay=1.0, jitter=1.0)
        case Kind.LOSE | Kind.CONFLICT:
            rule = Rule(kind, WRITES, PODS, count, seconds, probability)
        case Kind.STALL:
            rule = Rule(kind, count=count, seconds=seconds, probability=0.3, delay=10.0)
        case Kind.HALF_OPEN:
            rule = Rule(kind, count=count, seconds=10.0, probability=0.3)
        case _:
            rule = Rule(kind, count=count, seconds=seconds, probability=probability, delay=1.0)
    return Episode(at, name, rule)
