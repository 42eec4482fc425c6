from device_builders import device_class
from mooring.claims.model.device_classes import parse_device_class
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster

GPU = "example.com/gpu"


def class_of(state: ClusterState, resource: str) -> str | None:
    found = ClusterView(state).dynamic_resources.classes.of_resource(resource)
    return found.name if found is not None else None


def test_every_class_has_an_extended_resource_of_its_name() -> None:
    state = cluster(device_class("gpu"))
    assert class_of(state, "deviceclass.resource.kubernetes.io/gpu") == "gpu"
    assert class_of(state, "deviceclass.resource.kubernetes.io/other") is None
    assert class_of(state, GPU) is None


def test_of_classes_with_one_extended_resource_the_newest_counts_then_the_first_by_name() -> None:
    new = device_class("a", extendedResourceName=GPU)
    new["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    old = device_class("b", extendedResourceName=GPU)
    state = cluster(old, new, device_class("c", extendedResourceName=GPU))
    assert class_of(state, GPU) == "a"
    state.delete(Kind.DEVICE_CLASS, "a")
    assert class_of(state, GPU) == "b"


def test_a_class_may_change_its_extended_resource() -> None:
    state = cluster(device_class("gpu", extendedResourceName=GPU))
    version = ClusterView(state).dynamic_resources.classes.version
    changed = parse_device_class(device_class("gpu", extendedResourceName="example.com/other"))
    state.put(Kind.DEVICE_CLASS, "gpu", changed)
    assert (class_of(state, GPU), class_of(state, "example.com/other")) == (None, "gpu")
    state.put(Kind.DEVICE_CLASS, "gpu", changed)
    assert ClusterView(state).dynamic_resources.classes.version == version + 1
