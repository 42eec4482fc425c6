from mooring.policy.points import Point
from mooring.policy.profile import Plugins


def test_points_are_the_sections_of_plugins_except_multi_point() -> None:
    sections = {field.alias for field in Plugins.model_fields.values()}
    assert {*Point} == sections - {"multiPoint"}


def test_points_are_in_the_order_in_which_they_run() -> None:
    assert list(Point)[:3] == ["preEnqueue", "queueSort", "placementGenerate"]
    assert list(Point)[3:5] == ["preFilter", "filter"]
    assert list(Point)[-3:] == ["preBind", "bind", "postBind"]
