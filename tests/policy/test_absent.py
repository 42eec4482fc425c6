from mooring.policy.absent import WithAbsentDefaults, absent_in, without_absent
from mooring.policy.args import UPSTREAM_ARGS
from mooring.policy.defaults import ABSENT
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.reading import read

SPEC = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "NodeName"}, {"name": "NodeDeclaredFeatures"}]},
        "preFilter": {"enabled": [{"name": "NodeDeclaredFeatures"}], "disabled": [{"name": "*"}]},
    },
    "pluginConfig": [{"name": "NodeDeclaredFeatures"}, {"name": "NodePorts"}],
}


def test_the_wider_catalog_knows_absent_plugins_and_all_others(catalog: Catalog) -> None:
    wider = WithAbsentDefaults(catalog)
    assert {*wider.names()} == {*catalog.names(), *ABSENT}
    assert wider.points("NodeDeclaredFeatures") == frozenset({Point.PRE_FILTER, Point.FILTER})
    assert wider.points("NodeName") == frozenset({Point.FILTER})
    assert wider.points("Nothing") is None
    assert wider.args_model("NodeAffinity") is UPSTREAM_ARGS["NodeAffinity"]
    assert wider.args_model("NodeDeclaredFeatures") is None


def test_every_place_that_names_an_absent_plugin_is_noted() -> None:
    spec = read(SchedulingProfileSpec, SPEC, "")
    assert [note.path for note in absent_in(spec, "profiles[0]")] == [
        "profiles[0].plugins.multiPoint.enabled[1]",
        "profiles[0].plugins.preFilter.enabled[0]",
        "profiles[0].pluginConfig[0]",
    ]


def test_the_rest_of_the_spec_stays_as_it_was_written() -> None:
    spec = without_absent(read(SchedulingProfileSpec, SPEC, ""))
    assert spec.model_dump(mode="json", by_alias=True, exclude_unset=True) == {
        "plugins": {
            "multiPoint": {"enabled": [{"name": "NodeName"}]},
            "preFilter": {"enabled": [], "disabled": [{"name": "*"}]},
        },
        "pluginConfig": [{"name": "NodePorts"}],
    }


def test_a_spec_that_says_nothing_still_says_nothing() -> None:
    assert without_absent(SchedulingProfileSpec()).model_fields_set == set()
