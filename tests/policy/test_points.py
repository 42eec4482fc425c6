from mooring.policy.points import Point
from mooring.policy.profile import Plugins


def test_points_are_the_sections_of_plugins_but_multi_point() -> None:
    sections = {field.alias for field in Plugins.model_fields.values()}
    assert {*Point} == sections - {"multiPoint"}


def test_points_come_in_the_order_a_pod_meets_them() -> None:
    assert list(Point)[:4] == ["preEnqueue", "queueSort", "preFilter", "filter"]
    assert list(Point)[-3:] == ["preBind", "bind", "postBind"]
