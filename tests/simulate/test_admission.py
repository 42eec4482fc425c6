from typing import Any

import pytest

from mooring.model.errors import ManifestError
from mooring.model.events import Kind
from mooring.model.workloads import parse_priority_class
from mooring.simulate.admission import Admission, as_stored
from mooring.testing.builders import api_object, priority_class
from mooring.testing.storage_builders import pv


def manifest(**spec: Any) -> dict[str, Any]:
    """A raw pod as a user writes it."""
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [], **spec}}


def admitted(raw: dict[str, Any], *objects: dict[str, Any]) -> dict[str, Any]:
    classes = [parse_priority_class(o) for o in objects if o["kind"] == "PriorityClass"]
    runtimes = [o for o in objects if o["kind"] == "RuntimeClass"]
    return Admission(classes, runtimes).pod(raw)


def test_a_pod_without_a_uid_gets_one_that_is_always_the_same() -> None:
    assert admitted(manifest())["metadata"]["uid"] == "default/web"


def test_a_pod_gets_the_priority_and_the_policy_of_its_class() -> None:
    spec = admitted(manifest(priorityClassName="high"), priority_class("high", 7, policy="Never"))[
        "spec"
    ]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")


@pytest.mark.parametrize(
    ("name", "value"),
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)],
)
def test_the_system_priority_classes_always_exist(name: str, value: int) -> None:
    assert admitted(manifest(priorityClassName=name))["spec"]["priority"] == value


def test_a_pod_without_a_class_gets_the_global_default_with_the_lowest_value() -> None:
    spec = admitted(
        manifest(),
        priority_class("some", 5, default=True),
        priority_class("less", 3, default=True),
        priority_class("none", 1),
    )["spec"]
    assert spec["priority"] == 3


def test_without_any_default_a_pod_has_no_priority() -> None:
    assert "priority" not in admitted(manifest(), priority_class("some", 5))["spec"]


def test_a_priority_in_the_object_is_kept() -> None:
    raw = manifest(priority=1, priorityClassName="gone")
    assert admitted(raw)["spec"]["priority"] == 1


def test_an_unknown_class_is_an_error_that_names_pod_and_field() -> None:
    with pytest.raises(ManifestError) as caught:
        admitted(manifest(priorityClassName="high"))
    assert str(caught.value) == (
        'Pod default/web spec.priorityClassName: there is no PriorityClass "high" in the input'
    )


def test_a_pod_gets_the_overhead_of_its_runtime_class_unless_it_has_one() -> None:
    heavy = api_object("RuntimeClass", "heavy", overhead={"podFixed": {"cpu": "250m"}})
    assert admitted(manifest(runtimeClassName="heavy"), heavy)["spec"]["overhead"] == {
        "cpu": "250m"
    }
    own = manifest(runtimeClassName="heavy", overhead={"cpu": "1m"})
    assert admitted(own, heavy)["spec"]["overhead"] == {"cpu": "1m"}


def test_the_given_object_is_not_modified() -> None:
    raw = manifest(priorityClassName="system-node-critical")
    admitted(raw)
    assert raw == manifest(priorityClassName="system-node-critical")


def test_a_namespace_carries_its_name_as_a_label() -> None:
    stored = as_stored(Kind.NAMESPACE, {"metadata": {"name": "a", "labels": {"env": "prod"}}})
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a", "env": "prod"}


def test_a_volume_without_a_phase_is_available_unless_it_has_a_claim() -> None:
    free, taken = pv("v"), pv("v", claim="default/data")
    del free["status"], taken["status"]
    assert as_stored(Kind.PERSISTENT_VOLUME, free)["status"]["phase"] == "Available"
    assert as_stored(Kind.PERSISTENT_VOLUME, taken)["status"]["phase"] == "Bound"
    lost = pv("v") | {"status": {"phase": "Released"}}
    assert as_stored(Kind.PERSISTENT_VOLUME, lost) == lost
