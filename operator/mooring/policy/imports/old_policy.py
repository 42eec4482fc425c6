"""Converts a Policy or an algorithm provider of Kubernetes 1.22 and before to a SchedulingProfile.

Source: `scheduler.go` and `framework/plugins/legacy_registry.go` of v1.20. A Policy lists
everything that runs. Therefore its profile disables all defaults at multiPoint, and enables the
Policy's plugins, the filters first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.policy.imports.policy_model import Policy, Predicate, Priority, read_policy
from mooring.policy.imports.predicates import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRESSURES,
    PRIORITIES,
    RATIO,
    STRATEGIES,
)
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile import (
    DEFAULT_SCHEDULER,
    SchedulingProfile,
    SchedulingProfileSpec,
    profile_for,
)
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.reading import read

_FIRST: Final = ("SchedulingGates", "PrioritySort")
_LAST: Final = ("DefaultPreemption", "DefaultBinder")
"""The plugins that ran with every Policy, because they were neither predicates nor priorities."""
_SCORING: Final = frozenset({Point.PRE_SCORE, Point.SCORE})
_CUSTOM: Final = ("CheckServiceAffinity", "CheckNodeLabelPresence")
"""The predicates that need an argument."""

PROVIDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "DefaultProvider": {},
    "ClusterAutoscalerProvider": {
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
        ]
    },
}
"""Maps an algorithm provider to the fields of its spec that differ from the defaults."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A plugin that the Policy uses in its field `path`."""

    path: str
    plugin: str
    weight: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)


def import_provider(name: str, scheduler_name: str = DEFAULT_SCHEDULER) -> SchedulingProfile:
    """Return the profile of an algorithm provider; raise ProfileInvalid for an unknown name."""
    if name not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        message = f'unknown algorithm provider "{name}"; known are {known}'
        raise ProfileInvalid([FieldError("", message)])
    return profile_for(scheduler_name, read(SchedulingProfileSpec, PROVIDERS[name], "spec"))


def import_policy(
    document: object, catalog: Catalog, scheduler_name: str = DEFAULT_SCHEDULER
) -> SchedulingProfile:
    """Convert a Policy to a profile; raise ProfileInvalid with every mistake and its path."""
    policy = read_policy(document)
    mistakes = [*_wrong_predicates(policy), *_wrong_priorities(policy)]
    if mistakes:
        raise ProfileInvalid(mistakes)
    uses = _with_one_strategy([*_filters(policy), *_scores(policy)])
    missing = [
        FieldError(use.path, f"needs the plugin {use.plugin}, which this Mooring does not have")
        for use in uses
        if catalog.points(use.plugin) is None
    ]
    if missing:
        raise ProfileInvalid(missing)
    spec = read(SchedulingProfileSpec, _spec(policy, uses, catalog), "spec")
    if policy.extenders:
        spec = spec.model_copy(update={"extenders": policy.extenders})
    return profile_for(scheduler_name, spec)


def _wrong_predicates(policy: Policy) -> Iterator[FieldError]:
    for number, predicate in enumerate(policy.predicates or ()):
        path, name = f"predicates[{number}]", predicate.name
        if name in PREDICATES and name not in _CUSTOM and predicate.argument:
            yield FieldError(f"{path}.argument", f"must not be given: {name} takes none")
        elif name in _CUSTOM and not predicate.argument:
            yield FieldError(f"{path}.argument", f"is required by {name}")
        elif name not in PREDICATES and not predicate.argument:
            hint = did_you_mean(name, PREDICATES)
            yield FieldError(f"{path}.name", f'unknown predicate "{name}"{hint}')


def _wrong_priorities(policy: Policy) -> Iterator[FieldError]:
    weights = dict[str, int]()
    for number, priority in enumerate(policy.priorities or ()):
        path, name = f"priorities[{number}]", priority.name
        if name in PRIORITIES and priority.argument:
            yield FieldError(f"{path}.argument", f"must not be given: {name} takes none")
            continue
        if name not in PRIORITIES and not priority.argument:
            hint = did_you_mean(name, PRIORITIES)
            yield FieldError(f"{path}.name", f'unknown priority "{name}"{hint}')
            continue
        plugin = _score(priority, path).plugin
        repeatable = plugin in ("NodeLabel", "ServiceAffinity")
        if plugin in weights and not repeatable:
            yield FieldError(f"{path}.name", f"{plugin} scores already by another priority")
        elif weights.setdefault(plugin, priority.weight) != priority.weight:
            message = f"must be {weights[plugin]}, as in the other priority of its kind"
            yield FieldError(f"{path}.weight", f"{message}, got {priority.weight}")


def _filters(policy: Policy) -> list[_Use]:
    given = policy.predicates
    named = (
        [(f"predicates[{number}]", predicate) for number, predicate in enumerate(given)]
        if given is not None
        else [("predicates", Predicate(name=name)) for name in DEFAULT_PREDICATES]
    )
    named += [("predicates", Predicate(name=name)) for name in MANDATORY_PREDICATES]
    order = list(PREDICATES)  # in this order, predicates are evaluated
    uses = [(order.index(_predicate_name(p)), use) for path, p in named for use in _filter(p, path)]
    return [use for _, use in sorted(uses, key=lambda entry: entry[0])]


