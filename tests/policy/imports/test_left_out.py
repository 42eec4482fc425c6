"""The import of kube-scheduler's files leaves out plugins that Mooring does not have."""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.defaults import ABSENT
from mooring.policy.imports.configuration import import_configuration
from mooring.policy.imports.left_out import LEFT_OUT, WithLeftOut, left_out_of, without_left_out
from mooring.policy.merge import Catalog, PluginUse
from mooring.policy.points import Point
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import ResolvedProfile, resolve
from policies import KUBE_SCHEDULER_ARGS, kube_configuration

ALL = [{"name": "*"}]


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def notes(spec: dict[str, Any], catalog: Catalog) -> list[str]:
    found = left_out_of(read(SchedulingProfileSpec, spec, ""), catalog, "profiles[0]")
    return [str(note) for note in found]


def kept(spec: dict[str, Any], catalog: Catalog) -> Any:
    left = without_left_out(read(SchedulingProfileSpec, spec, ""), catalog)
    return left.model_dump(mode="json", by_alias=True, exclude_unset=True)


def imported(catalog: Catalog, **fields: Any) -> tuple[ResolvedProfile, list[str]]:
    """Import a configuration with one profile; return the resolved profile and the notes."""
    document = kube_configuration(profiles=[{"schedulerName": "batch", **fields}])
    found = import_configuration(document, catalog)
    (profile,) = found.profiles
    return resolve(profile.spec, catalog), [str(note) for note in found.notes]


def test_the_catalog_with_what_is_left_out_contains_all_other_plugins(catalog: Catalog) -> None:
    wider = WithLeftOut(catalog)
    assert {*wider.names()} == {*catalog.names(), *LEFT_OUT}
    assert {*ABSENT} < {*LEFT_OUT}
    assert wider.points("DeferredPodScheduling") == frozenset(
        {Point.PRE_FILTER, Point.FILTER, Point.PERMIT}
    )
    assert wider.points("NodeName") == frozenset({Point.FILTER})
    assert wider.points("Nothing") is None
    assert wider.args_model("NodeAffinity") is KUBE_SCHEDULER_ARGS["NodeAffinity"]
    assert wider.args_model("DeferredPodScheduling") is None


def test_a_plugin_is_noted_once_with_every_field_that_names_it(catalog: Catalog) -> None:
    spec = {
        "plugins": {
            "multiPoint": {"enabled": named("NodeName", "DeferredPodScheduling")},
            "preFilter": {"enabled": named("DeferredPodScheduling"), "disabled": ALL},
        },
        "pluginConfig": named("DeferredPodScheduling", "NodePorts"),
    }
    first, second = notes(spec, catalog)
    assert first == (
        "profiles[0]: DeferredPodScheduling is left out of multiPoint, preFilter, pluginConfig: "
        "Mooring does not have this plugin"
    )
    assert second == "profiles[0].plugins.preFilter: no plugin is left"
    assert kept(spec, catalog) == {
        "plugins": {
            "multiPoint": {"enabled": named("NodeName")},
            "preFilter": {"enabled": [], "disabled": ALL},
        },
        "pluginConfig": named("NodePorts"),
    }


def test_an_empty_spec_stays_empty(catalog: Catalog) -> None:
    assert without_left_out(SchedulingProfileSpec(), catalog).model_fields_set == set()
    assert notes({}, catalog) == []


