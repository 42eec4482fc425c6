"""What Mooring's allocator answers for a case."""

from collections.abc import Mapping, Sequence
from typing import Final

from dra.objects import Case
from dra.oracle import Answer
from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import allocation_fields, parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.cel_selectors import Compile, Selectors, cel_selectors
from mooring.claims.plugin.pools import Inventory, Pool, pools_of_node
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.kubernetes_rules import KUBERNETES_RULES

SHARE: Final = "share"
"""What stands for every share id, as in the answers of the program."""


def allocator_of(
    case: Case,
    minor: str,
    compile_selector: Compile | None = None,
    budget: Budget | None = None,
) -> Allocator:
    """Return the allocator of a minor version for the case; selectors are CEL by default."""
    rules = KUBERNETES_RULES[minor]
    classes = {c.name: c for c in map(parse_device_class, case["classes"])}
    return Allocator(
        [parse_resource_claim(raw) for raw in case["claims"]],
        in_use(case),
        classes.get,
        Selectors(compile_selector, rules) if compile_selector else cel_selectors(rules),
        rules,
        budget or Budget(),
    )


def in_use(case: Case) -> AllocatedDevices:
    allocated = AllocatedDevices()
    for number, raw in enumerate(case["allocated"]):
        allocation = parse_resource_claim(raw).allocation
        allocated.put(str(number), allocation.results if allocation is not None else ())
    return allocated


def ask(
    case: Case,
    minor: str,
    compile_selector: Compile | None = None,
    budget: Budget | None = None,
) -> list[Answer]:
    """Return the answer for each node of the case, as the program of kube-scheduler writes it."""
    allocator = allocator_of(case, minor, compile_selector, budget)
    inventory, rules = inventory_of(case, minor), KUBERNETES_RULES[minor]
    named = [(raw["metadata"]["name"], raw["metadata"].get("labels", {})) for raw in case["nodes"]]
    return [
        _answer(allocator, name, labels, pools_of_node(inventory, name, labels, rules))
        for name, labels in named
    ]


def inventory_of(case: Case, minor: str) -> Inventory:
    slices = [parse_resource_slice(raw) for raw in case["slices"]]
    return Inventory(slices, KUBERNETES_RULES[minor])


def _answer(
    allocator: Allocator, name: str, labels: Mapping[str, str], pools: Sequence[Pool]
) -> Answer:
    try:
        found = allocator.allocate(name, labels, lambda: SHARE, pools)
    except AllocationError as error:
        return {"error": error.text, **({"nodeOnly": True} if error.on_node else {})}
    return {"allocations": [allocation_fields(each) for each in found]} if found else {}
