"""A profile's plugins, built and sorted by extension point (framework/runtime/framework.go)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from pydantic.alias_generators import to_camel

from mooring.framework.evaluations import Evaluations
from mooring.framework.handle import Api, Handle
from mooring.framework.placements import GroupPolicy
from mooring.framework.plugin import (
    BindPlugin,
    DeviceReadingPlugin,
    EnqueueExtensions,
    FilterPlugin,
    KeyedFilterPlugin,
    KeyedScorePlugin,
    Normalize,
    PermitPlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
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
from mooring.framework.plugin_failures import (
    Blamed,
    ExtensionPoint,
    PluginFailures,
    place_of,
    text_of,
)
from mooring.framework.registry import SHIPPED_WITH, NoArgs, Registry
from mooring.groups.model.pod_group import GroupFormat
from mooring.model.kubernetes_rules import NEWEST, KubernetesRules
from mooring.policy.extender import Extender, in_call_order
from mooring.policy.points import Point
from mooring.policy.profile import Preemption, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.resolve import ResolvedProfile
from mooring.runtime.plugin_metrics import PluginMetrics

__all__ = [
    "Pipeline",
    "WeightedPlacementScorePlugin",
    "WeightedScorePlugin",
    "build_pipeline",
]

_BYTES_OF_PIPELINE: Final = 64 * 1024
_PER_CHARACTER: Final = 64
"""The estimated bytes of a pipeline for each character of its profile; rules need most of them."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedScorePlugin:
    """A score plugin and the weight by which its normalized score is multiplied."""

    plugin: ScorePlugin
    weight: int
    name: str
    depends_on_node_only: bool


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPlacementScorePlugin:
    """A plugin that scores placements, and the factor for its normalized score."""

    plugin: PlacementScorePlugin
    weight: int


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """The plugins of a profile by extension point, in the order in which they run.

    A pipeline never changes. `generation` is 0 for a profile from a file.
    `percentage_of_nodes_to_score` is 0 for kube-scheduler's adaptive rule.
    """

    profile: str
    generation: int
    percentage_of_nodes_to_score: int
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
    always_check_all_filters: bool
    """Whether filters also run on nodes that an earlier filter has rejected."""
    plugins_of_node_only: frozenset[str]
    """The names of the plugins with `depends_on_node_only = True`.

    A third-party plugin that runs at Reserve or Permit is left out, because it may read the whole
    pod there.
    """
    device_reading: Mapping[str, DeviceReadingPlugin]
    """The plugins whose results may also depend on devices and their classes, by name."""
    keyed_filters: Mapping[str, KeyedFilterPlugin]
    """Maps the name of a filter to the filter, if pods with equal `filter_key` share its
    results."""
    keyed_scores: Mapping[str, KeyedScorePlugin]
    """Maps the name of a score plugin to the plugin, if pods with equal `score_key` share its
    results."""
    enqueue_extensions: Mapping[str, EnqueueExtensions]
    """The plugins that register cluster events and have queueing hints, by name."""
    resource_filters: Mapping[str, ResourceFilterPlugin]
    """The filters that depend on other pods only through their resource requests, by name."""
    distributions: Mapping[str, str]
    """The distribution that each plugin comes from, by plugin name; error messages name it."""
    failures: PluginFailures
    api: Api
    """The API for the plugins' writes; the annotations of plugins for a Binding are dropped after
    each attempt."""
    extenders: tuple[Extender, ...]
    """The profile's extenders, in the order in which they are called."""
    placement_generate: tuple[PlacementGeneratePlugin, ...] = ()
    placement_scores: tuple[WeightedPlacementScorePlugin, ...] = ()
    group_policy: GroupPolicy | None = None
    """The rules for scheduling gangs; if None, the members of a group are scheduled one by one."""
    pod_group_formats: tuple[GroupFormat, ...] = ()
    """The labels and annotations that name groups, from the arguments of plugins."""
    metrics: PluginMetrics = field(default_factory=PluginMetrics)
    """Measures the plugins and extension points; all profiles of a process share it."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    """Limits how much the plugins may evaluate in an attempt."""
    kubernetes: KubernetesRules = NEWEST
    """The rules of the version of Kubernetes that the profile follows."""
    memory: int = 0
    """The estimated bytes of the pipeline with its plugins."""

    @property
    def plugins_of_no_node(self) -> frozenset[str]:
        """The names of plugins that reject a pod only at PreFilter, and so for all nodes."""
        others = {p.name for p in (*self.filters, *self.reserve, *self.permit)}
        return frozenset(p.name for p in self.pre_filter if p.name not in others)

    def blamed(self, plugin: str, point: ExtensionPoint) -> Blamed:
        """Return the plugin with its distribution; "unknown" if the profile lacks the plugin."""
        source = self.distributions.get(plugin)
        if source is None:
            return Blamed("unknown", "an unknown distribution", point)
        return Blamed(plugin, source, point)


def build_pipeline(
    profile: SchedulingProfile,
    effective: ResolvedProfile,
    registry: Registry,
    handle: Handle,
    failures: PluginFailures | None = None,
    metrics: PluginMetrics | None = None,
    most_per_attempt: int | None = None,
) -> Pipeline:
    """Return the profile's pipeline; build each of its plugins once, with its arguments.

    Raises ProfileInvalid with the name of every plugin whose constructor fails. For
    `most_per_attempt` see `Evaluations`.
    """
    failures, evaluations = failures or PluginFailures(), Evaluations(most_per_attempt)
    built = _built_plugins(profile, effective, registry, handle, failures, evaluations)
    at = partial(_plugins_at, effective, built)
    return Pipeline(
        profile=profile.name,
        generation=profile.generation,
        percentage_of_nodes_to_score=effective.percentage_of_nodes_to_score,
        kubernetes=effective.kubernetes,
        pre_enqueue=at(Point.PRE_ENQUEUE),
        queue_sort=at(Point.QUEUE_SORT)[0],
        pre_filter=at(Point.PRE_FILTER),
        filters=at(Point.FILTER),
        post_filter=at(Point.POST_FILTER),
        pre_score=at(Point.PRE_SCORE),
        scores=_scores(effective, built),
        reserve=at(Point.RESERVE),
        permit=at(Point.PERMIT),
        pre_bind=at(Point.PRE_BIND),
        bind=at(Point.BIND),
        post_bind=at(Point.POST_BIND),
        preemption=profile.spec.preemption,
        always_check_all_filters=profile.spec.always_check_all_filters,
        plugins_of_node_only=_plugins_of_node_only(effective, built, registry),
        device_reading=_with_method(built.values(), "devices_version"),
        keyed_filters=_keyed(at(Point.FILTER), "filter_key"),
        keyed_scores=_keyed(at(Point.SCORE), "score_key"),
        enqueue_extensions={n: p for n, p in built.items() if hasattr(p, "events_to_register")},
        resource_filters=_with_method(at(Point.FILTER), "resource_requests"),
        distributions={name: registry.distribution(name) for name in built},
        failures=failures,
        api=handle.api,
        extenders=in_call_order(profile.spec.extenders),
        placement_generate=at(Point.PLACEMENT_GENERATE),
        placement_scores=_placement_scores(effective, built),
        group_policy=next(_values_of(built, "group_policy"), None),
        pod_group_formats=tuple(chain.from_iterable(_values_of(built, "pod_group_formats"))),
        metrics=metrics or PluginMetrics(),
        evaluations=evaluations,
        memory=_BYTES_OF_PIPELINE + _PER_CHARACTER * len(str(profile.manifest())),
    )


def _built_plugins(
    profile: SchedulingProfile,
    effective: ResolvedProfile,
    registry: Registry,
    handle: Handle,
    failures: PluginFailures,
    evaluations: Evaluations,
) -> dict[str, Any]:
    handle = replace(
        handle,
        kubernetes=effective.kubernetes,
        profile=profile.name,
        evaluations=evaluations,
    )
    names = dict.fromkeys(use.name for uses in effective.plugins.values() for use in uses)
    built: dict[str, Any] = {}
    mistakes, causes = list[FieldError](), list[BaseException]()
    for name in names:
        try:
            built[name] = _built(name, effective, registry, handle, failures)
        except _ConstructorError as error:
            mistakes.append(FieldError(_path_of(name, profile.spec), str(error), plugin=name))
            causes.append(error.__cause__ or error)
    if mistakes:
        raise ProfileInvalid(mistakes) from causes[0]
    return built


def _plugins_of_node_only(
    effective: ResolvedProfile, built: Mapping[str, Any], registry: Registry
) -> frozenset[str]:
    late = (*effective.plugins[Point.RESERVE], *effective.plugins[Point.PERMIT])
    third_party = {use.name for use in late if registry.distribution(use.name) != SHIPPED_WITH}
    return frozenset(n for n, p in built.items() if p.depends_on_node_only) - third_party


def _plugins_at(
    effective: ResolvedProfile, built: Mapping[str, Any], point: Point
) -> tuple[Any, ...]:
    return tuple(built[use.name] for use in effective.plugins[point])


def _scores(
    effective: ResolvedProfile, built: Mapping[str, Any]
) -> tuple[WeightedScorePlugin, ...]:
    return tuple(
        WeightedScorePlugin(
            built[use.name], use.weight, use.name, built[use.name].depends_on_node_only
        )
        for use in effective.plugins[Point.SCORE]
    )


def _with_method(plugins: Iterable[Any], method: str) -> dict[str, Any]:
    return {plugin.name: plugin for plugin in plugins if _has(plugin, method)}


def _has(plugin: object, method: str) -> bool:
    return callable(getattr(plugin, method, None))


def _keyed(plugins: Iterable[Any], method: str) -> dict[str, Any]:
    # The keys are used only if the plugin depends on the Node object alone.
    return {
        name: plugin
        for name, plugin in _with_method(plugins, method).items()
        if plugin.depends_on_node_only
        and getattr(plugin, "depends_on_node_object_only", False)
        and not _has(plugin, "devices_version")
    }


def _placement_scores(
    effective: ResolvedProfile, built: Mapping[str, Any]
) -> tuple[WeightedPlacementScorePlugin, ...]:
    return tuple(
        WeightedPlacementScorePlugin(built[use.name], use.weight)
        for use in effective.plugins[Point.PLACEMENT_SCORE]
    )


def _values_of(built: Mapping[str, Any], attribute: str) -> Iterator[Any]:
    return (getattr(plugin, attribute) for plugin in built.values() if hasattr(plugin, attribute))


def _path_of(name: str, spec: SchedulingProfileSpec) -> str:
    for number, entry in enumerate(spec.plugin_config):
        if entry.name == name:
            return f"spec.pluginConfig[{number}]"
    for extension_point, plugins in spec.plugins:
        for number, enabled in enumerate(plugins.enabled):
            if enabled.name == name:
                return f"spec.plugins.{to_camel(extension_point)}.enabled[{number}]"
    return "spec"


class _ConstructorError(Exception):
    """Raised if a plugin's constructor fails."""