@pytest.mark.parametrize(
    "plugins",
    [
        {
            "queueSort": {"enabled": named("Coscheduling"), "disabled": ALL},
            "preFilter": {"enabled": named("Coscheduling")},
            "permit": {"enabled": named("Coscheduling")},
            "reserve": {"enabled": named("Coscheduling")},
        },
        {"multiPoint": {"enabled": named("Coscheduling"), "disabled": named("PrioritySort")}},
    ],
)
def test_the_queue_of_a_file_for_coscheduling_is_sorted_by_priority(
    plugins: dict[str, Any], catalog: Catalog
) -> None:
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "CoschedulingArgs"}
    config = [{"name": "Coscheduling", "args": {**args, "permitWaitingTimeSeconds": 10}}]
    profile, said = imported(catalog, plugins=plugins, pluginConfig=config)
    assert [use.name for use in profile.plugins[Point.QUEUE_SORT]] == ["PrioritySort"]
    assert said[0].startswith("profiles[0]: Coscheduling is left out of ")
    assert said[0].endswith(
        ", pluginConfig: Mooring schedules its pod groups by default (docs/gangs.md)"
    )
    assert said[1:] == ["profiles[0].plugins.queueSort: PrioritySort sorts the queue"]
    everything = {use.name for uses in profile.plugins.values() for use in uses}
    assert "Coscheduling" not in everything


def test_gangs_are_scheduled_where_coscheduling_did_it_and_all_defaults_are_off() -> None:
    enabled = named("Coscheduling", "NodeResourcesFit", "DefaultBinder")
    plugins = {"multiPoint": {"enabled": enabled, "disabled": ALL}}
    profile, _ = imported(Registry(SHIPPED, {}), plugins=plugins)
    assert "GangScheduling" in {use.name for uses in profile.plugins.values() for use in uses}


def test_moorings_plugin_of_the_same_name_takes_the_place_of_capacity_scheduling() -> None:
    """The plugin of scheduler-plugins has extension points that Mooring's plugin lacks."""
    one = named("CapacityScheduling")
    plugins = {
        "multiPoint": {"enabled": named("PrioritySort", "DefaultBinder"), "disabled": ALL},
        "preFilter": {"enabled": one},
        "postFilter": {"enabled": one},
        "reserve": {"enabled": one},
    }
    profile, said = imported(Registry(SHIPPED, {}), plugins=plugins)
    points = {point for point, uses in profile.plugins.items() if ours(uses)}
    assert points == {Point.PRE_FILTER}
    fields = "preFilter, postFilter, reserve"
    assert said[0].startswith(f"profiles[0]: CapacityScheduling is left out of {fields}: ")


def ours(uses: Iterable[PluginUse]) -> bool:
    return any(use.name == "CapacityScheduling" for use in uses)


def test_a_default_that_only_a_left_out_plugin_replaced_is_noted(catalog: Catalog) -> None:
    plugins = {"postFilter": {"enabled": named("CapacityScheduling"), "disabled": ALL}}
    profile, said = imported(catalog, plugins=plugins)
    assert profile.plugins[Point.POST_FILTER] == ()
    (second,) = said[1:]
    assert second.startswith("profiles[0].plugins.postFilter: no plugin is left: pods do not")


def test_a_left_out_plugin_need_not_be_enabled_to_be_disabled(catalog: Catalog) -> None:
    plugins = {"multiPoint": {"disabled": named("NodeResourceTopologyMatch", "ImageLocality")}}
    _, said = imported(catalog, plugins=plugins)
    assert said == []
    assert kept({"plugins": plugins}, catalog) == {
        "plugins": {"multiPoint": {"disabled": named("ImageLocality")}}
    }


class WithCoscheduling(WithLeftOut):
    """A catalog in which an installed package has a plugin named Coscheduling."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._without = catalog

    def names(self) -> list[str]:
        return [*self._without.names(), "Coscheduling"]

    def points(self, name: str) -> frozenset[Point] | None:
        return frozenset({Point.PERMIT}) if name == "Coscheduling" else self._without.points(name)


def test_a_plugin_that_is_installed_stays(catalog: Catalog) -> None:
    plugins = {"permit": {"enabled": named("Coscheduling")}}
    profile, said = imported(WithCoscheduling(catalog), plugins=plugins)
    assert [use.name for use in profile.plugins[Point.PERMIT]] == ["Coscheduling"]
    assert said == []
