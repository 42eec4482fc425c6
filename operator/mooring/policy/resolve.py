"""Resolves a profile: checks its plugin names, merges its plugins, reads their arguments.

One pass finds both the effective profile and every mistake in the profile.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from traceback import format_exception_only
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST, KubernetesRules
from mooring.policy.defaults import KUBE_SCHEDULER_PLUGINS, PERCENTAGE_OF_NODES_TO_SCORE, REMOVED
from mooring.policy.extender import in_call_order
from mooring.policy.merge import Catalog, PluginUse, plugins_by_point
from mooring.policy.points import Point
from mooring.policy.profile import (
    Disabled,
    Enabled,
    PluginConfig,
    Plugins,
    PluginSet,
    SchedulingProfile,
    SchedulingProfileSpec,
    read_profile,
)
from mooring.policy.profile_errors import FieldError, PluginLoadError, ProfileInvalid, did_you_mean
from mooring.policy.profile_status import EffectivePolicy, ExtenderInForce, PluginInForce
from mooring.policy.reading import MOST_MISTAKES, read
from mooring.policy.rules.rule import RULES

_ARGS_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_TYPE_FIELDS: Final = ("apiVersion", "kind")
_NOT_BY_NAME: Final = f"{RULES} cannot be named: it runs what is in spec.rules"
_LONGEST_FAILURE: Final = 1024
"""The maximum number of characters of a plugin's exception in a message; the rest is cut off."""
_UNNAMED: Final = ""
"""Stands for the name of an entry of a list, if that name cannot be read."""

_Entry = TypeVar("_Entry", Enabled, Disabled, PluginConfig)


@dataclass(frozen=True, slots=True)
class ResolvedProfile:
    """A profile with all defaults filled in.

    `plugins` are in the order they run. `args` has the arguments by plugin name. A
    `percentage_of_nodes_to_score` of 0 stands for kube-scheduler's adaptive rule.
    """

    plugins: Mapping[Point, tuple[PluginUse, ...]]
    args: Mapping[str, BaseModel]
    percentage_of_nodes_to_score: int
    kubernetes: KubernetesRules

    def policy(self, profile: SchedulingProfile) -> EffectivePolicy:
        """Return the `effective` part of the status of `profile`."""
        return EffectivePolicy(
            scheduler_names=profile.scheduler_names,
            kubernetes_version=self.kubernetes.version,
            percentage_of_nodes_to_score=self.percentage_of_nodes_to_score,
            plugins={
                point: tuple(PluginInForce(name=u.name, weight=u.weight or None) for u in uses)
                for point, uses in self.plugins.items()
                if uses
            },
            extenders=tuple(map(ExtenderInForce.of, in_call_order(profile.spec.extenders))) or None,
        )


def load_profile(
    document: object, catalog: Catalog, server: KubernetesRules = NEWEST
) -> tuple[SchedulingProfile, ResolvedProfile]:
    """Read a SchedulingProfile object and resolve it; for `server` see `resolve`.

    Raises ProfileInvalid with the mistakes.
    """
    try:
        profile = read_profile(document)
    except ProfileInvalid as unreadable:
        # Plugin names are checked even if other fields are invalid.
        if len(unreadable.errors) < MOST_MISTAKES:
            _resolve(_readable_plugins(document), catalog, server, "spec", unreadable.errors)
        raise
    return profile, resolve(profile.spec, catalog, server)


def resolve(
    spec: SchedulingProfileSpec,
    catalog: Catalog,
    server: KubernetesRules = NEWEST,
    path: str = "spec",
) -> ResolvedProfile:
    """Return the profile of a spec with all defaults filled in and all arguments read.

    `server` has the rules for a spec without `kubernetesVersion`. Raises ProfileInvalid with all
    mistakes; the paths of the mistakes begin with `path`.
    """
    return _resolve(spec, catalog, server, path, ())


