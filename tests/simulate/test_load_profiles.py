import json
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.framework.handle import Handle
from mooring.framework.registry import ENTRY_POINT_GROUP, NoArgs, Registry
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.policy.points import Point
from mooring.simulate.load_profiles import (
    InvalidProfile,
    LoadedProfile,
    contains_profile,
    is_profile,
    load_profiles,
    profile_objects,
    read_profiles,
)
from mooring.simulate.manifests import InputError, Manifest
from mooring.testing.builders import api_object
from policies import kube_configuration

REGISTRY = Registry(SHIPPED, {})


class Broken:
    """A plugin whose constructor raises an error."""

    name = "Broken"
    depends_on_node_only = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        raise RuntimeError("no licence")

    def pre_enqueue(self, _pod: Pod) -> Unschedulable | None:
        return None


def profile(name: str = "mine", **spec: Any) -> Manifest:
    return Manifest(f"{name}.yaml", api_object("SchedulingProfile", name, spec=spec))


def configuration(**fields: Any) -> Manifest:
    return Manifest("config.yaml", kube_configuration(**fields))


def weights(loaded: LoadedProfile) -> dict[str, int]:
    return {use.name: use.weight for use in loaded.effective.plugins[Point.SCORE]}


def test_a_scheduling_profile_is_read_with_its_effective_plugins() -> None:
    more = {"score": {"enabled": [{"name": "ImageLocality", "weight": 9}]}}
    (loaded,) = load_profiles([profile(plugins=more)], REGISTRY)
    assert loaded.profile.name == "mine"
    assert weights(loaded)["ImageLocality"] == 9


def test_a_kube_scheduler_configuration_gives_a_profile_for_each_of_its_own() -> None:
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b"}]
    a, b = load_profiles([configuration(profiles=profiles, parallelism=4)], REGISTRY)
    assert (a.profile.name, b.profile.name) == ("a", "b")
    assert [note.path for note in a.notes] == ["parallelism"]
    assert a.settings is not None


def test_a_policy_becomes_a_profile_of_the_scheduler_name_given() -> None:
    old = {
        "kind": "Policy",
        "apiVersion": "v1",
        "predicates": [{"name": "PodFitsResources"}],
        "priorities": [{"name": "ImageLocalityPriority", "weight": 2}],
    }
    (loaded,) = load_profiles([Manifest("policy.json", old)], REGISTRY, "packed")
    assert loaded.profile.scheduler_names == ("packed",)
    assert weights(loaded) == {"ImageLocality": 2}


def test_only_moorings_own_group_makes_a_scheduling_profile() -> None:
    assert is_profile(profile())
    assert not is_profile(Manifest("x", {"kind": "SchedulingProfile", "apiVersion": "other/v1"}))


def test_every_mistake_has_a_line_with_the_file_and_the_field() -> None:
    wrong = profile(percentageOfNodesToScore=101, plugins={"filter": {"enabled": [{"name": "X"}]}})
    with pytest.raises(InvalidProfile) as caught:
        load_profiles([wrong], REGISTRY)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.errors) == 2
    assert all(line.startswith("mine.yaml: spec.") for line in lines)


def test_an_object_of_another_kind_is_an_error() -> None:
    with pytest.raises(InputError, match=r"pod\.yaml: kind: Pod is no scheduling profile"):
        load_profiles([Manifest("pod.yaml", {"kind": "Pod"})], REGISTRY)


@pytest.mark.parametrize("text", ["", "# to be written\n", "---\n"])
def test_a_file_that_is_given_for_its_profiles_contains_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"empty\.yaml: contains no scheduling profile"):
        load_profiles(profile_objects(str(path)), REGISTRY)


def test_a_name_can_be_given_once() -> None:
    with pytest.raises(InputError, match='there is a profile "mine" already'):
        load_profiles([profile(), profile()], REGISTRY)


def test_a_plugin_that_cannot_be_imported_is_an_error_in_the_profile() -> None:
    broken = EntryPoint("Broken", "no_such_package:Broken", ENTRY_POINT_GROUP)
    registry = Registry(SHIPPED, {"Broken": broken})
    named = profile(plugins={"multiPoint": {"enabled": [{"name": "Broken"}]}})
    with pytest.raises(InputError, match=r"mine\.yaml: .*: plugin Broken .* cannot be imported"):
        load_profiles([named], registry)


