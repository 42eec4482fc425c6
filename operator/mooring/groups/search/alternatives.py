"""Places groups whose members compete for the alternatives (`firstAvailable`) of their claims.

kube-scheduler gives a member the first free alternative, even if another member needs that device
and has no alternative; then no member is placed (kubernetes#138765). In this module the claims
try later alternatives first.
"""

from collections.abc import Sequence
from dataclasses import replace

from mooring.claims.model.resource_claims import Allocation, ClaimSpec, ResourceClaim
from mooring.groups.search.group_search import Assignment, Devices, SearchedMembers
from mooring.groups.search.placement import GroupSearch
from mooring.model.pod import Uid
from mooring.pausing import pause
from mooring.state.columns import IntArray


def claims_with_alternatives(searched: SearchedMembers) -> list[ResourceClaim]:
    """Return the members' claims that have no devices and offer alternatives."""
    known, found = searched.cluster.dynamic_resources.claims, dict[str, ResourceClaim]()
    for pod in searched.members:
        pause()
        for claim in known.named_by(pod):
            if _alternatives(claim.spec) > 1 and claim.allocation is None:
                found[claim.uid] = claim
    return [*found.values()]


def place_with_last_alternatives(
    search: GroupSearch, claims: Sequence[ResourceClaim], candidates: IntArray
) -> Assignment:
    """Place the members on the candidate nodes; every claim tries its last alternative first."""
    return _placed(search, claims, candidates, _most_steps(claims))


def place_with_later_alternatives(
    search: GroupSearch, claims: Sequence[ResourceClaim], candidates: IntArray
) -> Assignment:
    """Place the members on the candidate nodes; their claims try later alternatives first."""
    low, high = 1, _most_steps(claims)
    best = place_with_last_alternatives(search, claims, candidates)
    # If all members fit with the last alternatives, a binary search finds the earliest alternatives
    # with which they still fit.
    while best.complete and low < high:
        steps = (low + high) // 2
        found = _placed(search, claims, candidates, steps)
        if found.complete:
            best, high = found, steps
        else:
            low = steps + 1
    return best


def _most_steps(claims: Sequence[ResourceClaim]) -> int:
    return len(claims) * max(_alternatives(claim.spec) - 1 for claim in claims)


def _alternatives(spec: ClaimSpec) -> int:
    return max((len(request.first_available) for request in spec.requests), default=0)


def _placed(
    search: GroupSearch, claims: Sequence[ResourceClaim], candidates: IntArray, steps: int
) -> Assignment:
    specs = dict[tuple[str, int], ClaimSpec]()
    with search.searched.cluster.trial() as trial:
        for number, claim in enumerate(claims):
            pause()
            # Each step moves one claim to its next alternative.
            key = claim.spec.asked, (steps + number) // len(claims)
            if key not in specs:
                specs[key] = _preferring(claim.spec, key[1])
            trial.ask(claim.uid, specs[key])
        found = search.place(candidates)
        return replace(found, devices=_devices_of(search.searched, found))


def _preferring(spec: ClaimSpec, first: int) -> ClaimSpec:
    requests = (
        replace(r, first_available=(*r.first_available[at:], *r.first_available[:at][::-1]))
        for r in spec.requests
        for at in (min(first, max(len(r.first_available) - 1, 0)),)
    )
    return replace(spec, requests=tuple(requests))


def _devices_of(searched: SearchedMembers, found: Assignment) -> Devices:
    claims, pods = searched.cluster.dynamic_resources.claims, {p.uid: p for p in searched.members}
    devices = dict[Uid, dict[str, Allocation]]()
    with searched.trial() as members:
        for uid, row in found.rows.items():
            pause()
            members.add(pods[uid], row)
            held = claims.held(uid).items()
            devices[uid] = {key: each for key, each in held if claims.of_uid(key) is not None}
    return devices
