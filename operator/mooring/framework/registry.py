"""Finds all plugins by name: Mooring's own plugins, and plugins of installed packages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mooring.framework.plugin import POINT_METHODS, misspelt_name, points_of
from mooring.framework.plugin_failures import place_of, text_of
from mooring.policy.points import Point
from mooring.policy.profile_errors import PluginLoadError

__all__ = ["ENTRY_POINT_GROUP", "SHIPPED_WITH", "NoArgs", "PluginLoadError", "Registry"]

ENTRY_POINT_GROUP = "mooring.plugins"
SHIPPED_WITH: Final = "mooring-scheduler"
"""The distribution of the shipped plugins, Mooring itself: the name in pyproject.toml."""
_ASYNC: Final = frozenset({Point.PRE_BIND, Point.BIND, Point.POST_BIND})


class NoArgs(BaseModel):
    """The arguments of a plugin that has no arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class _Spec:
    plugin: type[Any]
    points: frozenset[Point]
    distribution: str


class Registry:
    """Finds plugins by name; implements `mooring.policy.resolve.Catalog`."""

    def __init__(
        self, shipped: Iterable[type[Any]], announced: Mapping[str, EntryPoint] | None = None
    ) -> None:
        self._rivals: dict[str, EntryPoint] = {}
        self._specs = {p.name: _Spec(p, points_of(p), SHIPPED_WITH) for p in shipped}
        if announced is None:
            announced = self._found()
        self._announced = announced

    def _found(self) -> Mapping[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            if found.setdefault(entry.name, entry) is not entry:
                self._rivals[entry.name] = entry
        return found

    def names(self) -> Iterable[str]:
        """Return every name that a profile may use, broken plugins included."""
        return self._specs.keys() | self._announced.keys()

    def points(self, name: str) -> frozenset[Point] | None:
        """Return the plugin's extension points; None for an unknown name.

        Raises PluginLoadError if the plugin is broken.
        """
        spec = self._spec(name)
        return spec.points if spec else None

    def args_model(self, name: str) -> type[BaseModel] | None:
        """Return the pydantic model of the plugin's arguments; None for an unknown name."""
        spec = self._spec(name)
        if spec is None:
            return None
        model: type[BaseModel] = getattr(spec.plugin, "Args", NoArgs)
        return model

    def plugin(self, name: str) -> type[Any]:
        """Return the plugin's class; raise KeyError for an unknown name.

        For the name of a rule, which has a slash (`Rules/gpu-nodes`), the class is `Rules`.
        """
        spec = self._spec(name.partition("/")[0])
        if spec is None:
            raise KeyError(name)
        return spec.plugin

    def distribution(self, name: str) -> str:
        """Return the distribution that has the plugin; raise KeyError for an unknown name."""
        spec = self._spec(name.partition("/")[0])
        if spec is None:
            raise KeyError(name)
        return spec.distribution

    def _spec(self, name: str) -> _Spec | None:
        spec = self._specs.get(name)
        if spec is None and name in self._rivals:
            both = " and by ".join(_source(e) for e in (self._announced[name], self._rivals[name]))
            raise PluginLoadError(f"plugin {name} is announced by {both}: uninstall one of them")
        if spec is None and name in self._announced:
            spec = self._specs[name] = _load(self._announced[name])
        return spec


def _load(entry: EntryPoint) -> _Spec:
    source = _source(entry)
    try:
        plugin = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that calls sys.exit() ends nothing but its profile
        raise PluginLoadError(
            f"plugin {entry.name} ({source}) cannot be imported: "
            f"{type(error).__name__}: {text_of(error)}{place_of(error)}"
        ) from error
    problem = _problem(entry.name, plugin)
    if problem:
        raise PluginLoadError(f"plugin {entry.name} ({source}) {problem}")
    return _Spec(plugin, points_of(plugin), _distribution(entry))


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unknown distribution"


def _source(entry: EntryPoint) -> str:
    return f"{entry.value} of {_distribution(entry)}"


def _problem(name: str, plugin: Any) -> str | None:
    if not isinstance(plugin, type):
        return "is not a class"
    args, points = getattr(plugin, "Args", NoArgs), points_of(plugin)
    own_name = getattr(plugin, "name", None)
    checks = (
        (own_name == name, f"has the name {own_name!r}; it must be that of its entry point"),
        (
            isinstance(args, type) and issubclass(args, BaseModel),
            "has an Args that is not a pydantic model",
        ),
        (not (misspelt := misspelt_name(plugin)), misspelt),
        (bool(points), "implements no extension point"),
        (
            Point.FILTER not in points or callable(getattr(plugin, "explain", None)),
            "has a filter but no explain, which says why a node is rejected",
        ),
        (
            points.isdisjoint((Point.SCORE, Point.PLACEMENT_SCORE)) or hasattr(plugin, "normalize"),
            "has a score but no normalize, which says how it is normalized",
        ),
        (
            not (wrong := _wrongly_async(plugin, points)),
            f"has {wrong} as async def; only pre_bind, bind and post_bind wait",
        ),
        (
            not isgeneratorfunction(getattr(plugin, "pod_group_post_filter", None)),
            "has a pod_group_post_filter that yields; call state.place and return the result",
        ),
        (
            isinstance(getattr(plugin, "depends_on_node_only", None), bool),
            "does not set depends_on_node_only",
        ),
    )
    return next((problem for fine, problem in checks if not fine), None)


def _wrongly_async(plugin: type[Any], points: frozenset[Point]) -> str:
    methods = [POINT_METHODS[point] for point in Point if point in points - _ASYNC]
    methods += ["explain", "unreserve", "queueing_hint"]
    return next((m for m in methods if iscoroutinefunction(getattr(plugin, m, None))), "")
