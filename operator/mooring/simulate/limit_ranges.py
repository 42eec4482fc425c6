"""Applies LimitRanges to new pods, as the API server's admission plugin LimitRanger does.

The rules are those of `plugin/pkg/admission/limitranger`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mooring.model.fields import mapping, mappings, name_of, namespace_of, text
from mooring.model.quantity import parse_count, parse_milli
from mooring.model.resources import (
    CPU,
    ContainerResources,
    parse_containers,
    parse_pod_level,
    total_requests,
)

_CONTAINER: Final = "Container"
_POD: Final = "Pod"


class _Limit(NamedTuple):
    kind: str
    minimum: Mapping[str, Any]
    maximum: Mapping[str, Any]
    ratio: Mapping[str, Any]
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]


class LimitRanges:
    """The LimitRanges of all namespaces, made from raw objects."""

    def __init__(self, raw: Iterable[Mapping[str, Any]]) -> None:
        self._limits: dict[str, list[_Limit]] = {}
        for limit_range in sorted(raw, key=name_of):
            spec = mapping(limit_range, "spec")
            for index, item in enumerate(mappings(spec, "limits", "spec")):
                limit = _parsed(item, f"spec.limits[{index}]")
                self._limits.setdefault(namespace_of(limit_range), []).append(limit)

    def completed(self, namespace: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pod's spec with the default requests and limits of the namespace."""
        defaults = [limit for limit in self._limits.get(namespace, ()) if limit.kind == _CONTAINER]
        completed = dict(spec)
        for group in ("containers", "initContainers"):
            if defaults and group in spec:
                containers = mappings(spec, group, "spec")
                completed[group] = [_completed(each, defaults) for each in containers]
        return completed

    def violations(self, namespace: str, spec: Mapping[str, Any]) -> list[str]:
        """Return the limits that the pod's spec violates, in the API server's words."""
        found: list[str] = []
        limits = self._limits.get(namespace, ())
        if not limits:
            return found
        containers = parse_containers(spec, "containers")
        init = parse_containers(spec, "initContainers")
        for limit in limits:
            if limit.kind == _CONTAINER:
                for each in (*containers, *init):
                    found += _violations(limit, each.requests, each.limits)
            elif limit.kind == _POD:
                found += _violations(limit, *_of_pod(spec, containers, init))
        return found


def _parsed(item: Mapping[str, Any], where: str) -> _Limit:
    # Defaults as in SetDefaults_LimitRangeItem of the API server.
    minimum, maximum = mapping(item, "min", where), mapping(item, "max", where)
    limits = {**maximum, **mapping(item, "default", where)}
    requests = {**minimum, **limits, **mapping(item, "defaultRequest", where)}
    ratio = mapping(item, "maxLimitRequestRatio", where)
    return _Limit(text(item, "type", where), minimum, maximum, ratio, limits, requests)


def _completed(container: Mapping[str, Any], defaults: Iterable[_Limit]) -> dict[str, Any]:
    resources = mapping(container, "resources")
    limits = dict(mapping(resources, "limits"))
    requests = {**limits, **mapping(resources, "requests")}
    for default in defaults:
        limits = {**default.limits, **limits}
        requests = {**default.requests, **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _of_pod(
    spec: Mapping[str, Any], containers: list[ContainerResources], init: list[ContainerResources]
) -> tuple[dict[str, int], dict[str, int]]:
    requests = total_requests(
        [each.requests for each in containers], [(each.requests, each.sidecar) for each in init]
    )
    limits = total_requests(
        [each.limits for each in containers], [(each.limits, each.sidecar) for each in init]
    )
    pod_requests, pod_limits = parse_pod_level(spec, requests)
    return requests | pod_requests, limits | pod_limits


def _violations(
    limit: _Limit, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterator[str]:
    yield from _below_minimum(limit, requests, limits)
    yield from _above_maximum(limit, requests, limits)
    yield from _above_ratio(limit, requests, limits)


def _below_minimum(
    limit: _Limit, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterator[str]:
    for name, amount in limit.minimum.items():
        least, said = _amount(name, amount), f"minimum {name} usage per {limit.kind} is {amount}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif requests[name] < least:
            yield f"{said}, but request is {_shown(name, requests[name])}"
        elif limits.get(name, least) < least:
            yield f"{said}, but limit is {_shown(name, limits[name])}"


def _above_maximum(
    limit: _Limit, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterator[str]:
    for name, amount in limit.maximum.items():
        most, said = _amount(name, amount), f"maximum {name} usage per {limit.kind} is {amount}"
        if name not in limits:
            yield f"{said}.  No limit is specified"
        elif limits[name] > most:
            yield f"{said}, but limit is {_shown(name, limits[name])}"
        elif requests.get(name, most) > most:
            yield f"{said}, but request is {_shown(name, requests[name])}"


def _above_ratio(
    limit: _Limit, requests: Mapping[str, int], limits: Mapping[str, int]
) -> Iterator[str]:
    for name, amount in limit.ratio.items():
        said = f"{name} max limit to request ratio per {limit.kind} is {amount}, but"
        if not requests.get(name):
            yield f"{said} no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{said} no limit is specified or limit is 0"
        elif limits[name] * 1000 > parse_milli(amount) * requests[name]:
            yield f"{said} provided ratio is {limits[name] / requests[name]:f}"


def _amount(resource: str, amount: Any) -> int:
    where = f"spec.limits.{resource}"
    return parse_milli(amount, where) if resource == CPU else parse_count(amount, where)


_BINARY: Final[Sequence[str]] = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _shown(resource: str, amount: int) -> str:
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    power = 0
    while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"
