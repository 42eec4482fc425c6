from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from mooring.simulate.kinds import READ, as_read


def raw(api_version: str | None, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    ("api_version", "kind", "right"),
    [
        ("batch/v1beta1", "CronJob", "batch/v1"),
        ("scheduling.x-k8s.io/v1beta7", "PodGroup", "scheduling.x-k8s.io/v1alpha1"),
        ("policy/v1beta1", "PodDisruptionBudget", "policy/v1"),
        ("scheduling.mooring.dev/v1", "Queue", "scheduling.mooring.dev/v1alpha1"),
        ("storage.k8s.io/v1beta1", "StorageClass", "storage.k8s.io/v1"),
        ("resource.k8s.io/v1alpha3", "DeviceTaintRule", "resource.k8s.io/v1 or resource.k8s.io/v1"),
        ("v2", "Pod", "v1"),
        ("v1", "Deployment", "apps/v1"),
        ("extensions/v1beta1", "Deployment", "apps/v1"),
        ("apps/v1", "Job", "batch/v1"),
    ],
)
def test_a_version_that_is_not_read_is_an_error(api_version: str, kind: str, right: str) -> None:
    with pytest.raises(ManifestError, match=f"{api_version} is not read for {kind}; write {right}"):
        as_read(raw(api_version, kind))


@pytest.mark.parametrize("api_version", [None, "", 1])
def test_an_object_without_an_api_version_is_an_error(api_version: Any) -> None:
    with pytest.raises(ManifestError, match="apiVersion: is required beside kind: Pod"):
        as_read(raw(api_version, "Pod"))


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("longhorn.io/v1beta2", "Node"),
        ("serving.knative.dev/v1", "Service"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("scheduling.volcano.sh/v1beta1", "Queue"),
        ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"),
        ("v1", "ConfigMap"),
    ],
)
def test_an_object_of_a_kind_that_is_not_read_stays_as_it_is(api_version: str, kind: str) -> None:
    given = raw(api_version, kind)
    assert as_read(given) is given


def test_every_version_that_is_read_is_taken_and_stays_the_same_when_read_again() -> None:
    for resource in READ:
        once = as_read(raw(resource.api_version, resource.kind))
        assert as_read(once) == once


def test_what_a_device_of_v1beta1_has_in_basic_is_its_own() -> None:
    basic = {"attributes": {"model": {"string": "large"}}, "taints": [{"key": "a"}]}
    devices = [{"name": "gpu-0", "basic": basic}, {"name": "gpu-1", "basic": None}]
    found = as_read(raw("resource.k8s.io/v1beta1", "ResourceSlice", driver="a", devices=devices))
    assert found["apiVersion"] == "resource.k8s.io/v1"
    assert found["spec"] == {
        "driver": "a",
        "devices": [{"name": "gpu-0", **basic}, {"name": "gpu-1"}],
    }


def test_what_a_request_of_v1beta1_wants_is_in_exactly_unless_it_has_alternatives() -> None:
    alternatives = [{"name": "large", "deviceClassName": "a"}]
    requests = [
        {"name": "one", "deviceClassName": "a", "count": 2, "adminAccess": None},
        {"name": "other", "firstAvailable": alternatives},
    ]
    devices = {"requests": requests, "constraints": [{"matchAttribute": "a"}]}
    converted = {
        **devices,
        "requests": [
            {"name": "one", "exactly": {"deviceClassName": "a", "count": 2}},
            {"name": "other", "firstAvailable": alternatives},
        ],
    }
    claim = as_read(raw("resource.k8s.io/v1beta1", "ResourceClaim", devices=devices))
    assert claim["spec"] == {"devices": converted}
    template = raw("resource.k8s.io/v1beta1", "ResourceClaimTemplate", spec={"devices": devices})
    assert as_read(template)["spec"] == {"spec": {"devices": converted}}


def test_a_malformed_object_of_v1beta1_is_an_error_with_its_field() -> None:
    with pytest.raises(ManifestError, match=r"spec\.devices\[0\]\.basic"):
        as_read(raw("resource.k8s.io/v1beta1", "ResourceSlice", devices=[{"basic": "a"}]))
    spec = {"devices": {"requests": "a"}}
    with pytest.raises(ManifestError, match=r"spec\.spec\.devices\.requests"):
        as_read(raw("resource.k8s.io/v1beta1", "ResourceClaimTemplate", spec=spec))
