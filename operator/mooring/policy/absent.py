"""Default plugins that Mooring does not have, in files that enable them all the same."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from mooring.policy.defaults import ABSENT
from mooring.policy.errors import FieldError
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile import PluginSet, SchedulingProfileSpec

__all__ = ["WithAbsentDefaults", "absent_in", "without_absent"]


class WithAbsentDefaults:
    """A catalog that knows the absent defaults too, to check what was written about them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def names(self) -> Iterable[str]:
        """Every plugin's name, absent ones included."""
        return {*self._catalog.names(), *ABSENT}

    def points(self, name: str) -> frozenset[Point] | None:
        """The points a plugin implements; of an absent one, those it has upstream."""
        return ABSENT[name] if name in ABSENT else self._catalog.points(name)

    def args_model(self, name: str) -> type[BaseModel] | None:
        """The model of a plugin's arguments; an absent one takes none."""
        return self._catalog.args_model(name)


def absent_in(spec: SchedulingProfileSpec, path: str) -> Iterator[FieldError]:
    """A note for every place where the spec enables or configures an absent plugin."""
    message = "is left out: Mooring does not have this plugin"
    for field, plugins in spec.plugins:
        for number, enabled in enumerate(plugins.enabled):
            if enabled.name in ABSENT:
                where = f"{path}.plugins.{to_camel(field)}.enabled[{number}]"
                yield FieldError(where, f"{enabled.name} {message}")
    for number, entry in enumerate(spec.plugin_config):
        if entry.name in ABSENT:
            yield FieldError(f"{path}.pluginConfig[{number}]", f"{entry.name} {message}")


def without_absent(spec: SchedulingProfileSpec) -> SchedulingProfileSpec:
    """The spec without what `absent_in` names."""
    changed = {field: _kept(plugins) for field, plugins in spec.plugins if plugins.enabled}
    config = tuple(entry for entry in spec.plugin_config if entry.name not in ABSENT)
    update = {"plugins": spec.plugins.model_copy(update=changed), "plugin_config": config}
    return spec.model_copy(
        update={name: update[name] for name in spec.model_fields_set & {*update}}
    )


def _kept(plugins: PluginSet) -> PluginSet:
    enabled = tuple(plugin for plugin in plugins.enabled if plugin.name not in ABSENT)
    return plugins.model_copy(update={"enabled": enabled})