def _built(
    name: str,
    effective: ResolvedProfile,
    registry: Registry,
    handle: Handle,
    failures: PluginFailures,
) -> Any:
    args, plugin = effective.args.get(name), registry.plugin(name)
    blamed = Blamed(name, registry.distribution(name), ExtensionPoint.CONSTRUCTOR)
    began = failures.clock()
    try:
        built = plugin(args if args is not None else NoArgs(), handle)
        wrong = _wrong_attribute(built)
    except BaseException as error:
        failures.error(blamed, error)
        text = f"{type(error).__name__}: {text_of(error)}{place_of(error)}"
        raise _ConstructorError(f"plugin {name} cannot be built: {text}") from error
    if not isinstance(built, plugin):
        wrong = f"its constructor returned {type(built).__name__}"
    if wrong:
        raise _ConstructorError(str(failures.invalid(blamed, wrong)))
    if (seconds := failures.clock() - began) > failures.slow_seconds:
        failures.slow(blamed, seconds)
    return built


def _wrong_attribute(built: object) -> str:
    # Wrong formats of pod groups would be used for all pods, even of other profiles.
    formats, policy = getattr(built, "pod_group_formats", ()), getattr(built, "group_policy", None)
    if not isinstance(formats, tuple | list) or not all(map(_is_format, formats)):
        return "its pod_group_formats must be GroupFormats of texts"
    if not isinstance(policy, GroupPolicy | None):
        return "its group_policy must be a GroupPolicy"
    if not isinstance(getattr(built, "normalize", Normalize.NONE), Normalize):
        return "its normalize must be a Normalize"
    return ""


def _is_format(form: object) -> bool:
    if not isinstance(form, GroupFormat):
        return False
    return isinstance(form.name_key, str) and isinstance(form.minimum_key, str | None)
