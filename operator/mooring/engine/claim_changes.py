"""Changes of what a pod's ResourceClaims ask for, with which they might get devices."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from mooring.engine.change import Change
from mooring.model.pod import Pod
from mooring.model.resource_claims import (
    MOST_RESULTS,
    ClaimSpec,
    Constraint,
    DeviceToleration,
    ExactRequest,
    ResourceClaim,
)
from mooring.model.taints import Taint, Toleration
from mooring.state.cluster_view import ClusterView

__all__ = ["claim_changes", "fewer_devices"]

_TOLERATION: Final = 1.0
_CONSTRAINT: Final = 1.5
"""The cost of a selector, a constraint or a capacity that a claim gives up; see `Suggestion`."""
_MOST_TAINTS: Final = 4
_MOST_CHARACTERS: Final = 60
"""Of an expression: it may be as long as 10 KiB."""


def claim_changes(pod: Pod, cluster: ClusterView) -> Iterator[Change]:
    """Yield what the pod's claims that have no devices could do without."""
    taints: Mapping[Taint, int] | None = None
    for name, claim in _waiting(pod, cluster):
        for request, wanted in _requests(claim.spec):
            yield from _of_request(claim, f"request {request}", f"claim {name}", request, wanted)
        for constraint in dict.fromkeys(claim.spec.constraints):
            attribute = constraint.match_attribute or constraint.distinct_attribute
            what = f"constraint on {attribute}"
            without = partial(_without_constraint, constraint)
            yield _change(
                claim, f"had no {what} in claim {name}", f"{what} of claim {name}", without
            )
        taints = _taints(cluster) if taints is None else taints
        for taint in sorted(taints, key=lambda each: -taints[each])[:_MOST_TAINTS]:
            if not all(_tolerates(wanted, taint) for _, wanted in _requests(claim.spec)):
                yield _change(
                    claim,
                    f"tolerated the device taint {taint.text} in claim {name}",
                    f"taint {taint.text} of devices",
                    partial(_edited, "", partial(_tolerating, taint)),
                    _TOLERATION,
                )


def fewer_devices(pod: Pod, cluster: ClusterView) -> Iterator[Sequence[Change]]:
    """Yield for each request for several devices those for fewer, the largest number first.

    More than a claim can have are not tried.
    """
    for name, claim in _waiting(pod, cluster):
        for request, wanted in _requests(claim.spec):
            where = f"request {request} of claim {name}"
            is_all = wanted.mode == "All"
            before = "all" if is_all else str(wanted.count)
            numbers = [1] if is_all else range(min(wanted.count - 1, MOST_RESULTS), 0, -1)
            yield [
                _change(
                    claim,
                    f"asked for {number} device{'s' * (number > 1)} instead of {before} in {where}",
                    f"the number of devices of {where}",
                    partial(_edited, request, partial(_counting, number)),
                    1.0 - number / max(wanted.count, 2),
                )
                for number in numbers
            ]


def _waiting(pod: Pod, cluster: ClusterView) -> Iterator[tuple[str, ResourceClaim]]:
    """Yield the pod's claims that have no devices, each once, with the names of their entries."""
    seen, known = set[str](), cluster.dynamic_resources
    for entry in pod.spec.resource_claims:
        name = entry.claim or pod.claim_names.get(entry.name)
        claim = known.claim(f"{pod.namespace}/{name}") if name else None
        if claim is None or claim.uid in seen or claim.deleting:
            continue
        if claim.allocation is None and known.in_flight(claim.uid) is None:
            seen.add(claim.uid)
            yield entry.name, claim


def _requests(spec: ClaimSpec) -> Iterator[tuple[str, ExactRequest]]:
    """Yield the requests and subrequests by `request` or `request/subrequest`."""
    for each in spec.requests:
        if each.exactly is not None:
            yield each.name, each.exactly
        for sub in each.first_available:
            yield f"{each.name}/{sub.name}", sub


def _of_request(
    claim: ResourceClaim, words: str, of_claim: str, request: str, wanted: ExactRequest
) -> Iterator[Change]:
    """Yield what a request could do without."""
    for index, expression in enumerate(wanted.selectors):
        shown = " ".join((expression or "").split())
        if len(shown) > _MOST_CHARACTERS:
            shown = f"{shown[: _MOST_CHARACTERS - 3]}..."
        yield _change(
            claim,
            f"had no selector #{index} in {words} of {of_claim} ({shown})",
            f"selector #{index} of {words}",
            partial(_edited, request, partial(_without_selector, expression)),
        )
    for capacity, amount in wanted.capacity.items():
        yield _change(
            claim,
            f"requested no {capacity} of devices in {words} of {of_claim} "
            f"(it requests {amount.text})",
            f"capacity {capacity} of {words}",
            partial(_edited, request, partial(_without_capacity, capacity)),
        )


def _change(
    claim: ResourceClaim,
    text: str,
    cause: str,
    ask: Callable[[ClaimSpec], ClaimSpec],
    cost: float = _CONSTRAINT,
) -> Change:
    return Change(text, cause, cost, claim=claim.uid, ask=ask)


def _taints(cluster: ClusterView) -> Mapping[Taint, int]:
    """Return the taints that keep claims from devices, and how many devices have each."""
    counts = Counter[Taint]()
    for each in cluster.dynamic_resources.slices:
        for device in each.devices:
            if device.taints:
                counts.update(t for t in device.taints if t.effect in ("NoSchedule", "NoExecute"))
    return counts


def _tolerates(wanted: ExactRequest, taint: Taint) -> bool:
    return any(each.toleration.tolerates(taint) for each in wanted.tolerations)


def _edited(name: str, edit: Callable[[ExactRequest], ExactRequest], spec: ClaimSpec) -> ClaimSpec:
    """Return the spec with this request or subrequest edited; all of them if `name` is ""."""
    requests = tuple(
        replace(
            each,
            exactly=edit(each.exactly)
            if each.exactly is not None and name in ("", each.name)
            else each.exactly,
            first_available=tuple(
                edit(sub) if name in ("", f"{each.name}/{sub.name}") else sub
                for sub in each.first_available
            ),
        )
        for each in spec.requests
    )
    return replace(spec, requests=requests)


def _without_selector(expression: str | None, wanted: ExactRequest) -> ExactRequest:
    return replace(wanted, selectors=tuple(e for e in wanted.selectors if e != expression))


def _without_capacity(capacity: str, wanted: ExactRequest) -> ExactRequest:
    left = {name: amount for name, amount in wanted.capacity.items() if name != capacity}
    return replace(wanted, capacity=left)


def _without_constraint(constraint: Constraint, spec: ClaimSpec) -> ClaimSpec:
    return replace(spec, constraints=tuple(c for c in spec.constraints if c != constraint))


def _tolerating(taint: Taint, wanted: ExactRequest) -> ExactRequest:
    toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
    return replace(wanted, tolerations=(*wanted.tolerations, DeviceToleration(toleration, None)))


def _counting(number: int, wanted: ExactRequest) -> ExactRequest:
    return replace(wanted, mode="ExactCount", count=number)
