"""Which extenders of a profile care for a pod."""

from typing import Any

from mooring.engine.extenders.answers import interested
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline


def names(raw: dict[str, Any], *extenders: dict[str, Any]) -> list[str]:
    return [e.name for e in interested(pipeline(extenders=list(extenders)), parse_pod(raw))]


def extender(name: str, *resources: str, **fields: Any) -> dict[str, Any]:
    managed = [{"name": resource} for resource in resources]
    return {"urlPrefix": f"http://{name}", "managedResources": managed, **fields}


def test_an_extender_without_managed_resources_cares_for_every_pod() -> None:
    assert names(pod("a"), extender("all")) == ["http://all"]


def test_an_extender_with_managed_resources_cares_for_pods_that_request_one_of_them() -> None:
    gpu, fpga = extender("gpu", "acme.io/gpu", "acme.io/tpu"), extender("fpga", "acme.io/fpga")
    assert names(pod("a", requests={"acme.io/tpu": "1", "cpu": "1"}), gpu, fpga) == ["http://gpu"]
    assert names(pod("a", requests={"cpu": "1"}), gpu, fpga) == []


def test_ignorable_extenders_are_called_after_all_others() -> None:
    first, second = extender("first", ignorable=True), extender("second")
    assert names(pod("a"), first, second) == ["http://second", "http://first"]