def _predicate_name(predicate: Predicate) -> str:
    if predicate.argument is None:
        return predicate.name
    # A predicate with an argument may have any name.
    return _CUSTOM[0] if predicate.argument.service_affinity else _CUSTOM[1]


def _filter(predicate: Predicate, path: str) -> Iterator[_Use]:
    args: dict[str, Any] = {}
    argument = predicate.argument
    if predicate.name in PRESSURES:
        args = {"conditions": [PRESSURES[predicate.name]]}
    elif argument and argument.service_affinity:
        args = {"affinityLabels": list(argument.service_affinity.labels)}
    elif argument and argument.labels_presence:
        presence = argument.labels_presence
        args = {"presentLabels" if presence.presence else "absentLabels": list(presence.labels)}
    for plugin in PREDICATES[_predicate_name(predicate)]:
        yield _Use(path, plugin, args=args)


def _scores(policy: Policy) -> list[_Use]:
    if policy.priorities is None:
        defaults = (Priority(name=n, weight=w) for n, w in DEFAULT_PRIORITIES.items())
        return [_score(priority, "priorities") for priority in defaults]
    return [_score(p, f"priorities[{number}]") for number, p in enumerate(policy.priorities)]


def _score(priority: Priority, path: str) -> _Use:
    argument, weight = priority.argument, priority.weight
    if argument and argument.service_anti_affinity:
        labels = [argument.service_anti_affinity.label]
        return _Use(path, "ServiceAffinity", weight, {"antiAffinityLabelsPreference": labels})
    if argument and argument.label_preference:
        wanted = argument.label_preference
        name = "presentLabelsPreference" if wanted.presence else "absentLabelsPreference"
        return _Use(path, "NodeLabel", weight, {name: [wanted.label]})
    if argument and argument.requested_to_capacity_ratio_arguments:
        ratio = argument.requested_to_capacity_ratio_arguments
        return _Use(path, RATIO, weight, ratio.model_dump(mode="json", by_alias=True))
    # SelectorSpread did by default what PodTopologySpread does now: not both.
    args = {"defaultingType": "List"} if priority.name == "EvenPodsSpreadPriority" else {}
    return _Use(path, PRIORITIES[priority.name], weight, args)


def _with_one_strategy(uses: list[_Use]) -> list[_Use]:
    scoring = [use for use in uses if use.plugin in STRATEGIES]
    if len(scoring) != 1:
        return uses
    (use,) = scoring
    strategy: dict[str, Any] = {"type": STRATEGIES[use.plugin]}
    if use.plugin == RATIO:
        strategy["requestedToCapacityRatio"] = {"shape": use.args["shape"]}
        strategy["resources"] = use.args["resources"]
    fit = _Use(use.path, "NodeResourcesFit", use.weight, {"scoringStrategy": strategy})
    return [fit if other is use else other for other in uses]


def _spec(policy: Policy, uses: Iterable[_Use], catalog: Catalog) -> dict[str, Any]:
    weights, args = dict[str, int](), dict[str, dict[str, Any]]()
    roles = dict[str, set[bool]]()
    for use in uses:
        weights[use.plugin] = weights.get(use.plugin, 0) + use.weight
        roles.setdefault(use.plugin, set()).add(use.weight > 0)
        _collect(args, use.plugin, use.args)
    if policy.hard_pod_affinity_symmetric_weight:
        hard = {"hardPodAffinityWeight": policy.hard_pod_affinity_symmetric_weight}
        _collect(args, "InterPodAffinity", hard)
    plugins = _unused_points(roles, catalog)
    always = {name for name in (*_FIRST, *_LAST) if catalog.points(name) is not None}
    plugins["multiPoint"] = {
        "disabled": [{"name": "*"}],
        "enabled": [
            {"name": name, "weight": weights[name]} if weights.get(name) else {"name": name}
            for name in (*_FIRST, *weights, *_LAST)
            if name in weights or name in always
        ],
    }
    spec: dict[str, Any] = {"plugins": plugins}
    if args:
        spec["pluginConfig"] = [{"name": name, "args": args[name]} for name in args]
    if policy.always_check_all_predicates:
        spec["alwaysCheckAllFilters"] = True
    return spec


def _collect(args: dict[str, dict[str, Any]], plugin: str, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        own = args.setdefault(plugin, {})
        if isinstance(value, list):
            before = own.get(name, [])
            own[name] = [*before, *(item for item in value if item not in before)]
        else:
            own[name] = value


def _unused_points(roles: Mapping[str, set[bool]], catalog: Catalog) -> dict[str, Any]:
    """Return sets that disable the score points of plugins that only filter, and the reverse."""
    unused = dict[str, Any]()
    for plugin, scores in roles.items():
        points = catalog.points(plugin) or frozenset()
        if len(scores) == 1:
            idle = points - _SCORING if True in scores else points & _SCORING
            for point in sorted(idle):
                unused.setdefault(point.value, {"disabled": []})["disabled"].append(
                    {"name": plugin}
                )
    return unused
