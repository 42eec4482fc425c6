"""The resource requests and limits of a pod's containers and of the pod as a whole.

Before the API server stores a pod, it sets missing requests to the limits (SetDefaults_Pod in
`apis/core/v1/defaults.go`). This module does the same, so that a manifest and the stored object
have the same requests. For a stored pod, this changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from mooring.model.fields import mapping, mappings
from mooring.model.manifest_error import ManifestError
from mooring.model.paused_reading import ITEMS_PER_STEP
from mooring.model.quantity import parse_count, parse_milli
from mooring.pausing import pause

CPU: Final = "cpu"
MEMORY: Final = "memory"
_STANDARD: Final = frozenset((CPU, MEMORY, "ephemeral-storage"))
_HUGE_PAGES: Final = "hugepages-"
_UNITS: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def amount_text(resource: str, value: int) -> str:
    """Return an amount as people write it: `1500m` or `2` for cpu, `3Gi` or `512Mi` for bytes."""
    if resource == CPU:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if in_bytes(resource):
        for suffix, unit in _UNITS:
            if value >= unit and value % unit == 0:
                return f"{value // unit}{suffix}"
    return str(value)


def in_bytes(resource: str) -> bool:
    """Return whether amounts of the resource are bytes: memory, ephemeral-storage and hugepages-*.

    All others are millicores (cpu) or counts.
    """
    return resource != CPU and (resource in _STANDARD or resource.startswith(_HUGE_PAGES))


class ContainerResources(NamedTuple):
    """One container's requests and limits: cpu in millicores, others in bytes or counts.

    A missing request is set to the limit. A request of zero is kept, because scores replace only
    missing requests.
    """

    name: str
    sidecar: bool
    """Whether the container is an init container with restartPolicy Always."""
    requests: dict[str, int]
    limits: dict[str, int]


def parse_containers(spec: Mapping[str, Any], field: str) -> list[ContainerResources]:
    """Parse the resources of the containers in `field`: `containers` or `initContainers`."""
    parsed = list[ContainerResources]()
    for index, container in enumerate(mappings(spec, field, "spec")):
        where = f"spec.{field}[{index}]"
        resources = mapping(container, "resources", where)
        requests, limits = _requirements(resources, where)
        sidecar = container.get("restartPolicy") == "Always" and field == "initContainers"
        parsed.append(
            ContainerResources(str(container.get("name")), sidecar, limits | requests, limits)
        )
        if len(parsed) % ITEMS_PER_STEP == 0:
            pause()
    return parsed


class ContainerRequests(NamedTuple):
    """One container's requests, zeros included: cpu in millicores, others in bytes or counts."""

    name: str
    kind: Literal["init", "sidecar", "app"]
    requests: Mapping[str, int]


class PodContainers(NamedTuple):
    """The resources of all containers of a pod."""

    containers: Sequence[ContainerResources]
    init: Sequence[ContainerResources]

    @property
    def with_extended(self) -> tuple[ContainerRequests, ...]:
        """Each container's requests, init containers first; () if no extended resource is used."""
        if not any(
            "/" in name for each in (*self.init, *self.containers) for name in each.requests
        ):
            return ()
        return (
            *(
                ContainerRequests(c.name, "sidecar" if c.sidecar else "init", c.requests)
                for c in self.init
            ),
            *(ContainerRequests(c.name, "app", c.requests) for c in self.containers),
        )

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "PodContainers":
        """Parse the containers of a pod's spec."""
        return cls(parse_containers(spec, "containers"), parse_containers(spec, "initContainers"))


def parse_pod_level(
    spec: Mapping[str, Any], in_containers: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Parse the pod-level requests and limits; both are empty if the pod sets none.

    Only cpu, memory and huge pages exist at pod level. `in_containers` is the total of the
    containers' requests.
    """
    requests, limits = _requirements(mapping(spec, "resources", "spec"), "spec")
    # A missing request for cpu or memory is the containers' total. For other resources, and without
    # a total, it is the limit.
    if limits:
        aggregated = {r: in_containers[r] for r in (CPU, MEMORY) if r in in_containers}
        requests = limits | aggregated | requests
    return at_pod_level(requests), at_pod_level(limits)


def total_requests(
    containers: Iterable[Mapping[str, int]], init: Iterable[tuple[Mapping[str, int], bool]]
) -> dict[str, int]:
    """Return, by resource, the most that containers request at one time (resource/helpers.go).

    Each item of `init` has an init container's requests, and whether it is a sidecar.
    """
    total: dict[str, int] = {}
    for requests in containers:
        _add(total, requests)
    # A sidecar runs from its start to the end of the pod. Any other init container runs only
    # together with the sidecars before it.
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
    """Raise each amount to at least its amount in `floor`; add resources that only `floor` has."""
    for name, amount in floor.items():
        if amount > amounts.get(name, -1):
            amounts[name] = amount


def parse_amounts(raw: Mapping[str, Any], where: str) -> dict[str, int]:
    """Parse a resource list: cpu in millicores, everything else in whole units, each rounded up.

    Raises ManifestError for a malformed or negative amount, or a name that is neither standard nor
    qualified by a domain.
    """
    amounts = {}
    for name, amount in raw.items():
        path = f"{where}.{name}"
        if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
            raise ManifestError(
                path,
                "is not a resource; use cpu, memory, ephemeral-storage, hugepages-SIZE or "
                "a name with its domain, such as nvidia.com/gpu",
            )
        parsed = parse_milli(amount, path) if name == CPU else parse_count(amount, path)
        if parsed < 0:
            raise ManifestError(path, f"{amount} is negative; write zero or more")
        amounts[name] = parsed
    return amounts


def _requirements(raw: Mapping[str, Any], where: str) -> tuple[dict[str, int], dict[str, int]]:
    where = f"{where}.resources"
    requests = _parsing_amounts(mapping(raw, "requests", where), f"{where}.requests")
    limits = _parsing_amounts(mapping(raw, "limits", where), f"{where}.limits")
    return requests, limits


def _parsing_amounts(raw: Mapping[str, Any], where: str) -> dict[str, int]:
    if len(raw) <= ITEMS_PER_STEP:
        return parse_amounts(raw, where)
    amounts, left = dict[str, int](), iter(raw.items())
    while some := dict(islice(left, ITEMS_PER_STEP)):
        amounts |= parse_amounts(some, where)
        pause()
    return amounts


def at_pod_level(amounts: dict[str, int]) -> dict[str, int]:
    """Return only the amounts of cpu, memory and huge pages, which may be set at pod level."""
    return {
        name: amount
        for name, amount in amounts.items()
        if name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