def test_profiles_whose_plugins_cannot_be_built_can_be_read_but_not_loaded() -> None:
    broken = profile(plugins={"multiPoint": {"enabled": [{"name": "Broken"}]}})
    registry = Registry((*SHIPPED, Broken), {})
    assert [loaded.profile.name for loaded in read_profiles([broken], registry)] == ["mine"]
    with pytest.raises(InvalidProfile, match="no licence"):
        load_profiles([broken], registry)


def test_profiles_with_extenders_can_be_loaded() -> None:
    extended = profile(extenders=[{"urlPrefix": "http://a", "filterVerb": "filter"}])
    (loaded,) = load_profiles([extended], REGISTRY)
    assert [found.name for found in loaded.profile.spec.extenders] == ["http://a"]


def config_map(**data: Any) -> Manifest:
    raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    return Manifest("c.yaml", raw)


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_a_config_map_contains_configurations_and_policies_as_json_or_yaml(
    write: Callable[[Any], str],
) -> None:
    def names(key: str, raw: dict[str, Any]) -> list[str]:
        found = read_profiles([config_map(**{key: write(raw), "other": "x: ["})], REGISTRY, "own")
        return [loaded.profile.name for loaded in found]

    two = configuration(profiles=[{"schedulerName": "a"}, {"schedulerName": "b"}])
    assert names("my-config.yaml", two.raw) == ["a", "b"]
    assert names("policy.cfg", {"apiVersion": "v1", "kind": "Policy"}) == ["own"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "c.yaml: data: has neither a KubeSchedulerConfiguration under any key nor a Policy"),
        ({"policy.cfg": "{"}, r"c.yaml, data\[policy.cfg\]: .*is neither YAML nor JSON"),
        (
            {"policy.cfg": "{apiVersion: v1, kind: Policy, predicate: []}"},
            r"c.yaml: data\[policy.cfg\].predicate: unknown field",
        ),
        (
            {"a.yaml": json.dumps(configuration(parallelism=0).raw)},
            r"c.yaml: data\[a.yaml\].parallelism: must be between",
        ),
        ({"policy.cfg": "{apiVersion: v1, kind: Pod}"}, "kind: Pod is no scheduling profile"),
        ({"policy.cfg": "[&a x, *a]"}, "YAML aliases are not read here"),
    ],
)
def test_a_mistake_in_a_config_map_is_told_with_its_key(data: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_profiles([config_map(**data)], REGISTRY)


def test_kinds_of_other_groups_are_no_profiles() -> None:
    """Kyverno and the API server's audit log also have a kind Policy."""
    for api_version in ("kyverno.io/v1", "audit.k8s.io/v1"):
        other = Manifest("x", {"apiVersion": api_version, "kind": "Policy"})
        assert not contains_profile(other)
        with pytest.raises(InputError, match="Policy is no scheduling profile"):
            load_profiles([other], REGISTRY)
    text = json.dumps(configuration().raw)
    other = Manifest("x", {"apiVersion": "a.example/v1", "kind": "ConfigMap", "data": {"a": text}})
    assert not contains_profile(other)


def test_a_config_map_contains_a_profile_only_if_it_has_a_policy() -> None:
    def found(*raws: dict[str, Any]) -> list[bool]:
        return [contains_profile(Manifest("x", raw)) for raw in raws]

    policy = {"kind": "ConfigMap", "data": {"policy.cfg": "{}"}}
    assert all(found(profile().raw, configuration().raw, {"kind": "Policy"}, policy))
    others = ({"kind": "ConfigMap", "data": {"nginx.conf": ""}}, {"kind": "ConfigMap"})
    assert not any(found(*others, {"kind": "Pod"}))


def test_a_scheduling_profile_without_a_group_lacks_its_api_version() -> None:
    assert contains_profile(Manifest("x", {"kind": "SchedulingProfile"}))
    with pytest.raises(InvalidProfile, match="apiVersion: is required"):
        load_profiles([Manifest("x", {"kind": "SchedulingProfile"})], REGISTRY)
