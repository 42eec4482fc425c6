from typing import Any

import pytest

from mooring.claims.model.resource_claims import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    Allocation,
    AllocationConfig,
    ClaimConfig,
    Constraint,
    ConsumerReference,
    DeviceCondition,
    DeviceId,
    DeviceResult,
    DeviceStatus,
    DeviceToleration,
    ExactRequest,
    OpaqueConfig,
    ResourceClaim,
    allocation_fields,
    parse_resource_claim,
    resource_claim_template_key,
    unreadable_claim,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import parse_quantity
from mooring.model.selectors import NodeSelector, NodeSelectorTerm, Requirement
from mooring.model.taints import Toleration

ALLOCATION: dict[str, Any] = {
    "devices": {
        "results": [
            {
                "request": "gpu/big",
                "driver": "d",
                "pool": "p",
                "device": "gpu-0",
                "adminAccess": False,
                "tolerations": [{"key": "sick", "operator": "Exists", "tolerationSeconds": 30}],
                "bindingConditions": ["Attached"],
                "bindingFailureConditions": ["Failed"],
                "shareID": "s-1",
                "consumedCapacity": {"memory": "2Gi"},
            },
            {"request": "nic", "driver": "d", "pool": "p", "device": "nic-0"},
        ],
        "config": [
            {
                "source": "FromClass",
                "requests": ["gpu/big"],
                "opaque": {"driver": "d", "parameters": {"a": [1]}},
            },
            {"source": "FromClaim", "opaque": {"driver": "e", "parameters": {}}},
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ]
    },
}


def claim(
    devices: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> ResourceClaim:
    named = {"name": "c", "namespace": "team-a"} | metadata
    return parse_resource_claim(
        {"metadata": named, "spec": {"devices": devices or {}}, "status": status}
    )


def requested(**fields: Any) -> ExactRequest:
    exactly = claim({"requests": [{"name": "r", "exactly": fields}]}).spec.requests[0].exactly
    assert exactly is not None
    return exactly


def test_a_claim_has_an_identity_an_owner_and_finalizers() -> None:
    parsed = claim(
        uid="u",
        resourceVersion="7",
        deletionTimestamp="2026-01-01T00:00:00Z",
        finalizers=[FINALIZER],
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        ownerReferences=[{"uid": "other"}, {"uid": "pod-1", "controller": True}],
    )
    assert (parsed.key, parsed.uid, parsed.resource_version) == ("team-a/c", "u", "7")
    assert (parsed.deleting, parsed.finalizers) == (True, (FINALIZER,))
    assert (parsed.controller_uid, parsed.for_extended_resources) == ("pod-1", True)


def test_a_claim_without_fields_is_not_allocated_or_reserved() -> None:
    bare = claim()
    assert (bare.allocation, bare.reserved_for, bare.device_statuses) == (None, (), ())
    assert not bare.for_extended_resources
    assert bare.controller_uid == ""


def test_a_request_has_all_fields_that_allocation_reads() -> None:
    toleration = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    assert requested(
        deviceClassName="gpu",
        selectors=[{"cel": {"expression": "device.driver == 'd'"}}, {}],
        allocationMode="All",
        adminAccess=True,
        tolerations=[toleration | {"tolerationSeconds": 5}],
        capacity={"requests": {"memory": "10Gi"}},
    ) == ExactRequest(
        name="r",
        device_class="gpu",
        selectors=("device.driver == 'd'", None),
        mode="All",
        count=0,
        admin_access=True,
        tolerations=(DeviceToleration(Toleration("k", "Equal", "v", "NoSchedule"), 5),),
        capacity={"memory": parse_quantity("10Gi")},
    )


def test_a_request_is_for_one_device_unless_it_says_how_many() -> None:
    assert (requested().mode, requested().count) == ("ExactCount", 1)
    assert requested(count=3).count == 3


def test_a_request_may_be_for_the_first_available_of_several() -> None:
    subs = [{"name": "big", "deviceClassName": "gpu", "count": 2}, {"name": "small"}]
    (request,) = claim({"requests": [{"name": "r", "firstAvailable": subs}]}).spec.requests
    assert request.exactly is None
    assert [(sub.name, sub.count) for sub in request.first_available] == [("big", 2), ("small", 1)]


def test_constraints_and_configuration_name_requests() -> None:
    spec = claim(
        {
            "constraints": [
                {"requests": ["a"], "matchAttribute": "d/numa"},
                {"distinctAttribute": "d/card"},
                {},
            ],
            "config": [
                {"requests": ["a"], "opaque": {"driver": "d", "parameters": {"x": 1}}},
                {},
            ],
        }
    ).spec
    assert spec.constraints == (
        Constraint(("a",), "d/numa", None),
        Constraint((), None, "d/card"),
        Constraint((), None, None),
    )
    assert spec.config == (ClaimConfig(("a",), OpaqueConfig("d", {"x": 1})), ClaimConfig((), None))


def test_a_claim_has_consumers_and_the_conditions_of_its_devices() -> None:
    conditions = [{"type": "Attached", "status": "True", "reason": "Done", "message": "ok"}]
    device = {"driver": "d", "pool": "p", "device": "gpu-0", "conditions": conditions}
    parsed = claim(
        status={
            "reservedFor": [{"resource": "pods", "name": "web", "uid": "pod-1"}],
            "devices": [device],
        }
    )
    assert parsed.reserved_for == (ConsumerReference("", "pods", "web", "pod-1"),)
    assert parsed.device_statuses == (
        DeviceStatus(
            DeviceId("d", "p", "gpu-0"), "", (DeviceCondition("Attached", "True", "Done", "ok"),)
        ),
    )


def test_an_allocation_has_devices_configuration_and_nodes() -> None:
    parsed = claim(
        status={"allocation": ALLOCATION | {"allocationTimestamp": "1970-01-01T00:01:00Z"}}
    )
    node = Requirement("metadata.name", "In", ("n1",))
    assert parsed.allocation == Allocation(
        results=(
            DeviceResult(
                request="gpu/big",
                device=DeviceId("d", "p", "gpu-0"),
                admin_access=False,
                tolerations=(DeviceToleration(Toleration("sick", "Exists", "", ""), 30),),
                binding_conditions=("Attached",),
                binding_failure_conditions=("Failed",),
                share_id="s-1",
                consumed={"memory": parse_quantity("2Gi")},
            ),
            DeviceResult("nic", DeviceId("d", "p", "nic-0")),
        ),
        config=(
            AllocationConfig("FromClass", ("gpu/big",), OpaqueConfig("d", {"a": [1]})),
            AllocationConfig("FromClaim", (), OpaqueConfig("e", {})),
        ),
        node_selector=NodeSelector(
            (
                NodeSelectorTerm(fields=(node,)),
                NodeSelectorTerm(expressions=(Requirement("zone", "Exists"),)),
            )
        ),
        time=60.0,
    )


def test_an_allocation_is_written_as_it_was_read() -> None:
    parsed = claim(status={"allocation": ALLOCATION}).allocation
    assert parsed is not None
    assert allocation_fields(parsed) == ALLOCATION


def test_a_template_is_read_whole_for_its_key() -> None:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    raw = {
        "metadata": {"name": "t", "namespace": "team-a"},
        "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": spec},
    }
    assert resource_claim_template_key(raw) == "team-a/t"
    for path, malformed in (
        ("spec.metadata.labels", {"metadata": {"labels": "a"}, "spec": spec}),
        ("spec.metadata.annotations", {"metadata": {"annotations": ["c"]}, "spec": spec}),
        ("spec.spec.devices.requests", {"spec": {"devices": {"requests": "two"}}}),
    ):
        with pytest.raises(ManifestError, match=f"^ResourceClaimTemplate team-a/t {path}: "):
            resource_claim_template_key(raw | {"spec": malformed})