def _resolve(
    spec: SchedulingProfileSpec,
    catalog: Catalog,
    server: KubernetesRules,
    path: str,
    schema_mistakes: tuple[FieldError, ...],
) -> ResolvedProfile:
    known = _LoadedPlugins(catalog)
    mistakes = [*schema_mistakes, *_wrong_names(spec, known, f"{path}.plugins")]
    pinned = spec.kubernetes_version
    kubernetes = KUBERNETES_RULES[pinned] if pinned is not None else server
    plugins = plugins_by_point(spec.plugins, known, spec.rules, kubernetes)
    if not any(mistake.lies_in_any((f"{path}.plugins",)) for mistake in mistakes):
        mistakes += _wrong_counts(plugins, f"{path}.plugins")
    args: dict[str, BaseModel | None] = {rule.plugin: rule for rule in spec.rules}
    for number, entry in enumerate(spec.plugin_config):
        where = f"{path}.pluginConfig[{number}]"
        if entry.name in args:
            mistakes.append(FieldError(f"{where}.name", f"{entry.name} is configured already"))
        args[entry.name] = _args(entry, known, where, mistakes)
    names = dict.fromkeys(use.name for uses in plugins.values() for use in uses)
    if _UNNAMED not in args:
        for name in names:
            if name not in args:
                args[name] = _default_args(name, known, f"{path}.pluginConfig", mistakes)
    wrong = {mistake.path for mistake in schema_mistakes}
    found = mistakes[len(schema_mistakes) :]
    mistakes[len(schema_mistakes) :] = [m for m in found if not m.lies_in_any(wrong)]
    if mistakes:
        raise ProfileInvalid(_once_per_plugin(mistakes))
    percentage = spec.percentage_of_nodes_to_score
    models = {name: model for name in names if (model := args[name]) is not None}
    if "NodeResourcesFit" in models:
        models["NodeResourcesFit"] = _with_extenders(models["NodeResourcesFit"], spec)
    return ResolvedProfile(
        plugins,
        models,
        PERCENTAGE_OF_NODES_TO_SCORE if percentage is None else percentage,
        kubernetes,
    )


def _once_per_plugin(mistakes: Iterable[FieldError]) -> Iterator[FieldError]:
    seen = set[str]()
    for mistake in mistakes:
        if mistake.plugin not in seen:
            yield mistake
        if mistake.plugin:
            seen.add(mistake.plugin)


class _LoadedPlugins:
    """A catalog in which plugins that cannot be loaded have no points."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.failed: dict[str, str] = {}

    def names(self) -> Iterable[str]:
        return self._catalog.names()

    def points(self, name: str) -> frozenset[Point] | None:
        """Return a plugin's extension points; None if it is unknown or cannot be loaded."""
        if name in self.failed:
            return None
        try:
            return self._catalog.points(name)
        except PluginLoadError as error:
            self.failed[name] = str(error)
            return None

    def args_model(self, name: str) -> type[BaseModel] | None:
        """Return the model of a plugin's arguments; None if it takes none or cannot be loaded."""
        return None if self.points(name) is None else self._catalog.args_model(name)


