"""Compares profiles after all defaults are filled in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mooring.policy.extender import without_secrets
from mooring.policy.points import Point
from mooring.simulate.load_profiles import LoadedProfile

_COMMA: Final = ", "


@dataclass(frozen=True, slots=True)
class Difference:
    """A field with different values in two profiles; None stands for a missing field.

    The values contain no private keys and no credentials of URLs, because many people can read the
    logs of CI.
    """

    profile: str
    field: str
    before: str | None
    after: str | None


_SHORT: Final = 3
"""The most items of a list that a table shows; of a longer list it shows only the changes."""


def in_short(difference: Difference) -> tuple[str, str]:
    """Return both values for a table; long lists are reduced to removed and added names."""
    before, after = difference.before, difference.after
    left, right = (value.split(_COMMA) if value else [] for value in (before, after))
    if not _is_list(difference.field) or max(len(left), len(right)) <= _SHORT:
        return before or "-", after or "-"
    removed = [f"-{name}" for name in left if name not in right]
    added = [f"+{name}" for name in right if name not in left]
    if not removed and not added:
        return before or "-", f"the same in another order: {after}"
    return _COMMA.join(removed) or "-", _COMMA.join(added) or "-"


def _is_list(field: str) -> bool:
    return field == "match.schedulerNames" or field in {f"plugins.{point}" for point in Point}


def differences(
    before: Sequence[LoadedProfile], after: Sequence[LoadedProfile]
) -> list[Difference]:
    """Return the differences between profiles of the same name, profile by profile.

    If `before` and `after` have one profile each, the two are compared even if their names differ.
    """
    if len(before) == len(after) == 1:
        return list(_between(before[0], after[0]))
    left = {loaded.profile.name: loaded for loaded in before}
    right = {loaded.profile.name: loaded for loaded in after}
    return [
        difference
        for name in dict.fromkeys((*left, *right))
        for difference in _between(left.get(name), right.get(name))
    ]


def _between(before: LoadedProfile | None, after: LoadedProfile | None) -> Iterator[Difference]:
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
            shown = _shown(field, left.get(field), right.get(field))
            yield Difference(" / ".join(names), field, *shown)


def _shown(field: str, before: str | None, after: str | None) -> tuple[str | None, str | None]:
    if not field.startswith("extenders["):
        return before, after
    left, right = _without_secrets(field, before), _without_secrets(field, after)
    return left, f"{right}, with another secret" if left == right else right


def _without_secrets(field: str, value: str | None) -> str | None:
    if not value:
        return value
    if field.endswith(".urlPrefix"):
        return without_secrets(value)
    return "hidden" if field.endswith(".keyData") else value


def _fields(loaded: LoadedProfile) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each compared field of a profile."""
    spec = loaded.profile.spec
    yield "match.schedulerNames", _COMMA.join(loaded.profile.scheduler_names)
    match = spec.match.model_dump(mode="json", by_alias=True, exclude_none=True)
    match.pop("schedulerNames", None)
    yield from _flat("match", match)
    yield "mode", spec.mode
    if spec.kubernetes_version is not None:
        yield "kubernetesVersion", spec.kubernetes_version
    yield "percentageOfNodesToScore", str(loaded.effective.percentage_of_nodes_to_score)
    yield "alwaysCheckAllFilters", _text(spec.always_check_all_filters)
    yield from _plugins(loaded)
    for name, args in sorted(loaded.effective.args.items()):
        dumped = args.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield from _flat(f"pluginConfig.{name}", dumped)
    for number, extender in enumerate(spec.extenders):
        dumped = extender.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield from _flat(f"extenders[{number}]", dumped)
    yield from _flat("preemption", spec.preemption.model_dump(mode="json", by_alias=True))
    if spec.rebalancing is not None:
        yield from _flat("rebalancing", spec.rebalancing.model_dump(mode="json", by_alias=True))


def _plugins(loaded: LoadedProfile) -> Iterator[tuple[str, str]]:
    for point in Point:
        uses = loaded.effective.plugins[point]
        yield f"plugins.{point}", _COMMA.join(use.name for use in uses)
        if point in (Point.SCORE, Point.PLACEMENT_SCORE):
            for use in uses:
                yield f"plugins.{point}.{use.name}.weight", str(use.weight)


def _flat(path: str, value: Any) -> Iterable[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [(path, _text(value))]
    return [leaf for name, inner in value.items() for leaf in _flat(f"{path}.{name}", inner)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
