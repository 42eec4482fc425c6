"""What the API server and the controllers make of new objects, wherever they are read."""

from typing import Any

import pytest

from mooring.model.errors import ManifestError
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.new_objects import (
    NewObjects,
    RejectedPod,
    check_fields,
    display_key,
    makes_pods,
)
from mooring.testing.builders import api_object, cluster, node, pod, priority_class


def manifest(raw: dict[str, Any]) -> Manifest:
    return Manifest("new.yaml", raw)


def written(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod as a user writes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "x"}], **spec},
    }


def daemon_set() -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "logs"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "logs"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "logs"},
        "spec": spec,
    }


def test_a_pod_is_made_as_it_is_and_a_controllers_pods_by_its_template() -> None:
    new_objects = NewObjects(cluster(node("a"), node("b")))
    single = manifest(written("web"))
    assert [*new_objects.expand(single)] == [single]
    made = [*new_objects.expand(manifest(daemon_set()))]
    assert [each.kind for each in made] == ["Pod", "Pod"]
    assert made[0].source == "new.yaml, DaemonSet logs"


def test_pods_are_filled_in_from_the_clusters_priority_classes() -> None:
    new_objects = NewObjects(cluster(priority_class("high", 100)))
    admitted = new_objects.admit(manifest(written("web", priorityClassName="high")))
    assert isinstance(admitted, dict)
    assert admitted["spec"]["priority"] == 100


def test_a_pod_that_would_not_be_stored_is_rejected_with_its_controller() -> None:
    raw = written("web", priorityClassName="none")
    owner = {"kind": "Job", "name": "batch", "uid": "batch", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    assert NewObjects(cluster()).admit(manifest(raw)) == RejectedPod(
        "default/web",
        "Job default/batch",
        'pods "web" is forbidden: no PriorityClass with name none was found',
    )


def test_a_mistake_in_a_field_comes_before_a_rejection() -> None:
    requests = {"resources": {"requests": {"cpu": "no number"}}, "name": "main", "image": "x"}
    raw = written("web", priorityClassName="none", containers=[requests])
    with pytest.raises(ManifestError, match="no number"):
        NewObjects(cluster()).admit(manifest(raw))


def test_every_mistake_in_the_fields_is_told_with_its_place_or_only_so_many() -> None:
    wrong = manifest(written("web", x=1, y=2, z=3))
    with pytest.raises(InputError) as caught:
        check_fields(wrong)
    lines = str(caught.value).splitlines()
    assert lines[0] == 'new.yaml: Pod default/web spec.x: unknown field "x"'
    assert len(lines) == 3
    with pytest.raises(InputError) as caught:
        check_fields(wrong, 2)
    assert str(caught.value).splitlines() == lines[:2]
    check_fields(manifest(written("web")))


def test_pods_and_controllers_make_pods_and_other_objects_do_not() -> None:
    assert makes_pods(manifest(pod("web")))
    assert makes_pods(manifest(daemon_set()))
    assert not makes_pods(manifest(api_object("Service", "web", spec={})))


def test_an_object_without_a_name_is_called_so() -> None:
    assert display_key(manifest({"kind": "Pod"})) == "Pod default/(no name)"
