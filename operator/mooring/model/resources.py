"""What a pod spec asks for, container by container and for the pod as a whole.

The API server completes requests from limits before it stores a pod (`apis/core/v1/defaults.go`,
SetDefaults_Pod). The same is done here, so that a manifest that never met an API server means the
same as the object made from it; on a stored pod it changes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from mooring.model.errors import ManifestError
from mooring.model.fields import mapping, mappings
from mooring.model.quantity import parse_count, parse_milli

__all__ = [
    "CPU",
    "MEMORY",
    "ContainerResources",
    "parse_amounts",
    "parse_containers",
    "parse_pod_level",
    "raise_to",
    "total_requests",
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
_STANDARD: Final = frozenset((CPU, MEMORY, "ephemeral-storage"))
_HUGE_PAGES: Final = "hugepages-"


class ContainerResources(NamedTuple):
    """One container's requests (completed from its limits) and limits: millicores, bytes, counts.

    An explicit zero stays, because scoring replaces only requests that are missing.
    """

    name: str
    sidecar: bool
    """Whether it is an init container that keeps running (restartPolicy Always)."""
    requests: dict[str, int]
    limits: dict[str, int]


def parse_containers(spec: Mapping[str, Any], field: str) -> list[ContainerResources]:
    """The resources of the containers in `field`: `containers` or `initContainers`."""
    parsed = []
    for index, container in enumerate(mappings(spec, field, "spec")):
        where = f"spec.{field}[{index}]"
        requests, limits = _requirements(mapping(container, "resources", where), where)
        sidecar = container.get("restartPolicy") == "Always" and field == "initContainers"
        parsed.append(
            ContainerResources(str(container.get("name")), sidecar, limits | requests, limits)
        )
    return parsed


def parse_pod_level(
    spec: Mapping[str, Any], in_containers: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """The pod-level requests (completed) and limits; both empty where the pod sets none.

    Only cpu, memory and huge pages exist at this level, others are left out. `in_containers` is
    the total of what the containers request: with any pod-level limit it becomes the request of a
    resource that has none (not for huge pages); after that the limit does.
    """
    requests, limits = _requirements(mapping(spec, "resources", "spec"), "spec")
    if limits:
        aggregated = {r: in_containers[r] for r in (CPU, MEMORY) if r in in_containers}
        requests = limits | aggregated | requests
    return _at_pod_level(requests), _at_pod_level(limits)


def total_requests(
    containers: Iterable[Mapping[str, int]], init: Iterable[tuple[Mapping[str, int], bool]]
) -> dict[str, int]:
    """Per resource, the most that is ever needed at once (component-helpers' resource/helpers.go).

    `init` holds each init container's requests and whether it is a sidecar. A sidecar runs from
    its start to the pod's end, another init container alone beside the sidecars before it.
    """
    total: dict[str, int] = {}
    for requests in containers:
        _add(total, requests)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for requests, is_sidecar in init:
        if is_sidecar:
            _add(total, requests)
            _add(sidecars, requests)
            phase = sidecars
        else:
            phase = dict(requests)
            _add(phase, sidecars)
        raise_to(peak, phase)
    raise_to(total, peak)
    return total


def raise_to(amounts: dict[str, int], floor: Mapping[str, int]) -> None:
    """No entry of `amounts` is below that of `floor` any more; new names are added."""
    for name, amount in floor.items():
        if amount > amounts.get(name, -1):
            amounts[name] = amount


def parse_amounts(raw: Mapping[str, Any], where: str) -> dict[str, int]:
    """A resource list: cpu in millicores, everything else in whole units.

    Fractions are rounded up in each list, not in their sum: the API server stores no finer cpu
    than a millicore, and a fraction of a byte is nobody's request.

    Raises:
        ManifestError: for a malformed or negative amount, or a name that is neither standard nor
            qualified by a domain.
    """
    amounts = {}
    for name, amount in raw.items():
        path = f"{where}.{name}"
        if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
            raise ManifestError(
                path,
                "is no resource; use cpu, memory, ephemeral-storage, hugepages-SIZE or "
                "a name with its domain, such as nvidia.com/gpu",
            )
        parsed = parse_milli(amount, path) if name == CPU else parse_count(amount, path)
        if parsed < 0:
            raise ManifestError(path, f"{amount} is negative; write zero or more")
        amounts[name] = parsed
    return amounts


def _requirements(raw: Mapping[str, Any], where: str) -> tuple[dict[str, int], dict[str, int]]:
    where = f"{where}.resources"
    return (
        parse_amounts(mapping(raw, "requests", where), f"{where}.requests"),
        parse_amounts(mapping(raw, "limits", where), f"{where}.limits"),
    )


def _at_pod_level(amounts: dict[str, int]) -> dict[str, int]:
    return {
        name: amount
        for name, amount in amounts.items()
        if name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
