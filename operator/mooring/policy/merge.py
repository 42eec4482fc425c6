"""Merges a profile into kube-scheduler's defaults; gives the plugins of every extension point.

Source: `apis/config/v1/default_plugins.go` (merge) and `framework/runtime/framework.go` (expansion
and weights) of v1.36.3. The weighted sum of scores cannot overflow an int64.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from mooring.model.kubernetes_rules import NEWEST, KubernetesRules
from mooring.policy.defaults import default_weights
from mooring.policy.points import Point
from mooring.policy.profile import Plugins, PluginSet
from mooring.policy.rules.rule import Rule


class Catalog(Protocol):
    """The plugins that a profile can name; the framework's registry implements it."""

    def names(self) -> Iterable[str]:
        """Return all names of plugins that a profile may use."""
        ...

    def points(self, name: str) -> frozenset[Point] | None:
        """Return the extension points that a plugin implements; None for an unknown name."""
        ...

    def args_model(self, name: str) -> type[BaseModel] | None:
        """Return the model of a plugin's arguments; None if it takes none."""
        ...


@dataclass(frozen=True, slots=True)
class PluginUse:
    """A plugin at an extension point; `weight` is at least 1 at score points, and 0 at others."""

    name: str
    weight: int = 0


def plugins_by_point(
    plugins: Plugins,
    catalog: Catalog,
    rules: Iterable[Rule] = (),
    kubernetes: KubernetesRules = NEWEST,
) -> dict[Point, tuple[PluginUse, ...]]:
    """Return the plugins of each point in order, rules last; leave out unknown plugins."""
    multi = _merged(plugins.multi_point, catalog, default_weights(kubernetes))
    merged = {point: _expanded(point, plugins.at(point), multi, catalog) for point in Point}
    for rule in rules:
        if rule.counts_pods and rule.filter is not None:
            merged[Point.PRE_FILTER] += (PluginUse(rule.plugin),)
        if rule.filter is not None:
            merged[Point.FILTER] += (PluginUse(rule.plugin),)
        else:
            merged[Point.SCORE] += (PluginUse(rule.plugin, rule.weight or 1),)
    return merged


def _merged(custom: PluginSet, catalog: Catalog, defaults: Mapping[str, int]) -> dict[str, int]:
    # The plugins at multiPoint, the defaults first.
    added = {plugin.name: plugin.weight for plugin in custom.enabled}
    off = {plugin.name for plugin in custom.disabled}
    kept = {} if "*" in off else {n: w for n, w in defaults.items() if n not in off}
    kept.update(added)
    return {name: weight for name, weight in kept.items() if catalog.points(name) is not None}


def _expanded(
    point: Point, own: PluginSet, multi: Mapping[str, int], catalog: Catalog
) -> tuple[PluginUse, ...]:
    named = {plugin.name: plugin.weight for plugin in own.enabled}
    off = {plugin.name for plugin in own.disabled}

    def belongs(name: str) -> bool:
        return point in (catalog.points(name) or ())

    spread = [] if "*" in off else [n for n in multi if n not in off and belongs(n)]
    order = [
        *(name for name in named if name in spread),
        *(name for name in spread if name not in named),
        *(name for name in named if name not in spread and belongs(name)),
    ]
    scored = point in (Point.SCORE, Point.PLACEMENT_SCORE)
    weights = {**multi, **named}
    return tuple(PluginUse(name, (weights[name] or 1) if scored else 0) for name in order)
