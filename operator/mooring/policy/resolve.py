"""From a profile's words to what is in force: names checked, plugins spread, arguments read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from mooring.policy.args import UPSTREAM_ARGS, NodeResourcesFitArgs
from mooring.policy.defaults import KNOWN_ELSEWHERE, REMOVED
from mooring.policy.errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.merge import Catalog, PluginUse, plugins_by_point
from mooring.policy.points import Point
from mooring.policy.profile import (
    PluginConfig,
    PluginSet,
    SchedulingProfile,
    SchedulingProfileSpec,
    read_profile,
)
from mooring.policy.reading import read
from mooring.policy.status import EffectivePolicy, PluginInForce

__all__ = ["Catalog", "Effective", "load_profile", "resolve"]

_ARGS_VERSION: Final = "kubescheduler.config.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Effective:
    """The plugins of every extension point in the order they run, and their arguments by name."""

    plugins: Mapping[Point, tuple[PluginUse, ...]]
    args: Mapping[str, BaseModel]

    def policy(self, profile: SchedulingProfile) -> EffectivePolicy:
        """What the status of the profile shows of this."""
        percentage = profile.spec.percentage_of_nodes_to_score
        return EffectivePolicy(
            scheduler_names=profile.scheduler_names,
            percentage_of_nodes_to_score=100 if percentage is None else percentage,
            plugins={
                point: tuple(PluginInForce(name=u.name, weight=u.weight or None) for u in uses)
                for point, uses in self.plugins.items()
                if uses
            },
        )


def load_profile(document: object, catalog: Catalog) -> tuple[SchedulingProfile, Effective]:
    """The profile an API object holds, and what it means.

    Raises:
        ProfileInvalid: With every mistake: where a section of the spec cannot even be read, the
            other sections are checked all the same.
    """
    try:
        profile = read_profile(document)
    except ProfileInvalid as unreadable:
        rest = _readable_sections(document, unreadable.errors)
        further = _mistakes(rest, catalog, "spec")
        raise ProfileInvalid((*unreadable.errors, *further)) from None
    return profile, resolve(profile.spec, catalog)


def resolve(spec: SchedulingProfileSpec, catalog: Catalog, path: str = "spec") -> Effective:
    """What is in force under this spec.

    Raises:
        ProfileInvalid: With every mistake; their paths begin with `path`.
    """
    mistakes = tuple(_mistakes(spec, catalog, path))
    if mistakes:
        raise ProfileInvalid(mistakes)
    plugins = plugins_by_point(spec.plugins, catalog)
    args = {
        name: model
        for name in _names(plugins)
        if (model := _args(name, spec, catalog, path)) is not None
    }
    return Effective(plugins, args)


def _readable_sections(document: object, mistakes: Iterable[FieldError]) -> SchedulingProfileSpec:
    raw = document.get("spec") if isinstance(document, Mapping) else None
    if not isinstance(raw, Mapping):
        return SchedulingProfileSpec()
    steps = (mistake.path.replace("[", ".").split(".") for mistake in mistakes)
    broken = {section[1] for section in steps if section[0] == "spec" and len(section) > 1}
    rest = {name: value for name, value in raw.items() if name not in broken}
    return read(SchedulingProfileSpec, rest, "spec")


def _mistakes(spec: SchedulingProfileSpec, catalog: Catalog, path: str) -> Iterator[FieldError]:
    names = list(_wrong_names(spec, catalog, f"{path}.plugins"))
    yield from names
    plugins = plugins_by_point(spec.plugins, catalog)
    if not names:
        yield from _wrong_counts(plugins, f"{path}.plugins")
    configured = set[str]()
    for number, entry in enumerate(spec.plugin_config):
        where = f"{path}.pluginConfig[{number}]"
        if entry.name in configured:
            yield FieldError(f"{where}.name", f"{entry.name} is configured already")
        configured.add(entry.name)
        yield from _wrong_config(entry, catalog, where)
    for name in _names(plugins):
        if name not in configured:
            yield from _missing_args(name, catalog, f"{path}.pluginConfig")


def _wrong_names(spec: SchedulingProfileSpec, catalog: Catalog, path: str) -> Iterator[FieldError]:
    yield from _wrong_names_in(spec.plugins.multi_point, None, catalog, f"{path}.multiPoint")
    for point in Point:
        yield from _wrong_names_in(spec.plugins.at(point), point, catalog, f"{path}.{point}")


def _wrong_names_in(
    plugins: PluginSet, point: Point | None, catalog: Catalog, path: str
) -> Iterator[FieldError]:
    seen = set[str]()
    for number, enabled in enumerate(plugins.enabled):
        where = f"{path}.enabled[{number}].name"
        if enabled.name in seen:
            yield FieldError(where, f"{enabled.name} is enabled already")
        seen.add(enabled.name)
        points = catalog.points(enabled.name)
        if points is None:
            yield FieldError(where, _unknown(enabled.name, catalog))
        elif point is not None and point not in points:
            own = ", ".join(p for p in Point if p in points)
            yield FieldError(where, f"{enabled.name} does not implement {point}, only {own}")
    known = {*catalog.names(), *KNOWN_ELSEWHERE, "*"}
    for number, disabled in enumerate(plugins.disabled):
        if disabled.name not in known:
            where = f"{path}.disabled[{number}].name"
            yield FieldError(where, _unknown(disabled.name, catalog))


def _unknown(name: str, catalog: Catalog) -> str:
    if name in REMOVED:
        return f"{name} was removed from Kubernetes; {REMOVED[name]} does its work"
    if name in KNOWN_ELSEWHERE:
        return f"{name} is a plugin of kube-scheduler that Mooring does not have; remove it"
    names = list(catalog.names())
    hint = did_you_mean(name, names) or f"; known are {', '.join(sorted(names))}"
    return f'unknown plugin "{name}"{hint}'


def _wrong_counts(
    plugins: Mapping[Point, tuple[PluginUse, ...]], path: str
) -> Iterator[FieldError]:
    sorters = [use.name for use in plugins[Point.QUEUE_SORT]]
    if len(sorters) != 1:
        found = ", ".join(sorters) or "none"
        yield FieldError(f"{path}.queueSort", f"must leave exactly one plugin, leaves {found}")
    if not plugins[Point.BIND]:
        yield FieldError(f"{path}.bind", "must leave at least one plugin, leaves none")


def _wrong_config(entry: PluginConfig, catalog: Catalog, path: str) -> Iterator[FieldError]:
    known = catalog.points(entry.name) is not None
    if not known and (entry.name in REMOVED or entry.name not in KNOWN_ELSEWHERE):
        yield FieldError(f"{path}.name", _unknown(entry.name, catalog))
        return
    where = f"{path}.args"
    yield from _wrong_type(entry, where)
    model = catalog.args_model(entry.name) if known else UPSTREAM_ARGS.get(entry.name)
    given = _without_type(entry.args)
    if model is not None:
        try:
            read(model, given, where)
        except ProfileInvalid as invalid:
            yield from invalid.errors
    elif given:
        yield FieldError(where, f"{entry.name} takes no arguments, got {', '.join(given)}")


def _wrong_type(entry: PluginConfig, path: str) -> Iterator[FieldError]:
    """Upstream's files say of what type the arguments are: `kind: NodeResourcesFitArgs`."""
    version, kind = entry.args.get("apiVersion"), entry.args.get("kind")
    if version not in (None, _ARGS_VERSION):
        yield FieldError(f"{path}.apiVersion", f'must be {_ARGS_VERSION}, got "{version}"')
    if kind not in (None, f"{entry.name}Args"):
        yield FieldError(f"{path}.kind", f'must be {entry.name}Args, got "{kind}"')


def _without_type(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in ("apiVersion", "kind")}


def _missing_args(name: str, catalog: Catalog, path: str) -> Iterator[FieldError]:
    """A third-party plugin may have arguments without defaults."""
    model = catalog.args_model(name)
    if model is None:
        return
    try:
        read(model, {}, "")
    except ProfileInvalid as invalid:
        needs = ", ".join(mistake.path for mistake in invalid.errors)
        yield FieldError(path, f"must have an entry for {name}, which needs {needs}")


def _names(plugins: Mapping[Point, tuple[PluginUse, ...]]) -> Iterable[str]:
    return dict.fromkeys(use.name for uses in plugins.values() for use in uses)


def _args(name: str, spec: SchedulingProfileSpec, catalog: Catalog, path: str) -> BaseModel | None:
    model = catalog.args_model(name)
    if model is None:
        return None
    given = next((entry.args for entry in spec.plugin_config if entry.name == name), {})
    args = read(model, _without_type(given), f"{path}.pluginConfig")
    taken_over = tuple(
        resource.name
        for extender in spec.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if taken_over and isinstance(args, NodeResourcesFitArgs):
        # As scheduler.go's buildExtenders: they replace the list, not add to it.
        return args.model_copy(update={"ignored_resources": taken_over})
    return args
