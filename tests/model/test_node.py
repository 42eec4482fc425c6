import json
from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.model.node import REGION, ZONE, normalized_image, parse_node
from mooring.model.taints import Taint
from mooring.testing.builders import node

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"


def test_amounts_are_millicores_bytes_and_counts_and_pods_are_separate() -> None:
    parsed = parse_node(
        node("n1", cpu="1500m", memory="1Ki", pods=7, resources={"example.com/gpu": 2})
    )
    assert parsed.allocatable == {"cpu": 1500, "memory": 1024, "example.com/gpu": 2}
    assert parsed.pod_slots == 7


def test_a_node_has_its_labels_annotations_taints_and_cordon() -> None:
    parsed = parse_node(
        node(
            "n1",
            labels={"disk": "ssd"},
            annotations={"example.com/a": "b"},
            taints=["dedicated=gpu:NoSchedule"],
            unschedulable=True,
        )
    )
    assert parsed.name == "n1"
    assert parsed.labels["disk"] == "ssd"
    assert parsed.annotations == {"example.com/a": "b"}
    assert parsed.taints == (Taint("dedicated", "gpu", "NoSchedule"),)
    assert parsed.unschedulable


def test_conditions_are_kept_by_type() -> None:
    parsed = parse_node(node("n1", conditions={"MemoryPressure": "True"}))
    assert parsed.conditions == {"Ready": "True", "MemoryPressure": "True"}


def test_a_node_with_only_a_name_has_no_resources() -> None:
    parsed = parse_node({"metadata": {"name": "n1"}})
    assert (parsed.allocatable, parsed.pod_slots) == ({}, 0)
    assert (parsed.labels, parsed.taints, parsed.images, parsed.conditions) == ({}, (), {}, {})
    assert not parsed.unschedulable


def test_an_image_is_found_by_each_of_its_names() -> None:
    digest = f"registry.example/app@sha256:{'0' * 64}"
    images = [{"names": [digest, "registry.example/app:v1"], "sizeBytes": 5}, {"names": None}]
    assert parse_node(node("n1", status={"images": images})).images == {
        digest: 5,
        "registry.example/app:v1": 5,
    }


def test_a_name_that_a_node_reports_without_a_tag_stays_as_it_is() -> None:
    """As in kube-scheduler, the name differs from the pod's `app:latest`."""
    images = [{"names": ["app"], "sizeBytes": 5}, {"names": ["app:latest"], "sizeBytes": 6}]
    parsed = parse_node(node("n1", status={"images": images}))
    assert parsed.images == {"app": 5, "app:latest": 6}


def test_of_two_images_of_one_name_on_a_node_the_first_counts() -> None:
    images = [{"names": ["app:v1"], "sizeBytes": 5}, {"names": ["app:v1"], "sizeBytes": 6}]
    assert parse_node(node("n1", status={"images": images})).images == {"app:v1": 5}


@pytest.mark.parametrize(
    ("image", "normalized"),
    [
        ("app", "app:latest"),
        ("app:v1", "app:v1"),
        ("host:5000/app", "host:5000/app:latest"),
        ("host:5000/app:v1", "host:5000/app:v1"),
        ("host/app@sha256:00", "host/app@sha256:00"),
    ],
)
def test_an_image_without_a_tag_is_the_latest(image: str, normalized: str) -> None:
    assert normalized_image(image) == normalized


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({}, ("", "")),
        ({ZONE: "a"}, ("", "a")),
        ({REGION: "r", ZONE: "a"}, ("r", "a")),
        ({REGION: "r", ZONE: "a", BETA_REGION: "old", BETA_ZONE: "b"}, ("old", "b")),
        ({ZONE: "a", BETA_ZONE: ""}, ("", "")),
    ],
)
def test_a_nodes_zone_comes_from_the_beta_labels_where_they_exist(
    labels: dict[str, str], key: tuple[str, str]
) -> None:
    assert parse_node(node("n1", labels=labels)).zone_key == key


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "Node (no name) metadata: is missing; it must be an object"),
        (
            {"metadata": {}},
            "Node (no name) metadata.name: is missing; every object needs a name",
        ),
        ({"metadata": []}, "Node (no name) metadata: must be an object, not []"),
        (
            {"metadata": {"name": "n1"}, "spec": "x"},
            "Node n1 spec: must be an object, not 'x'",
        ),
        (
            {"metadata": {"name": "n1"}, "spec": {"taints": {}}},
            "Node n1 spec.taints: must be a list, not {}",
        ),
        (
            {"metadata": {"name": "n1"}, "spec": {"unschedulable": "yes"}},
            "Node n1 spec.unschedulable: must be true or false, not 'yes'",
        ),
        (
            {"metadata": {"name": "n1"}, "status": {"images": [{"names": "app"}]}},
            "Node n1 status.images[0].names: must be a list, not 'app'",
        ),
        (
            {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": None, "status": 1}]}},
            "Node n1 status.conditions[0].status: must be a string, not 1",
        ),
    ],
)
def test_a_malformed_node_raises_an_error_with_its_field(raw: Any, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_node(raw)
    assert str(caught.value) == message


def test_a_malformed_amount_raises_an_error_with_its_field() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_node(node("n1", memory="lots"))
    assert caught.value.where == "Node n1 status.allocatable.memory"


def avoiding(annotation: str) -> frozenset[tuple[str, str]]:
    annotations = {"scheduler.alpha.kubernetes.io/preferAvoidPods": annotation}
    return parse_node(node("n1", annotations=annotations)).avoids


def test_the_annotation_names_controllers_whose_pods_to_avoid() -> None:
    controller = {"apiVersion": "v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    entries = [{"podSignature": {"podController": controller}, "reason": "unhealthy"}]
    assert avoiding(json.dumps({"preferAvoidPods": entries})) == {("ReplicaSet", "1")}
    assert parse_node(node("n1")).avoids == frozenset()


@pytest.mark.parametrize(
    "annotation",
    ["", "{", "[]", "3", "{}", '{"preferAvoidPods": {}}', '{"preferAvoidPods": [{}, 1]}'],
)
def test_an_invalid_annotation_avoids_no_controller(annotation: str) -> None:
    assert avoiding(annotation) == frozenset()
