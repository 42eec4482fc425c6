from mooring.policy.defaults import ABSENT, DEFAULT_WEIGHTS, KUBE_SCHEDULER_PLUGINS, REMOVED
from mooring.policy.points import Point


def test_absent_plugins_are_defaults_of_kube_scheduler_or_behind_a_feature_gate() -> None:
    assert ABSENT.keys() - DEFAULT_WEIGHTS.keys() == {"DeferredPodScheduling"}


def test_absent_plugins_neither_sort_the_queue_nor_bind() -> None:
    """So that leaving it out of an imported file cannot break what the file was checked for."""
    assert not any(points & {Point.QUEUE_SORT, Point.BIND} for points in ABSENT.values())


def test_a_removed_plugin_has_a_successor_that_exists() -> None:
    assert {*REMOVED.values()} < DEFAULT_WEIGHTS.keys()
    assert not REMOVED.keys() & DEFAULT_WEIGHTS.keys()


def test_every_name_of_kube_scheduler_is_known() -> None:
    assert {*DEFAULT_WEIGHTS, *ABSENT, *REMOVED} == KUBE_SCHEDULER_PLUGINS