def test_a_malformed_claim_is_an_error_with_its_path() -> None:
    with pytest.raises(ManifestError) as caught:
        requested(count="3")
    assert str(caught.value) == (
        "ResourceClaim team-a/c spec.devices.requests[0].exactly.count: "
        "must be a whole number, not '3'"
    )


def test_of_a_claim_that_is_malformed_everything_else_is_read() -> None:
    raw: dict[str, Any] = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": "two"}},
        "status": {
            "allocation": ALLOCATION,
            "reservedFor": [{"resource": "pods", "name": "web", "uid": "p"}],
        },
    }
    with pytest.raises(ManifestError) as refused:
        parse_resource_claim(raw)
    found = unreadable_claim(raw, str(refused.value), None)
    assert (found.key, found.uid, found.finalizers) == ("ns/c", "u", (FINALIZER,))
    assert found.malformed.startswith("ResourceClaim ns/c spec.devices.requests: ")
    assert found.allocation is not None
    assert [(r.device.device, r.share_id) for r in found.allocation.results] == [
        ("gpu-0", ""),
        ("nic-0", ""),
    ]
    assert [consumer.uid for consumer in found.reserved_for] == ["p"]


@pytest.mark.parametrize(("uid", "devices"), [("u", ["gpu-0", "nic-0"]), ("another", [])])
def test_a_malformed_claim_keeps_the_devices_it_had_but_not_those_of_another_of_its_name(
    uid: str, devices: list[str]
) -> None:
    metadata = {"name": "c", "namespace": "ns", "uid": "u"}
    known = parse_resource_claim({"metadata": metadata, "status": {"allocation": ALLOCATION}})
    again = {"metadata": metadata | {"uid": uid}, "status": {"allocation": "?"}}
    found = unreadable_claim(again, "?", known).allocation
    assert found is not None
    assert [result.device.device for result in found.results] == devices


def test_a_malformed_claim_without_an_allocation_has_no_devices() -> None:
    raw: dict[str, Any] = {"metadata": {"name": "c", "uid": "u"}, "spec": []}
    raw["status"] = {"reservedFor": 1}
    found = unreadable_claim(raw, "?", None)
    assert (found.allocation, found.reserved_for) == (None, ())
    raw["status"] = None
    assert unreadable_claim(raw, "?", None).allocation is None


def test_claims_of_a_template_share_their_spec() -> None:
    wanted = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    one, other = claim(wanted, uid="1"), claim(wanted, uid="2")
    assert one.spec is other.spec
    assert claim({"requests": [{"name": "r"}]}).spec != one.spec


def test_a_spec_that_cannot_be_written_as_json_is_read_all_the_same() -> None:
    assert claim({"requests": [{"name": "\ud800"}]}).spec.requests[0].name == "\ud800"
