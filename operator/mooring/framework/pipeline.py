"""A profile's plugins, built and sorted by extension point: what an attempt runs through."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.framework.handle import Handle
from mooring.framework.plugin import (
    BindPlugin,
    EnqueueExtensions,
    FilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ResourceFilterPlugin,
    ScorePlugin,
)
from mooring.framework.registry import NoArgs, PluginLoadError, Registry
from mooring.policy.points import Point
from mooring.policy.profile import Preemption, SchedulingProfile
from mooring.policy.resolve import Effective

__all__ = ["Pipeline", "WeightedScorePlugin", "build_pipeline"]


@dataclass(frozen=True, slots=True, eq=False)
class WeightedScorePlugin:
    """A score plugin and the factor its normalised score counts with."""

    plugin: ScorePlugin
    weight: int
    name: str
    row_local: bool


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Plugins per point in their order; compared by identity, replaced whole, never changed.

    `percentage` is percentageOfNodesToScore: 0 is upstream's adaptive rule.
    """

    profile: str
    percentage: int
    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    queue_sort: QueueSortPlugin
    pre_filter: tuple[PreFilterPlugin, ...]
    filters: tuple[FilterPlugin, ...]
    post_filter: tuple[PostFilterPlugin, ...]
    pre_score: tuple[PreScorePlugin, ...]
    scores: tuple[WeightedScorePlugin, ...]
    reserve: tuple[ReservePlugin, ...]
    permit: tuple[PermitPlugin, ...]
    pre_bind: tuple[PreBindPlugin, ...]
    bind: tuple[BindPlugin, ...]
    post_bind: tuple[PostBindPlugin, ...]
    preemption: Preemption
    every_filter: bool
    """Whether all filters run on a node even after one rejected it."""
    row_local: frozenset[str]
    """Names of the plugins whose answers depend on a pod's shape alone."""
    enqueue_extensions: Mapping[str, EnqueueExtensions]
    """By name, the plugins that say what could cure their rejections."""
    counting: Mapping[str, ResourceFilterPlugin]
    """By name, the filters that other pods can make reject only by what they request."""


def build_pipeline(
    profile: SchedulingProfile, effective: Effective, registry: Registry, handle: Handle
) -> Pipeline:
    """Every plugin of the profile, built once with its arguments.

    Raises PluginLoadError with the plugin's name if a constructor fails.
    """
    built: dict[str, Any] = {}

    def instance(name: str) -> Any:
        if name not in built:
            built[name] = _built(name, effective, registry, handle)
        return built[name]

    def at(point: Point) -> tuple[Any, ...]:
        return tuple(instance(use.name) for use in effective.plugins[point])

    scores = tuple(
        WeightedScorePlugin(instance(use.name), use.weight, use.name, instance(use.name).row_local)
        for use in effective.plugins[Point.SCORE]
    )
    return Pipeline(
        profile=profile.name,
        percentage=effective.percentage_of_nodes_to_score,
        pre_enqueue=at(Point.PRE_ENQUEUE),
        queue_sort=at(Point.QUEUE_SORT)[0],
        pre_filter=at(Point.PRE_FILTER),
        filters=at(Point.FILTER),
        post_filter=at(Point.POST_FILTER),
        pre_score=at(Point.PRE_SCORE),
        scores=scores,
        reserve=at(Point.RESERVE),
        permit=at(Point.PERMIT),
        pre_bind=at(Point.PRE_BIND),
        bind=at(Point.BIND),
        post_bind=at(Point.POST_BIND),
        preemption=profile.spec.preemption,
        every_filter=profile.spec.always_check_all_filters,
        row_local=frozenset(name for name, plugin in built.items() if plugin.row_local),
        enqueue_extensions={
            name: plugin for name, plugin in built.items() if hasattr(plugin, "events_to_register")
        },
        counting={f.name: f for f in at(Point.FILTER) if isinstance(f, ResourceFilterPlugin)},
    )


def _built(name: str, effective: Effective, registry: Registry, handle: Handle) -> Any:
    args = effective.args.get(name)
    try:
        return registry.plugin(name)(args if args is not None else NoArgs(), handle)
    except Exception as error:
        raise PluginLoadError(
            f"plugin {name} cannot be built: {type(error).__name__}: {error}"
        ) from error
