"""Makes the allocation of a claim from the devices that were found."""

from collections.abc import Callable, Mapping, Sequence

from mooring.claims.model.resource_claims import (
    Allocation,
    AllocationConfig,
    DeviceResult,
    ResourceClaim,
)
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.device_trial import Taken
from mooring.claims.plugin.requests import CandidateDevice, Slot
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.selectors import NodeSelector, NodeSelectorTerm, Requirement


def allocation_of(
    claim: ResourceClaim,
    chosen: Sequence[Slot],
    devices: Sequence[tuple[Taken, CandidateDevice]],
    node_name: str,
    rules: KubernetesRules,
    share_id: Callable[[], str],
) -> Allocation:
    """Return the claim's allocation: the `devices` of a node, and their configuration.

    `chosen` has each request, or its chosen sub-request. `share_id` makes an id for a share of a
    device. Raises AllocationError if the devices' node selectors cannot be combined.
    """
    config = [*_of_classes(chosen), *_of_claim(claim, chosen, rules)]
    if rules.device_configs_once:
        config = [_for_all(entry, chosen) for entry in config]
    return Allocation(
        results=tuple(_result(taken, candidate, share_id) for taken, candidate in devices),
        config=tuple(config),
        node_selector=_node_selector([each for _, each in devices], node_name, claim),
    )


def _result(taken: Taken, candidate: CandidateDevice, share_id: Callable[[], str]) -> DeviceResult:
    wanted, device = taken.slot.wanted, candidate.device
    return DeviceResult(
        request=taken.slot.full_name,
        device=candidate.id,
        admin_access=True if wanted.admin_access else None,
        tolerations=wanted.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share_id() if taken.shared else "",
        consumed=taken.consumed or None,
    )


def _of_classes(chosen: Sequence[Slot]) -> list[AllocationConfig]:
    by_class: dict[str, list[Slot]] = {}
    for slot in chosen:
        by_class.setdefault(slot.device_class.name, []).append(slot)
    return [
        AllocationConfig("FromClass", tuple(slot.full_name for slot in slots), opaque)
        for slots in by_class.values()
        for opaque in slots[0].device_class.config
    ]


def _of_claim(
    claim: ResourceClaim, chosen: Sequence[Slot], rules: KubernetesRules
) -> list[AllocationConfig]:
    config = []
    for entry in claim.spec.config:
        # Older versions of Kubernetes repeat an entry for each chosen request that it names.
        times = sum(_named(slot, entry.requests) for slot in chosen) if entry.requests else 1
        if rules.device_configs_once:
            times = min(times, 1)
        config += [AllocationConfig("FromClaim", entry.requests, entry.opaque)] * times
    return config


def _for_all(entry: AllocationConfig, chosen: Sequence[Slot]) -> AllocationConfig:
    if all(_named(slot, entry.requests) for slot in chosen):
        return AllocationConfig(entry.source, (), entry.opaque)
    return entry


def _named(slot: Slot, requests: Sequence[str]) -> bool:
    return slot.name in requests or slot.full_name in requests


def _node_selector(
    devices: Sequence[CandidateDevice], node_name: str, claim: ResourceClaim
) -> NodeSelector | None:
    """Return a selector of the nodes that can use all these devices; None if all nodes can."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for each in devices:
        place = each.device if each.slice.per_device_node_selection else each.slice
        if place.node_name or each.device.binds_to_node:
            here = Requirement("metadata.name", "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(fields=(here,)),))
        terms = place.node_selector.terms if place.node_selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.name}: unsupported "
                f"ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _add_new(term.fields, fields)
            _add_new(term.expressions, expressions)
    if not expressions and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(requirements: Sequence[Requirement], to: list[Requirement]) -> None:
    for new in requirements:
        known: Mapping[tuple[str, str, frozenset[str]], Requirement] = {
            (each.key, each.operator, frozenset(each.values)): each for each in to
        }
        if (new.key, new.operator, frozenset(new.values)) not in known:
            to.append(new)
