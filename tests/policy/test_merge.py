"""Merges profiles into the defaults.

`tests/e2e/test_kube_scheduler.py` compares more cases with the real kube-scheduler.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.policy.defaults import ABSENT, DEFAULT_WEIGHTS
from mooring.policy.merge import Catalog, PluginUse, plugins_by_point
from mooring.policy.points import Point
from mooring.policy.profile import Disabled, Enabled, Plugins, PluginSet
from mooring.policy.reading import read
from mooring.policy.rules.rule import Rule

PRESENT = [name for name in DEFAULT_WEIGHTS if name not in ABSENT]


def names(uses: Sequence[PluginUse]) -> list[str]:
    return [use.name for use in uses]


def scores(uses: Sequence[PluginUse]) -> dict[str, int]:
    return {use.name: use.weight for use in uses}


def plugins_of(**points: Any) -> Plugins:
    return read(Plugins, points, "")


DEFAULT_SCORES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def test_a_filter_that_counts_pods_runs_at_pre_filter_too(catalog: Catalog) -> None:
    rules = [
        read(Rule, {"name": name, kind: source}, "")
        for name, kind, source in (
            ("plain", "filter", "node.zone == 'a'"),
            ("counting", "filter", "node.pods({}) == 0"),
            ("preferring", "score", "node.pods({})"),
        )
    ]
    plugins = plugins_by_point(Plugins(), catalog, rules)
    assert names(plugins[Point.PRE_FILTER])[-1] == "Rules/counting"
    assert "Rules/plain" not in names(plugins[Point.PRE_FILTER])
    assert names(plugins[Point.FILTER])[-2:] == ["Rules/plain", "Rules/counting"]
    assert names(plugins[Point.SCORE])[-1] == "Rules/preferring"


def test_without_changes_kube_schedulers_defaults_run_in_order(catalog: Catalog) -> None:
    plugins = plugins_by_point(Plugins(), catalog)
    assert scores(plugins[Point.SCORE]) == DEFAULT_SCORES
    assert names(plugins[Point.SCORE]) == list(DEFAULT_SCORES)
    assert names(plugins[Point.PRE_ENQUEUE]) == [
        "SchedulingGates",
        "DynamicResources",
        "DefaultPreemption",
    ]
    assert names(plugins[Point.QUEUE_SORT]) == ["PrioritySort"]
    assert names(plugins[Point.FILTER])[:3] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
    ]
    older = plugins_by_point(Plugins(), catalog, kubernetes=KUBERNETES_RULES["1.36"])
    assert names(older[Point.FILTER])[:3] == ["NodeUnschedulable", "NodeName", "TaintToleration"]
    assert plugins[Point.PERMIT] == ()


def test_a_default_enabled_again_keeps_its_position_and_gets_the_new_weight(
    catalog: Catalog,
) -> None:
    changed = plugins_of(multiPoint={"enabled": [{"name": "NodeAffinity", "weight": 9}]})
    plugins = plugins_by_point(changed, catalog)
    assert list(scores(plugins[Point.SCORE]).items())[1] == ("NodeAffinity", 9)


def test_a_default_enabled_again_without_a_weight_has_weight_one(catalog: Catalog) -> None:
    changed = plugins_of(multiPoint={"enabled": [{"name": "TaintToleration"}]})
    assert scores(plugins_by_point(changed, catalog)[Point.SCORE])["TaintToleration"] == 1


def test_a_default_disabled_and_enabled_moves_to_the_end(catalog: Catalog) -> None:
    word = {"name": "TaintToleration"}
    changed = plugins_of(multiPoint={"enabled": [word], "disabled": [word]})
    assert names(plugins_by_point(changed, catalog)[Point.SCORE])[-1] == "TaintToleration"


def test_a_star_disables_every_default(catalog: Catalog) -> None:
    changed = plugins_of(
        multiPoint={"disabled": [{"name": "*"}], "enabled": [{"name": "NodeName"}]}
    )
    plugins = plugins_by_point(changed, catalog)
    assert {point: names(uses) for point, uses in plugins.items() if uses} == {
        Point.FILTER: ["NodeName"]
    }


def test_plugins_named_at_a_point_run_first_and_extras_last(catalog: Catalog) -> None:
    changed = plugins_of(
        multiPoint={"disabled": [{"name": "NodePorts"}]},
        filter={"enabled": [{"name": "NodePorts"}, {"name": "VolumeZone"}, {"name": "NodeName"}]},
    )
    order = names(plugins_by_point(changed, catalog)[Point.FILTER])
    assert order[:2] == ["VolumeZone", "NodeName"]
    assert order[-1] == "NodePorts"


def test_the_weight_at_a_point_overrides_that_at_multi_point(catalog: Catalog) -> None:
    changed = plugins_of(
        multiPoint={"enabled": [{"name": "NodeAffinity", "weight": 9}]},
        score={"enabled": [{"name": "NodeAffinity"}]},
    )
    assert scores(plugins_by_point(changed, catalog)[Point.SCORE])["NodeAffinity"] == 1


def test_a_star_at_a_point_leaves_only_the_plugins_enabled_there(catalog: Catalog) -> None:
    changed = plugins_of(
        score={"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 4}]}
    )
    plugins = plugins_by_point(changed, catalog)
    assert scores(plugins[Point.SCORE]) == {"ImageLocality": 4}
    assert "NodeAffinity" in names(plugins[Point.FILTER])


@pytest.mark.parametrize("absent", [*ABSENT])
def test_a_default_that_the_catalog_does_not_have_is_left_out(
    absent: str, catalog: Catalog
) -> None:
    plugins = plugins_by_point(Plugins(), catalog)
    assert not any(absent in names(uses) for uses in plugins.values())


def sets(choices: list[str]) -> st.SearchStrategy[PluginSet]:
    enabled = st.builds(Enabled, name=st.sampled_from(choices), weight=st.integers(0, 9))
    disabled = st.builds(Disabled, name=st.sampled_from([*choices, "*"]))
    return st.builds(
        PluginSet,
        enabled=st.lists(enabled, max_size=4, unique_by=lambda p: p.name).map(tuple),
        disabled=st.lists(disabled, max_size=3).map(tuple),
    )


CHANGES = st.builds(
    Plugins,
    multi_point=sets(PRESENT),
    filter=sets(["NodeName", "NodePorts", "NodeAffinity", "VolumeZone", "TaintToleration"]),
    score=sets(list(DEFAULT_SCORES)),
)


@given(CHANGES)
def test_untouched_defaults_keep_their_order(catalog: Catalog, changes: Plugins) -> None:
    touched = {p.name for _, plugins in changes for p in plugins.enabled}
    for uses in plugins_by_point(changes, catalog).values():
        order = [PRESENT.index(name) for name in names(uses) if name not in touched]
        assert order == sorted(order)


@given(CHANGES)
def test_every_enabled_plugin_runs_once_and_no_disabled_one_runs(
    catalog: Catalog, changes: Plugins
) -> None:
    multi = changes.multi_point
    for point, uses in plugins_by_point(changes, catalog).items():
        here = changes.at(point)
        ran, wanted = names(uses), {p.name for p in here.enabled}
        assert len(ran) == len({*ran})
        assert {*ran} >= wanted
        off_here = {p.name for p in here.disabled}
        assert not ({*ran} - wanted) & off_here
        assert "*" not in off_here or {*ran} == wanted
        off = {p.name for p in multi.disabled}
        assert not ({*ran} - wanted - {p.name for p in multi.enabled}) & off


@given(CHANGES)
def test_only_scores_have_weights(catalog: Catalog, changes: Plugins) -> None:
    for point, uses in plugins_by_point(changes, catalog).items():
        assert all((use.weight > 0) == (point is Point.SCORE) for use in uses)


@given(CHANGES)
def test_merging_an_already_merged_profile_changes_nothing(
    catalog: Catalog, changes: Plugins
) -> None:
    result = plugins_by_point(changes, catalog)
    spelled = {
        point.value: {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": use.name, "weight": use.weight} for use in uses],
        }
        for point, uses in result.items()
    }
    assert plugins_by_point(plugins_of(**spelled), catalog) == result
