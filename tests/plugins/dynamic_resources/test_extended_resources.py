"""The claim that a pod's containers make; cases derived by hand from kube-scheduler 1.36.3."""

from collections.abc import Mapping
from typing import Any

import pytest

from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.model.resource_claims import parse_resource_claim
from mooring.plugins.dynamic_resources.extended_resources import (
    ExtendedResources,
    NewClaim,
    extended_resources_of,
    new_claim,
)
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.device_builders import device_claim, device_class

Raw = dict[str, Any]

GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu", NIC: "nic"}


def container(name: str, *, sidecar: bool = False, **amounts: Any) -> Raw:
    """Return a container; `gpu` and `nic` stand for the resources."""
    names = {"gpu": GPU, "nic": NIC}
    requests = {names.get(key, key): amount for key, amount in amounts.items()}
    raw: Raw = {"name": name, "resources": {"requests": requests}}
    return raw | ({"restartPolicy": "Always"} if sidecar else {})


def of(*containers: Raw, init: tuple[Raw, ...] = ()) -> Pod:
    return parse_pod(pod(spec={"containers": [*containers], "initContainers": [*init]}))


def claim_of(wanted: Pod, classes: Mapping[str, str] = CLASSES) -> NewClaim:
    found = new_claim(wanted, classes)
    assert found is not None
    return found


def requests_of(found: NewClaim) -> dict[str, tuple[str, int]]:
    return {
        each.name: (each.exactly.device_class, each.exactly.count)
        for each in found.claim.spec.requests
        if each.exactly is not None
    }


def test_each_container_has_a_request_for_each_resource() -> None:
    """Its number is the place of the resource among all that the container requests."""
    found = claim_of(of(container("a", cpu="1", gpu=2, nic=1), container("b", memory="1", gpu=1)))
    assert requests_of(found) == {
        "container-0-request-1": ("gpu", 2),
        "container-0-request-2": ("nic", 1),
        "container-1-request-0": ("gpu", 1),
    }
    assert found.mappings == (
        ("a", GPU, "container-0-request-1"),
        ("b", GPU, "container-1-request-0"),
        ("a", NIC, "container-0-request-2"),
    )


def test_a_request_of_zero_has_a_place_but_no_devices() -> None:
    found = claim_of(of(container("a", gpu=0, nic=1)))
    assert requests_of(found) == {"container-0-request-1": ("nic", 1)}


def test_requests_are_in_the_order_of_their_names_as_text() -> None:
    found = claim_of(of(*(container(f"c{i}", gpu=1) for i in range(12))))
    names = [*requests_of(found)]
    assert names[:4] == [
        "container-0-request-0",
        "container-1-request-0",
        "container-10-request-0",
        "container-11-request-0",
    ]
    assert [container for container, _, _ in found.mappings] == [f"c{i}" for i in range(12)]


def test_a_sidecar_keeps_its_devices_and_counts_among_the_init_containers() -> None:
    found = claim_of(of(container("app", gpu=1), init=(container("proxy", gpu=1, sidecar=True),)))
    assert requests_of(found) == {
        "container-0-request-0": ("gpu", 1),
        "container-1-request-0": ("gpu", 1),
    }


def test_an_init_container_uses_the_devices_of_containers_that_start_later() -> None:
    found = claim_of(
        of(container("a", gpu=1), container("b", gpu=2), init=(container("init", gpu=2),))
    )
    assert requests_of(found) == {
        "container-1-request-0": ("gpu", 1),
        "container-2-request-0": ("gpu", 2),
    }
    assert found.mappings[2:] == (
        ("init", GPU, "container-1-request-0"),
        ("init", GPU, "container-2-request-0"),
    )


def test_an_init_container_does_not_use_the_devices_of_an_earlier_sidecar() -> None:
    found = claim_of(
        of(
            container("app"),
            init=(container("proxy", gpu=3, sidecar=True), container("init", gpu=2)),
        )
    )
    assert requests_of(found) == {
        "container-0-request-0": ("gpu", 3),
        "container-1-request-0": ("gpu", 2),
    }


def test_of_what_init_containers_need_beyond_that_only_the_largest_is_a_request() -> None:
    init = (container("small", gpu=3), container("large", gpu=6), container("none", gpu=1))
    found = claim_of(of(container("app", gpu=2), init=init))
    assert requests_of(found) == {
        "container-1-request-0": ("gpu", 4),
        "container-3-request-0": ("gpu", 2),
    }
    assert found.mappings == (
        ("app", GPU, "container-3-request-0"),
        ("small", GPU, "container-3-request-0"),
        ("small", GPU, "container-1-request-0"),
        ("large", GPU, "container-3-request-0"),
        ("large", GPU, "container-1-request-0"),
        ("none", GPU, "container-3-request-0"),
    )


