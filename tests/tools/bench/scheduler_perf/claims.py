"""Allocates claims without pods, as upstream's operation does with kube-scheduler's allocator.

Here the allocator is Mooring's, which finds the same devices on a node (`make dra` compares them).
The nodes are tried in a random order, the same for every run.
"""

import uuid
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import allocation_fields, parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.cel_selectors import cel_selectors
from mooring.claims.plugin.pools import Inventory, pools_of_node
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.kubernetes_rules import KUBERNETES_RULES

Raw = dict[str, Any]

SEED: Final = 26


class NoDevicesError(Exception):
    """No node has devices for a claim."""


def allocations(
    claims: Sequence[Raw],
    slices: Sequence[Raw],
    classes: Sequence[Raw],
    nodes: Sequence[Raw],
    minor: str,
) -> Iterator[tuple[Raw, Raw]]:
    """Yield each claim without an allocation, and its new allocation under a minor version's rules.

    Raises:
        NoDevicesError: no node has devices for a claim, or a claim or its devices are wrong.
    """
    rules, random, in_use = KUBERNETES_RULES[minor], Random(SEED), AllocatedDevices()  # noqa: S311 - no secret is drawn
    by_name = {found.name: found for found in map(parse_device_class, classes)}
    inventory = Inventory([parse_resource_slice(raw) for raw in slices], rules)
    selectors = cel_selectors(rules)
    waiting = []
    for raw in claims:
        claim = parse_resource_claim(raw)
        if claim.allocation is None:
            waiting.append((raw, claim))
        else:
            in_use.put(raw["metadata"]["uid"], claim.allocation.results)
    order = [*nodes]
    for raw, claim in waiting:
        random.shuffle(order)
        allocator = Allocator([claim], in_use, by_name.get, selectors, rules, Budget())
        named = ((node["metadata"]["name"], node["metadata"].get("labels", {})) for node in order)
        tried = (
            allocator.allocate(
                node,
                labels,
                lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
                pools_of_node(inventory, node, labels, rules),
            )
            for node, labels in named
        )
        name = raw["metadata"]["name"]
        try:
            found = next((found for found in tried if found), None)
        except AllocationError as error:
            raise NoDevicesError(f"the claim {name}: {error.text}") from error
        if not found:
            raise NoDevicesError(f"no node has devices for the claim {name}")
        in_use.put(raw["metadata"]["uid"], found[0].results)
        yield raw, allocation_fields(found[0])
