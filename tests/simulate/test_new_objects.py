"""New objects become what the API server and the controllers would make of them."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.new_objects import (
    NewObjects,
    RejectedPod,
    Written,
    display_key,
    makes_pods,
    read_all,
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
        Written().checked(wrong)
    lines = str(caught.value).splitlines()
    assert lines[0] == 'new.yaml: Pod default/web spec.x: unknown field "x"'
    assert len(lines) == 3
    with pytest.raises(InputError) as caught:
        Written(2).checked(wrong)
    assert str(caught.value).splitlines() == lines[:2]
    right = manifest(written("web"))
    assert Written().checked(right) == right


def test_the_mistakes_of_several_objects_are_told_at_once_up_to_a_number() -> None:
    wrong = [manifest(written(f"p{number}", x=1)) for number in range(30)]
    with pytest.raises(InputError) as caught:
        read_all([*wrong[:2], manifest(written("web")), wrong[2]], Written().checked)
    names = [line.split()[2] for line in str(caught.value).splitlines()]
    assert names == ["default/p0", "default/p1", "default/p2"]
    with pytest.raises(InputError) as caught:
        read_all(wrong, Written().checked)
    assert len(str(caught.value).splitlines()) == 20


def test_objects_with_generate_name_get_names_that_are_the_same_in_every_run() -> None:
    def named() -> list[str]:
        raw = written("web")
        raw["metadata"] = {"generateName": "web-"}
        taken = Written()
        return [taken.checked(manifest(raw)).raw["metadata"]["name"] for _ in range(9)]

    names = named()
    assert len({*names}) == 9
    assert all(name.startswith("web-") and len(name) == len("web-") + 5 for name in names)
    assert names == named()


def test_pods_and_controllers_make_pods_and_other_objects_do_not() -> None:
    assert makes_pods(manifest(pod("web")))
    assert makes_pods(manifest(daemon_set()))
    assert not makes_pods(manifest(api_object("Service", "web", spec={})))


def test_an_object_without_a_namespace_is_called_by_its_name() -> None:
    assert display_key(manifest(node("n1"))) == "Node n1"
    of_longhorn = {**node("n1"), "apiVersion": "longhorn.io/v1beta2"}
    assert display_key(manifest(of_longhorn)) == "Node default/n1"


def test_an_object_without_a_name_is_called_so() -> None:
    assert display_key(manifest({"kind": "Pod"})) == "Pod default/(no name)"
