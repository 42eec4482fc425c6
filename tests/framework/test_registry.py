"""Finds plugins by name: shipped plugins, and plugins of installed packages."""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path

import pytest

from mooring.framework.registry import ENTRY_POINT_GROUP, NoArgs, PluginLoadError, Registry
from mooring.plugins import SHIPPED
from mooring.policy.points import Point
from mooring.policy.profile import Enabled, Plugins, PluginSet, SchedulingProfileSpec
from mooring.policy.resolve import resolve

Announce = Callable[[str], Registry]

FINE = """
class RackAware:
    name = "RackAware"
    depends_on_node_only = True
    def filter(self, pod, nodes, state): ...
    def explain(self, pod, nodes, state): ...
"""

MODULE = "acme_rack"


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Announce]:
    """Yield a function that installs a package with this source, and returns a registry."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)

    def announced(source: str) -> Registry:
        (tmp_path / f"{MODULE}.py").write_text(source)
        info = tmp_path / "acme-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[{ENTRY_POINT_GROUP}]\nRackAware = {MODULE}:RackAware\n"
        )
        (entry,) = PathDistribution(info).entry_points
        return Registry(SHIPPED, {entry.name: entry})

    yield announced
    sys.modules.pop(MODULE, None)


def test_every_shipped_plugin_is_known_by_its_name() -> None:
    registry = Registry(SHIPPED, {})
    assert set(registry.names()) == {plugin.name for plugin in SHIPPED}
    assert all(registry.plugin(plugin.name) is plugin for plugin in SHIPPED)


def test_an_unknown_name_has_no_points_no_arguments_and_no_class() -> None:
    registry = Registry(SHIPPED, {})
    assert registry.points("RackAware") is None
    assert registry.args_model("RackAware") is None
    with pytest.raises(KeyError, match="RackAware"):
        registry.plugin("RackAware")


def test_an_announced_plugin_is_imported_only_once_a_profile_names_it(announce: Announce) -> None:
    registry = announce(FINE)
    assert "RackAware" in registry.names()
    assert registry.points("NodeName") is not None
    assert MODULE not in sys.modules
    assert registry.points("RackAware") == frozenset({Point.FILTER})
    assert MODULE in sys.modules


def test_an_announced_plugin_is_resolved_like_a_shipped_one(announce: Announce) -> None:
    enabled = Plugins(multi_point=PluginSet(enabled=(Enabled(name="RackAware"),)))
    effective = resolve(SchedulingProfileSpec(plugins=enabled), announce(FINE))
    assert [use.name for use in effective.plugins[Point.FILTER]][-1] == "RackAware"
    assert effective.args["RackAware"] == NoArgs()


def test_a_plugin_without_arguments_refuses_every_argument(announce: Announce) -> None:
    assert announce(FINE).args_model("RackAware") is NoArgs
    assert NoArgs.model_config["extra"] == "forbid"


def test_a_shipped_plugin_is_not_replaced_by_one_of_the_same_name() -> None:
    imposter = EntryPoint("NodeName", f"{MODULE}:NodeName", ENTRY_POINT_GROUP)
    shipped = next(plugin for plugin in SHIPPED if plugin.name == "NodeName")
    assert Registry(SHIPPED, {"NodeName": imposter}).plugin("NodeName") is shipped


def test_every_plugin_is_known_with_its_distribution(announce: Announce) -> None:
    registry = announce(FINE)
    assert registry.distribution("RackAware") == "acme"
    assert registry.distribution("NodeName") == "mooring-scheduler"
    with pytest.raises(KeyError, match="Unknown"):
        registry.distribution("Unknown")


def test_installed_packages_are_searched_where_nothing_else_is_said(announce: Announce) -> None:
    announce(FINE)
    assert "RackAware" in Registry(SHIPPED).names()


def test_a_name_that_two_distributions_announce_is_an_error_that_names_both(
    announce: Announce, tmp_path: Path
) -> None:
    announce(FINE)
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nRackAware = rack:RackAware\n")
    registry = Registry(SHIPPED)
    assert registry.points("NodeName")
    with pytest.raises(PluginLoadError, match="plugin RackAware is announced by") as failure:
        registry.points("RackAware")
    assert f"{MODULE}:RackAware of acme" in str(failure.value)
    assert "rack:RackAware of other" in str(failure.value)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import acme_missing", "cannot be imported: ModuleNotFoundError: No module named 'acme_"),
        ("", "cannot be imported: AttributeError: "),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("RackAware = 1", "is not a class"),
        (FINE.replace('"RackAware"', '"Rack"'), "has the name 'Rack'; it must be that of its ent"),
        (f"{FINE}    Args = dict", "has an Args that is not a pydantic model"),
        ('class RackAware:\n    name = "RackAware"', "implements no extension point"),
        (FINE.replace("explain", "tell"), "has a filter but no explain"),
        (
            FINE.replace("def filter", "def filtr"),
            "has filtr, which is nothing that the scheduler k",
        ),
        (f"{FINE}    def prescore(self): ...", "has prescore, which is nothing that the scheduler"),
        (FINE.replace("filter", "score"), "has a score but no normalize"),
        (FINE.replace("def filter", "async def filter"), "has filter as async def; only pre_bind,"),
        (FINE.replace("def expl", "async def expl"), "has explain as async def; only pre_bind, b"),
        (
            f"{FINE}    def pod_group_post_filter(self, state): yield",
            "has a pod_group_post_filter that yields; call state.place",
        ),
        (FINE.replace("depends_on_node_only", "local"), "does not set depends_on_node_only"),
    ],
)
def test_a_broken_plugin_is_named_with_its_distribution_and_the_cause(
    announce: Announce, source: str, problem: str
) -> None:
    registry = announce(source)
    with pytest.raises(PluginLoadError) as failure:
        registry.points("RackAware")
    text = str(failure.value)
    assert text.startswith(f"plugin RackAware ({MODULE}:RackAware of acme) {problem}")


def test_an_entry_point_of_no_distribution_is_reported_as_such() -> None:
    entry = EntryPoint("RackAware", "acme_missing:RackAware", ENTRY_POINT_GROUP)
    with pytest.raises(PluginLoadError, match="acme_missing:RackAware of an unknown distribution"):
        Registry(SHIPPED, {"RackAware": entry}).plugin("RackAware")
