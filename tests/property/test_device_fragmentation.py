"""Scores against fragmentation, after any history, are those that a slow count of places finds."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.claims.plugin.device_fragmentation import DeviceFragmentation
from mooring.claims.plugin.pod_claims import PodClaims
from mooring.framework.registry import NoArgs
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle

Raw = dict[str, Any]
Asked = tuple[int, int]
"""The size of the devices that a claim asks for, and how many."""

CARDS = {"n0": 1, "n1": 2, "n2": 3, "n3": 3, "n4": 0}
"""How many cards each node has: each is one device of size 4, or two of 2, or four of 1."""
PARTS = [("whole", 4), ("half0", 2), ("half1", 2), *((f"quarter{i}", 1) for i in range(4))]
ASKED: list[Asked] = [(1, 1), (1, 2), (1, 5), (2, 1), (4, 1), (4, 2)]


@dataclass
class SlowModel:
    """Which devices claims have, and places counted from that each time."""

    held: dict[str, tuple[str, Asked, list[str]]] = field(default_factory=dict)
    """By the name of the claim: its node, what it asked for, and its devices."""

    def in_use(self, name: str) -> list[str]:
        return [d for where, _, devices in self.held.values() if where == name for d in devices]

    def score(self, name: str, own: Asked) -> int:
        typical = Counter(asked for _, asked, _ in self.held.values())
        in_use, lost = self.in_use(name), 0
        with_pod = in_use + (first_fit(name, in_use, own) or [])
        for asked, number in typical.items():
            gone = places(name, in_use, asked) - places(name, with_pod, asked)
            if gone:
                lost += number * (gone * 1000 * places(name, [], own) // places(name, [], asked))
        return 100_000 // (1_000 + lost // max(typical.total(), 1))


def first_fit(name: str, in_use: list[str], asked: Asked) -> list[str] | None:
    """Return the first devices of the node that are free; None if there are too few."""
    size, count = asked
    found: list[str] = []
    for card in range(CARDS[name]):
        for part, part_size in PARTS:
            own = f"card{card}-"
            sizes = [dict(PARTS)[d.removeprefix(own)] for d in in_use + found if own in d]
            fits = part_size == size and own + part not in in_use and sum(sizes) + size <= 4
            if fits and len(found) < count:
                found.append(own + part)
    return found if len(found) == count else None


def places(name: str, in_use: list[str], asked: Asked) -> int:
    number, in_use = 0, [*in_use]
    while (found := first_fit(name, in_use, asked)) is not None:
        in_use += found
        number += 1
    return number


def hardware(name: str) -> list[Raw]:
    """Return the node's slices: the counters of its cards, and its devices."""
    cards = [f"card{index}" for index in range(CARDS[name])]
    sets = [{"name": card, "counters": {"parts": {"value": "4"}}} for card in cards]
    devices = [
        device(
            f"{card}-{part}",
            attributes={"size": size},
            consumesCounters=[{"counterSet": card, "counters": {"parts": {"value": str(size)}}}],
        )
        for card in cards
        for part, size in PARTS
    ]
    if not cards:
        return []
    return [
        resource_slice(f"c-{name}", node=name, slices=2, sharedCounters=sets),
        resource_slice(f"d-{name}", devices, node=name, slices=2),
    ]


def claim(name: str, asked: Asked, **fields: Any) -> Raw:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].size == {asked[0]}'}}
    return device_claim(name, request(count=asked[1], selectors=[selector]), **fields)


def put(state: ClusterState, raw: Raw) -> None:
    value = parse_object(Kind.RESOURCE_CLAIM, raw)
    state.put(Kind.RESOURCE_CLAIM, value.key, value)


def scores(plugin: DeviceFragmentation, state: ClusterState) -> dict[str, int]:
    """Return the scores of all nodes for a pod with the claim `new`."""
    entry = {"name": "gpu", "resourceClaimName": "new"}
    wanted, view = parse_pod(pod("web", spec={"resourceClaims": [entry]})), ClusterView(state)
    claims = plugin.pre_score(wanted, view.nodes, view)
    assert isinstance(claims, PodClaims)
    found = plugin.score(wanted, view.nodes, claims)
    return {view.nodes.name(row): score for row, score in enumerate(found.tolist())}


CHANGES = st.one_of(
    st.tuples(st.sampled_from([*CARDS]), st.sampled_from(ASKED)),
    st.integers(0, 9),
)
"""A claim that gets devices of a node, or one that gives them back."""


@settings(max_examples=60, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=12), st.sampled_from(ASKED))
def test_scores_after_any_history_are_those_of_a_slow_count(
    changes: list[tuple[str, Asked] | int], own: Asked
) -> None:
    gpus = [each for name in CARDS for each in hardware(name)]
    state = cluster(*map(node, CARDS), device_class("gpu"), *gpus, claim("new", own))
    plugin, model = DeviceFragmentation(NoArgs(), handle(state)), SlowModel()
    for index, change in enumerate(changes):
        if isinstance(change, int):
            key = f"used-{change}"
            if model.held.pop(key, None) is not None:
                state.delete(Kind.RESOURCE_CLAIM, f"default/{key}")
        else:
            name, asked = change
            devices = first_fit(name, model.in_use(name), asked)
            if devices is not None:
                model.held[f"used-{index}"] = name, asked, devices
                allocation = allocated(*devices, node=name)
                put(state, claim(f"used-{index}", asked, allocation=allocation))
        assert scores(plugin, state) == {name: model.score(name, own) for name in CARDS}
