from typing import Any

import pytest

from mooring.framework.registry import Registry
from mooring.model.events import Kind
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.profiles import load_profiles
from mooring.testing.builders import api_object, node, pod, priority_class, service

REGISTRY = Registry(SHIPPED, {})


def profile(name: str) -> dict[str, Any]:
    raw = api_object("SchedulingProfile", name)
    return raw | {"apiVersion": "scheduling.mooring.dev/v1alpha1"}


def numbered(*objects: dict[str, Any]) -> list[Manifest]:
    return [Manifest(f"file, document {i}", raw) for i, raw in enumerate(objects, start=1)]


def inputs(*objects: dict[str, Any]) -> Inputs:
    return inputs_of(numbered(*objects), REGISTRY)


def test_pods_with_a_node_are_in_the_state_and_pods_without_one_are_pending() -> None:
    found = inputs(pod("waits"), node("n1"), pod("runs", cpu="1", node="n1"))
    assert [p.key for p in found.pending] == ["default/waits"]
    assert [placed.pod.key for placed in found.state.pods] == ["default/runs"]


@pytest.mark.parametrize("ended", [pod(phase="Succeeded"), pod(terminating=True)])
def test_a_finished_or_terminating_pod_is_not_pending(ended: dict[str, Any]) -> None:
    found = inputs(ended)
    assert found.pending == ()


def test_objects_may_come_in_any_order() -> None:
    raw = pod()
    del raw["spec"]["priority"]
    raw["spec"]["priorityClassName"] = "high"
    (waiting,) = inputs(raw, priority_class("high", 7)).pending
    assert waiting.shape.priority == 7


def test_other_objects_are_in_the_state_for_plugins_to_read() -> None:
    found = inputs(service("front", {"app": "web"}))
    assert [*found.state.objects.of(Kind.SERVICE)] == ["default/front"]


def test_kinds_that_no_decision_reads_are_counted_by_kind_and_group() -> None:
    deployment = api_object("Deployment", "web") | {"apiVersion": "apps/v1"}
    found = inputs(deployment, deployment, api_object("ConfigMap", "c"))
    assert found.ignored == {"Deployment.apps": 2, "ConfigMap": 1}


def test_a_kind_of_another_group_with_a_known_name_is_not_mistaken_for_it() -> None:
    knative = service("front", {"app": "web"}) | {"apiVersion": "serving.knative.dev/v1"}
    found = inputs(knative)
    assert found.ignored == {"Service.serving.knative.dev": 1}
    assert not found.state.objects.of(Kind.SERVICE)


def test_profiles_come_from_the_objects_unless_others_are_given() -> None:
    objects = numbered(profile("a"))
    others = load_profiles(numbered(profile("b")), REGISTRY)
    assert [p.profile.name for p in inputs_of(objects, REGISTRY).profiles] == ["a"]
    assert [p.profile.name for p in inputs_of(objects, REGISTRY, others).profiles] == ["b"]


@pytest.mark.parametrize(
    ("objects", "line"),
    [
        (
            [node("n1"), pod("web", cpu="1x")],
            "file, document 2: Pod default/web spec.containers[0].resources.requests.cpu: '1x' is",
        ),
        ([node("")], "file, document 1: metadata.name: is missing"),
        (
            [pod("web"), node("web"), pod("web")],
            "file, document 3: Pod default/web: is given already in file, document 1",
        ),
        ([{"kind": "Pod", "apiVersion": "v1", "metadata": 3}], "file, document 1: "),
    ],
)
def test_bad_input_is_one_line_with_file_object_and_field(
    objects: list[dict[str, Any]], line: str
) -> None:
    with pytest.raises(InputError) as caught:
        inputs(*objects)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
