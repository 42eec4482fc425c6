from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mooring.policy.points import Point
from mooring.policy.profile import PluginSet, SchedulingProfileSpec, read_profile

Mistakes = Callable[[Callable[[], object]], dict[str, str]]
Manifest = Callable[..., Mapping[str, Any]]


def test_a_profile_without_a_spec_has_kube_schedulers_defaults(manifest: Manifest) -> None:
    document = {**manifest("default-scheduler")}
    del document["spec"]
    profile = read_profile(document)
    assert profile.spec == SchedulingProfileSpec()
    assert profile.scheduler_names == ("default-scheduler",)
    assert profile.generation == 3


def test_a_profile_in_mode_shadow_has_no_extenders(manifest: Manifest, mistakes: Mistakes) -> None:
    extenders = [{"urlPrefix": "http://a"}]
    found = mistakes(lambda: read_profile(manifest("a", mode="Shadow", extenders=extenders)))
    assert found == {"spec.extenders": "are not called in mode Shadow: remove them"}
    assert read_profile(manifest("a", mode="Active", extenders=extenders)).spec.extenders


def test_a_profile_is_written_as_it_was_read(manifest: Manifest) -> None:
    spec = {
        "match": {"precedence": 0, "podSelector": {"matchLabels": {"a": "b"}}},
        "percentageOfNodesToScore": 0,
        "plugins": {"preBind": {"disabled": [{"name": "*"}]}, "score": {}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"x": {"y": [1, 2]}}}],
        "extenders": [{"urlPrefix": "http://a", "httpTimeout": "1m30s"}],
        "preemption": {"minRuntimeSeconds": 5, "delaySeconds": 60},
    }
    assert read_profile(manifest("a", **spec)).manifest() == {
        "apiVersion": "scheduling.mooring.dev/v1alpha1",
        "kind": "SchedulingProfile",
        "metadata": {"name": "a"},
        "spec": spec,
    }


@pytest.mark.parametrize("point", list(Point))
def test_the_plugins_of_every_point_are_found(point: Point, manifest: Manifest) -> None:
    document = manifest("a", plugins={point.value: {"disabled": [{"name": "*"}]}})
    plugins = read_profile(document).spec.plugins
    assert [p for p in Point if plugins.at(p) != PluginSet()] == [point]


def test_another_object_is_not_a_profile(mistakes: Mistakes) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    assert mistakes(lambda: read_profile(document)) == {
        "apiVersion": 'must be scheduling.mooring.dev/v1alpha1, got "v1"',
        "kind": 'must be SchedulingProfile, got "Pod"',
        "metadata.name": "is required",
    }


def test_a_profile_has_a_name(mistakes: Mistakes, manifest: Manifest) -> None:
    document = {**manifest(), "metadata": {"generateName": "a"}}
    assert mistakes(lambda: read_profile(document)) == {"metadata.name": "is required"}


def test_labels_and_annotations_of_a_profile_are_texts(
    mistakes: Mistakes, manifest: Manifest
) -> None:
    metadata = {"name": "mine", "labels": {"a.example/v": 1.0, "b": "c"}, "annotations": ["a"]}
    assert mistakes(lambda: read_profile({**manifest(), "metadata": metadata})) == {
        "metadata.labels[a.example/v]": "must be text (quote it)",
        "metadata.annotations": "must be an object",
    }


@pytest.mark.parametrize("name", ["Packed", "a_b", "-a", "a" * 254, 7, ["a"]])
def test_a_profiles_name_is_one_that_the_api_server_accepts(
    name: object, mistakes: Mistakes, manifest: Manifest
) -> None:
    document = {**manifest(percentageOfNodesToScore=101), "metadata": {"name": name}}
    found = mistakes(lambda: read_profile(document))
    assert [*found] == ["metadata.name", "spec.percentageOfNodesToScore"]
    assert found["metadata.name"].startswith("must be ")
