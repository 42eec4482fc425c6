import pytest

from mooring.framework.plugin import POINT_METHODS, misspelt_name, points_of
from mooring.plugins import SHIPPED
from mooring.policy.points import Point


def test_every_point_is_shown_by_a_method_of_its_own() -> None:
    assert POINT_METHODS.keys() == set(Point)
    assert len(set(POINT_METHODS.values())) == len(Point)


def test_a_class_serves_the_points_whose_methods_it_has() -> None:
    class Both:
        def filter(self) -> None: ...

        def score(self) -> None: ...

        post_bind = "not a method"

    assert points_of(Both) == {Point.FILTER, Point.SCORE}


@pytest.mark.parametrize("plugin", SHIPPED, ids=lambda plugin: plugin.name)
def test_a_shipped_plugin_is_complete(plugin: type) -> None:
    assert points_of(plugin)
    assert isinstance(getattr(plugin, "depends_on_node_only", None), bool)
    assert hasattr(plugin, "filter") == hasattr(plugin, "explain")
    scores = hasattr(plugin, "score") or hasattr(plugin, "score_placement")
    assert scores == hasattr(plugin, "normalize")
    assert hasattr(plugin, "queueing_hint") == hasattr(plugin, "events_to_register")


def test_names_of_shipped_plugins_are_unique() -> None:
    names = [plugin.name for plugin in SHIPPED]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("filtr", "filter"),
        ("fliter", "filter"),
        ("Filter", "filter"),
        ("prefilter", "pre_filter"),
        ("preFilter", "pre_filter"),
        ("scores", "score"),
        ("permits", "permit"),
        ("binds", "bind"),
        ("unreserved", "unreserve"),
        ("queue_hint", "queueing_hint"),
        ("depend_on_node_object_only", "depends_on_node_object_only"),
    ],
)
def test_a_name_that_is_almost_a_method_is_told_with_the_method(name: str, meant: str) -> None:
    assert misspelt_name(type("Mine", (), {name: None})) == (
        f"has {name}, which is nothing that the scheduler knows; if you mean {meant}, call it so, "
        f"otherwise call it _{name}"
    )


@pytest.mark.parametrize("name", ["find", "store", "core", "preserve", "scoring", "_filtr", "Args"])
def test_other_names_are_an_authors_own(name: str) -> None:
    assert not misspelt_name(type("Mine", (), {name: None}))


def test_a_name_is_not_compared_with_methods_that_are_there() -> None:
    assert not misspelt_name(type("Mine", (), {"filter": None, "filters": None}))


@pytest.mark.parametrize("plugin", SHIPPED, ids=lambda plugin: plugin.name)
def test_no_shipped_plugin_has_a_misspelt_name(plugin: type) -> None:
    assert not misspelt_name(plugin)