def _readable_plugins(document: object) -> SchedulingProfileSpec:
    # Every entry keeps its index. Of an invalid entry, only a valid name is kept.
    spec = _mapping(_mapping(document).get("spec"))
    plugins = _mapping(spec.get("plugins"))
    sets = dict[str, PluginSet]()
    for name, field in Plugins.model_fields.items():
        raw = _mapping(plugins.get(field.alias or name))
        sets[name] = PluginSet.model_construct(
            enabled=_entries(Enabled, raw.get("enabled")),
            disabled=_entries(Disabled, raw.get("disabled")),
        )
    return SchedulingProfileSpec.model_construct(
        plugins=Plugins.model_construct(None, **sets),
        plugin_config=_entries(PluginConfig, spec.get("pluginConfig")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(model: type[_Entry], items: object) -> tuple[_Entry, ...]:
    if items is None:
        return ()
    if not isinstance(items, list | tuple):
        return (model.model_construct(name=_UNNAMED),)
    return tuple(_entry(model, item) for item in items)


def _entry(model: type[_Entry], item: object) -> _Entry:
    for readable in (item, {"name": _mapping(item).get("name")}):
        try:
            return read(model, readable, "")
        except ProfileInvalid:
            continue
    return model.model_construct(name=_UNNAMED)


def _wrong_names(
    spec: SchedulingProfileSpec, catalog: _LoadedPlugins, path: str
) -> Iterator[FieldError]:
    yield from _wrong_names_in(spec.plugins.multi_point, None, catalog, f"{path}.multiPoint")
    for point in Point:
        yield from _wrong_names_in(spec.plugins.at(point), point, catalog, f"{path}.{point}")


def _wrong_names_in(
    plugins: PluginSet, point: Point | None, catalog: _LoadedPlugins, path: str
) -> Iterator[FieldError]:
    seen = set[str]()
    for number, enabled in enumerate(plugins.enabled):
        where = f"{path}.enabled[{number}].name"
        if enabled.name in seen:
            yield FieldError(where, f"{enabled.name} is enabled already")
        seen.add(enabled.name)
        points = catalog.points(enabled.name)
        if enabled.name == RULES:
            yield FieldError(where, _NOT_BY_NAME)
        elif points is None:
            yield _unusable(where, enabled.name, catalog)
        elif point is not None and point not in points:
            own = ", ".join(p for p in Point if p in points)
            yield FieldError(where, f"{enabled.name} does not implement {point}, only {own}")
    known = {*catalog.names(), *KUBE_SCHEDULER_PLUGINS, "*"}
    for number, disabled in enumerate(plugins.disabled):
        where = f"{path}.disabled[{number}].name"
        if disabled.name == RULES:
            yield FieldError(where, _NOT_BY_NAME)
        elif disabled.name not in known:
            yield _unusable(where, disabled.name, catalog)


def _unusable(path: str, name: str, catalog: _LoadedPlugins) -> FieldError:
    if name in catalog.failed:
        return FieldError(path, catalog.failed[name], plugin=name)
    return FieldError(path, _unknown(name, catalog))


def _unknown(name: str, catalog: Catalog) -> str:
    if name in REMOVED:
        return f"{name} was removed from Kubernetes; {REMOVED[name]} does its work"
    if name in KUBE_SCHEDULER_PLUGINS:
        return f"{name} is a plugin of kube-scheduler that Mooring does not have; remove it"
    hint = did_you_mean(name, catalog.names())
    return f'unknown plugin "{name}"{hint or "; no package that announces it is installed"}'


def _wrong_counts(
    plugins: Mapping[Point, tuple[PluginUse, ...]], path: str
) -> Iterator[FieldError]:
    sorters = [use.name for use in plugins[Point.QUEUE_SORT]]
    if len(sorters) != 1:
        found = ", ".join(sorters) or "none"
        yield FieldError(f"{path}.queueSort", f"must leave exactly one plugin, leaves {found}")
    if not plugins[Point.BIND]:
        yield FieldError(f"{path}.bind", "must leave at least one plugin, leaves none")


def _args(
    entry: PluginConfig, catalog: _LoadedPlugins, path: str, mistakes: list[FieldError]
) -> BaseModel | None:
    if entry.name == RULES:
        mistakes.append(FieldError(f"{path}.name", _NOT_BY_NAME))
        return None
    known = catalog.points(entry.name) is not None
    if not known and (entry.name in REMOVED or entry.name not in KUBE_SCHEDULER_PLUGINS):
        mistakes.append(_unusable(f"{path}.name", entry.name, catalog))
        return None
    where = f"{path}.args"
    mistakes += _wrong_type(entry, where)
    given = {name: value for name, value in entry.args.items() if name not in _TYPE_FIELDS}
    model = catalog.args_model(entry.name)
    if model is not None:
        try:
            return _read_args(entry.name, model, given, where)
        except ProfileInvalid as invalid:
            mistakes += invalid.errors
    elif given:
        message = f"{entry.name} takes no arguments, got {', '.join(given)}"
        mistakes.append(FieldError(where, message))
    return None


def _wrong_type(entry: PluginConfig, path: str) -> Iterator[FieldError]:
    version, kind = entry.args.get("apiVersion"), entry.args.get("kind")
    if version not in (None, _ARGS_VERSION):
        yield FieldError(f"{path}.apiVersion", f'must be {_ARGS_VERSION}, got "{version}"')
    if kind not in (None, f"{entry.name}Args"):
        yield FieldError(f"{path}.kind", f'must be {entry.name}Args, got "{kind}"')


def _default_args(
    name: str, catalog: Catalog, path: str, mistakes: list[FieldError]
) -> BaseModel | None:
    model = catalog.args_model(name)
    if model is None:
        return None
    try:
        return _read_args(name, model, {}, "")
    except ProfileInvalid as invalid:
        if any(mistake.plugin for mistake in invalid.errors):
            mistakes += (mistake.under(path) for mistake in invalid.errors)
            return None
        needs = ", ".join(mistake.path for mistake in invalid.errors)
        mistakes.append(FieldError(path, f"must have an entry for {name}, which needs {needs}"))
    return None


def _read_args(name: str, model: type[BaseModel], given: Mapping[str, Any], path: str) -> BaseModel:
    try:
        return read(model, given, path)
    except (KeyboardInterrupt, ProfileInvalid):
        raise
    except BaseException as error:  # a validator that calls sys.exit() ends nothing but its profile
        what = " ".join("".join(format_exception_only(error)).split())[:_LONGEST_FAILURE]
        problem = f"plugin {name} cannot read its arguments: {what}"
        raise ProfileInvalid([FieldError(path, problem, plugin=name)]) from error


def _with_extenders(args: BaseModel, spec: SchedulingProfileSpec) -> BaseModel:
    # Managed resources replace `ignoredResources`, as in buildExtenders in scheduler.go.
    managed = tuple(
        resource.name
        for extender in spec.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    return args.model_copy(update={"ignored_resources": managed}) if managed else args
