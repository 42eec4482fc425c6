"""In what two policies differ once every default is filled in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mooring.policy.points import Point
from mooring.simulate.policies import Policy

__all__ = ["Difference", "differences"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that reads differently; None where one side has no such field."""

    profile: str
    field: str
    before: str | None
    after: str | None


def differences(before: Sequence[Policy], after: Sequence[Policy]) -> list[Difference]:
    """Every difference, by profile and in the order of a profile's fields.

    Two single policies are compared whatever their names, more by name.
    """
    if len(before) == len(after) == 1:
        return list(_between(before[0], after[0]))
    left = {policy.profile.name: policy for policy in before}
    right = {policy.profile.name: policy for policy in after}
    return [
        difference
        for name in dict.fromkeys((*left, *right))
        for difference in _between(left.get(name), right.get(name))
    ]


def _between(before: Policy | None, after: Policy | None) -> Iterator[Difference]:
    if before is None or after is None:
        known = before or after
        if known is not None:
            said = ("absent", "present") if before is None else ("present", "absent")
            yield Difference(known.profile.name, "profile", *said)
        return
    names = dict.fromkeys((before.profile.name, after.profile.name))
    left, right = dict(_fields(before)), dict(_fields(after))
    for field in dict.fromkeys((*left, *right)):
        if left.get(field) != right.get(field):
            yield Difference(" / ".join(names), field, left.get(field), right.get(field))


def _fields(policy: Policy) -> Iterator[tuple[str, str]]:
    """Everything a policy says, by the path it has in a SchedulingProfile."""
    spec = policy.profile.spec
    yield "match.schedulerNames", ", ".join(policy.profile.scheduler_names)
    match = spec.match.model_dump(mode="json", by_alias=True, exclude_none=True)
    match.pop("schedulerNames", None)
    yield from _flat("match", match)
    yield "percentageOfNodesToScore", str(policy.effective.percentage_of_nodes_to_score)
    yield "alwaysCheckAllFilters", _text(spec.always_check_all_filters)
    yield from _plugins(policy)
    for name, args in sorted(policy.effective.args.items()):
        dumped = args.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield from _flat(f"pluginConfig.{name}", dumped)
    for number, extender in enumerate(spec.extenders):
        dumped = extender.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield from _flat(f"extenders[{number}]", dumped)
    yield from _flat("preemption", spec.preemption.model_dump(mode="json", by_alias=True))


def _plugins(policy: Policy) -> Iterator[tuple[str, str]]:
    """The order of each point's plugins, and the weight of each that scores."""
    for point in Point:
        uses = policy.effective.plugins[point]
        yield f"plugins.{point}", ", ".join(use.name for use in uses)
        if point is Point.SCORE:
            for use in uses:
                yield f"plugins.{point}.{use.name}.weight", str(use.weight)


def _flat(path: str, value: Any) -> Iterable[tuple[str, str]]:
    """The leaves of nested objects; a list is one leaf."""
    if not isinstance(value, Mapping):
        return [(path, _text(value))]
    return [leaf for name, inner in value.items() for leaf in _flat(f"{path}.{name}", inner)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