def test_of_equal_extra_needs_the_first_is_the_request() -> None:
    found = claim_of(of(container("app"), init=(container("a", gpu=2), container("b", gpu=2))))
    assert requests_of(found) == {"container-0-request-0": ("gpu", 2)}
    assert {request for _, _, request in found.mappings} == {"container-0-request-0"}


def test_without_resources_there_is_no_claim() -> None:
    assert new_claim(of(container("app", gpu=1)), {}) is None


def test_the_object_names_the_pod_as_its_controller() -> None:
    wanted = of(container("app", gpu=1))
    fields = claim_of(wanted, {GPU: "gpu"}).fields(wanted)
    assert fields == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": "web-extended-resources-",
            "namespace": "default",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "web",
                    "uid": uid_of("web"),
                    "controller": True,
                }
            ],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "container-0-request-0",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "allocationMode": "ExactCount",
                            "count": 1,
                        },
                    }
                ]
            }
        },
    }


def test_the_pods_status_says_which_request_stands_for_what() -> None:
    found = claim_of(of(container("app", gpu=1)), {GPU: "gpu"})
    created = parse_resource_claim(device_claim("web-extended-resources-x"))
    assert found.status_fields(created) == {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "web-extended-resources-x",
            "requestMappings": [
                {
                    "containerName": "app",
                    "resourceName": GPU,
                    "requestName": "container-0-request-0",
                }
            ],
        }
    }


# ---- Which resources a pod gets devices for

GPUS = device_class("gpu", extendedResourceName=GPU)


def resources(
    wanted: Raw, *objects: Raw, version: str = NEWEST.version
) -> ExtendedResources | None:
    view = ClusterView(cluster(*objects))
    return extended_resources_of(parse_pod(wanted), view, KUBERNETES_RULES[version])


@pytest.mark.parametrize(
    ("wanted", "objects"),
    [(pod(cpu="1"), (GPUS,)), (pod(requests={GPU: 1}), ()), (pod(requests={GPU: 0}), (GPUS,))],
)
def test_a_pod_without_resources_of_classes_has_none(wanted: Raw, objects: tuple[Raw, ...]) -> None:
    assert resources(wanted, *objects) is None


@pytest.mark.parametrize(("version", "known"), [("1.34", 0), ("1.35", 0), ("1.36", 1), ("1.37", 1)])
def test_classes_stand_for_resources_from_1_36_on(version: str, known: int) -> None:
    assert (resources(pod(requests={GPU: 1}), GPUS, version=version) is not None) == bool(known)


def test_every_class_stands_for_a_resource_of_its_name() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    found = resources(pod(requests={name: 1}), device_class("gpu"))
    assert found is not None
    assert found.classes == {name: "gpu"}


def test_a_node_that_offers_a_resource_itself_needs_no_devices_for_it() -> None:
    found = resources(
        pod(requests={GPU: 1, NIC: 1}), GPUS, device_class("nic", extendedResourceName=NIC)
    )
    assert found is not None
    some = found.new_claim(parse_node(node("n", resources={NIC: 4, GPU: 0})))
    assert some is not None
    assert requests_of(some) == {"container-0-request-0": ("gpu", 1)}
    assert found.new_claim(parse_node(node("n", resources={GPU: 1, NIC: 1}))) is None


@pytest.mark.parametrize("other", ["example.com/fpga", "deviceclass.resource.kubernetes.io/no"])
def test_a_node_must_list_the_resources_without_a_class(other: str) -> None:
    found = resources(pod(requests={GPU: 1, other: 1, "x.kubernetes.io/y": 1}), GPUS)
    assert found is not None
    assert found.rejection(parse_node(node("n"))) == "cannot fit resource"
    assert found.rejection(parse_node(node("n", resources={other: 1}))) is None


def test_a_claim_of_an_earlier_attempt_rejects_every_node() -> None:
    left = device_claim("left", owner="web")
    left["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    found = resources(pod(requests={GPU: 1}), GPUS, left)
    assert found is not None
    assert found.rejection(parse_node(node("n"))) == "cannot schedule extended resource claim"
