"""Plugins of kube-scheduler and of scheduler-plugins that Mooring does not have.

The import leaves them out of a profile. Any other unknown plugin in a file is an error.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from mooring.policy.defaults import ABSENT
from mooring.policy.merge import Catalog, plugins_by_point
from mooring.policy.points import Point
from mooring.policy.profile import Enabled, Plugins, PluginSet, SchedulingProfileSpec
from mooring.policy.profile_errors import FieldError
from mooring.quota.model.queue import CAPACITY_SCHEDULING

_ABSENT: Final = "Mooring does not have this plugin"
_BY_LOAD: Final = "a rule over labels or annotations of nodes can take its place (docs/rules.md)"
LEFT_OUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(ABSENT, _ABSENT),
    CAPACITY_SCHEDULING: "Mooring's own takes its place; ElasticQuotas become Queues "
    "(docs/migration.md)",
    "Coscheduling": "Mooring schedules its pod groups by default (docs/gangs.md)",
    "CrossNodePreemption": _ABSENT,
    "LoadVariationRiskBalancing": _BY_LOAD,
    "LowRiskOverCommitment": _BY_LOAD,
    "NetworkOverhead": _ABSENT,
    "NodeResourceTopologyMatch": _ABSENT,
    "NodeResourcesAllocatable": "NodeResourcesFit with a scoringStrategy takes its place",
    "NodeResourcesFitPlus": "NodeResourcesFit with a scoringStrategy takes its place",
    "Peaks": _BY_LOAD,
    "PodState": _ABSENT,
    "PreemptionToleration": "preemption.minRuntimeSeconds of the profile takes its place",
    "QOSSort": _ABSENT,
    "ScarceResourceAvoidance": _ABSENT,
    "SySched": _ABSENT,
    "TargetLoadPacking": _BY_LOAD,
    "TopologicalSort": _ABSENT,
}
"""The note about each plugin that is left out; see scheduler-plugins, cmd/scheduler/main.go."""
_OTHERS: Final = frozenset({*ABSENT, CAPACITY_SCHEDULING})
"""The plugins of `LEFT_OUT` that are always left out. Other plugins of `LEFT_OUT` are kept if the
catalog has a plugin of this name."""
_TAKEN_OVER: Final = {"Coscheduling": "GangScheduling", CAPACITY_SCHEDULING: CAPACITY_SCHEDULING}
"""Maps a plugin of scheduler-plugins to the plugin of Mooring that replaces it."""
_SORTING: Final = frozenset({"Coscheduling", "QOSSort", "TopologicalSort"})
_SORTER: Final = "PrioritySort"
_INSTEAD: Final = {
    Point.QUEUE_SORT: f"{_SORTER} sorts the queue",
    Point.POST_FILTER: "no plugin is left: pods do not preempt; enable DefaultPreemption for that",
}
"""Maps an extension point to the note for a profile that has no plugin left at this point."""


class WithLeftOut:
    """A catalog that also has the plugins that the import leaves out of a profile.

    With it, a file that names such plugins can be merged and resolved like a profile.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._left_out = _left_out(catalog)

    def names(self) -> Iterable[str]:
        """Return the names of all plugins, with those that are left out."""
        return {*self._catalog.names(), *self._left_out}

    def points(self, name: str) -> frozenset[Point] | None:
        """Return a plugin's extension points; None if the plugin is unknown."""
        if name not in self._left_out:
            return self._catalog.points(name)
        # The points of scheduler-plugins' plugins are not known. Each gets all possible points.
        possible = frozenset(Point) - {Point.BIND}
        return ABSENT.get(name, possible if name in _SORTING else possible - {Point.QUEUE_SORT})

    def args_model(self, name: str) -> type[BaseModel] | None:
        """Return the model of a plugin's arguments; None if it takes none or is left out."""
        return None if name in self._left_out else self._catalog.args_model(name)


def without_their_args(spec: SchedulingProfileSpec, catalog: Catalog) -> SchedulingProfileSpec:
    """Return the spec without the arguments of left-out plugins, because nothing can check them."""
    left_out = _left_out(catalog).keys() - ABSENT.keys()
    config = tuple(
        entry.model_copy(update={"args": {}}) if entry.name in left_out else entry
        for entry in spec.plugin_config
    )
    return spec.model_copy(update={"plugin_config": config})


def left_out_of(spec: SchedulingProfileSpec, catalog: Catalog, path: str) -> Iterator[FieldError]:
    """Yield a note for each plugin that is left out, and for each point that has no plugin then."""
    fields = dict[str, list[str]]()
    left_out = _left_out(catalog)
    for field, plugins in spec.plugins:
        for enabled in plugins.enabled:
            if enabled.name in left_out:
                fields.setdefault(enabled.name, []).append(to_camel(field))
    for entry in spec.plugin_config:
        if entry.name in left_out:
            fields.setdefault(entry.name, []).append("pluginConfig")
    for name, named in fields.items():
        yield FieldError(path, f"{name} is left out of {', '.join(named)}: {left_out[name]}")
    if not fields:
        return
    before = plugins_by_point(spec.plugins, WithLeftOut(catalog))
    after = plugins_by_point(_kept(spec.plugins, left_out), catalog)
    usual = plugins_by_point(Plugins(), catalog)
    for point in Point:
        if before[point] and usual[point] and not after[point]:
            yield FieldError(f"{path}.plugins.{point}", _INSTEAD.get(point, "no plugin is left"))


def without_left_out(spec: SchedulingProfileSpec, catalog: Catalog) -> SchedulingProfileSpec:
    """Return the spec without the plugins that the import leaves out.

    If no queueSort plugin remains, the default one is added. Mooring's own plugins replace
    Coscheduling and CapacityScheduling of scheduler-plugins.
    """
    left_out = _left_out(catalog)
    plugins = _kept(spec.plugins, left_out)
    after = plugins_by_point(plugins, catalog)
    if not after[Point.QUEUE_SORT]:
        sorter = PluginSet(enabled=(Enabled(name=_SORTER),))
        plugins = plugins.model_copy(update={"queue_sort": sorter})
    before = {e.name for _, each in spec.plugins for e in each.enabled} & left_out.keys()
    kept = {use.name for uses in after.values() for use in uses}
    for name, ours in _TAKEN_OVER.items():
        if name in before and ours not in kept and catalog.points(ours):
            enabled = (*plugins.multi_point.enabled, Enabled(name=ours))
            multi_point = plugins.multi_point.model_copy(update={"enabled": enabled})
            plugins = plugins.model_copy(update={"multi_point": multi_point})
    config = tuple(entry for entry in spec.plugin_config if entry.name not in left_out)
    update = {"plugins": plugins, "plugin_config": config}
    return spec.model_copy(
        update={name: update[name] for name in spec.model_fields_set & {*update}}
    )


def _left_out(catalog: Catalog) -> Mapping[str, str]:
    known = {*catalog.names()}
    return {name: why for name, why in LEFT_OUT.items() if name in _OTHERS or name not in known}


def _kept(plugins: Plugins, left_out: Mapping[str, str]) -> Plugins:
    sets = {
        field: plugin_set.model_copy(
            update={
                name: tuple(
                    plugin for plugin in getattr(plugin_set, name) if plugin.name not in left_out
                )
                for name in plugin_set.model_fields_set
            }
        )
        for field, plugin_set in plugins
        if field in plugins.model_fields_set
    }
    return plugins.model_copy(update=sets)
