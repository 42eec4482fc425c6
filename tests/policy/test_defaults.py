from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.policy.defaults import (
    ABSENT,
    DEFAULT_WEIGHTS,
    KUBE_SCHEDULER_PLUGINS,
    OWN_DEFAULTS,
    REMOVED,
    default_weights,
)
from mooring.policy.points import Point


def test_absent_plugins_are_no_defaults_but_behind_a_feature_gate() -> None:
    assert not ABSENT.keys() & DEFAULT_WEIGHTS.keys()
    assert ABSENT.keys() == {"DeferredPodScheduling"}


def test_absent_plugins_neither_sort_the_queue_nor_bind() -> None:
    """The import leaves such plugins out, and the profile must still be valid."""
    assert not any(points & {Point.QUEUE_SORT, Point.BIND} for points in ABSENT.values())


def test_a_removed_plugin_has_a_successor_that_exists() -> None:
    assert {*REMOVED.values()} < DEFAULT_WEIGHTS.keys()
    assert not REMOVED.keys() & DEFAULT_WEIGHTS.keys()


def test_every_name_of_kube_scheduler_is_known() -> None:
    assert {*DEFAULT_WEIGHTS, *ABSENT, *REMOVED} == KUBE_SCHEDULER_PLUGINS


def test_each_version_has_its_defaults_in_its_order() -> None:
    newest = {**DEFAULT_WEIGHTS, **OWN_DEFAULTS}
    assert [*default_weights(NEWEST).items()] == [*newest.items()]
    for version, has_declared_features in (("1.35", False), ("1.36", True)):
        older = default_weights(KUBERNETES_RULES[version])
        assert [*older][2:5] == ["NodeUnschedulable", "NodeName", "TaintToleration"]
        assert ("NodeDeclaredFeatures" in older) is has_declared_features
        assert older.items() <= newest.items()
