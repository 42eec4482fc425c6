import pytest

from mooring.framework.plugin import POINT_METHODS, points_of
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
    assert isinstance(getattr(plugin, "row_local", None), bool)
    assert hasattr(plugin, "filter") == hasattr(plugin, "explain")
    scores = hasattr(plugin, "score") or hasattr(plugin, "score_placement")
    assert scores == hasattr(plugin, "normalize")
    assert hasattr(plugin, "queueing_hint") == hasattr(plugin, "events_to_register")


def test_names_of_shipped_plugins_are_unique() -> None:
    names = [plugin.name for plugin in SHIPPED]
    assert len(set(names)) == len(names)
