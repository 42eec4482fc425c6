"""A mistake in a claim, slice or class gives one clear line, and holds up no other pod.

Malformed objects are tested in `tests/mirroring/test_mirror.py`, and claims that are deleted during
an allocation in `test_plugin.py`.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.verdicts import PluginError
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import FakeApi, handle

Raw = dict[str, Any]

N1, N2 = node("n1"), node("n2")
NO_DEVICES = "2 cannot allocate all claims"
SIZE = 'device.attributes["gpu.example.com"].size'
SIZES = [device(f"d{i}", attributes={} if i == 500 else {"size": i}) for i in range(1000)]
"""A device in a thousand lacks what an expression reads."""
A_THOUSAND = [
    resource_slice(f"s{part}", SIZES[part * 125 : (part + 1) * 125], node="n1", slices=8)
    for part in range(8)
]


def using(claim: str = "claim", name: str = "web") -> Raw:
    return pod(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]})


def said(*objects: Mapping[str, Any], wanted: Raw | None = None) -> str:
    """Return the node that the pod gets, n1 or n2, or the line that says why it gets no node.

    The function also checks that a pod without claims gets a node.
    """
    deciding = Deciding(N1, N2, *objects)
    assert isinstance(deciding.outcome(pod("plain")), ScheduleResult)
    try:
        outcome = deciding.outcome(wanted or using())
    except PluginFailed as failure:
        line = str(failure)
    else:
        if isinstance(outcome, ScheduleResult):
            return outcome.node
        assert isinstance(outcome, FitError)
        line = outcome.message
    assert "\n" not in line
    assert len(line) < 400
    return line


class TestTenThousandDevices:
    """A pool of 79 slices with 128 devices each, the most devices that the API server allows."""

    SLICES = tuple(
        resource_slice(f"s{i}", [f"d{i}-{j}" for j in range(128)], node="n1", slices=79)
        for i in range(79)
    )

    def test_one_of_them_is_allocated(self) -> None:
        assert said(device_class(), *self.SLICES, device_claim()) == "n1"

    def test_without_one_of_the_slices_none_is(self) -> None:
        assert NO_DEVICES in said(device_class(), *self.SLICES[1:], device_claim())

    @pytest.mark.parametrize(
        ("asked", "number"),
        [(request(allocationMode="All", count=0), 10_112), (request(count=33), 33)],
    )
    def test_a_claim_for_more_than_it_can_hold_says_how_many_it_can(
        self, asked: Raw, number: int
    ) -> None:
        assert said(device_class(), *self.SLICES, device_claim("claim", asked)) == (
            'running "DynamicResources" filter plugin: claim default/claim, request r: adding '
            f"{number} devices exceeds the claim limit of 32, with 0 already accounted for"
        )


class TestAnExpressionThatFailsForOneDeviceInAThousand:
    def test_it_is_the_pods_reason_if_the_device_is_looked_at(self) -> None:
        objects = (device_class("gpu", f"{SIZE} > 600"), *A_THOUSAND, device_claim())
        assert said(*objects).startswith(
            'running "DynamicResources" filter plugin: class gpu: selector #0 on device '
            "gpu.example.com/n1/d500: CEL runtime error: no such key: size"
        )

    def test_it_matters_not_if_another_is_found_before(self) -> None:
        assert said(device_class("gpu", f"{SIZE} > 400"), *A_THOUSAND, device_claim()) == "n1"

    def test_pods_of_another_class_get_theirs(self) -> None:
        classes = (device_class("gpu", f"{SIZE} > 600"), device_class("any"))
        claim = device_claim("claim", request(device_class="any"))
        assert said(*classes, *A_THOUSAND, claim) == "n1"


class TestAttributesOfTheWrongType:
    def test_an_expression_says_so(self) -> None:
        line = said(device_class("gpu", f'{SIZE} > "big"'), *A_THOUSAND, device_claim())
        assert line.endswith(
            "selector #0 on device gpu.example.com/n1/d0: CEL runtime error: no such overload"
        )

    def test_values_of_two_types_do_not_match(self) -> None:
        devices = [device("a", attributes={"zone": "1"}), device("b", attributes={"zone": 1})]
        constraint = {"matchAttribute": "gpu.example.com/zone"}
        claim = device_claim("claim", request(count=2), constraints=[constraint])
        assert NO_DEVICES in said(device_class(), resource_slice("s", devices, node="n1"), claim)


@pytest.mark.parametrize(
    "claim",
    [
        device_claim("claim", request(count=9)),
        device_claim("claim", request(selectors=[{"cel": {"expression": "false"}}])),
        device_claim("claim", *(request(f"r{i}", 3) for i in range(3))),
    ],
)
def test_a_claim_that_no_node_can_meet_says_so(claim: Raw) -> None:
    devices = resource_slice("s", [f"d{i}" for i in range(8)], node="n1")
    assert NO_DEVICES in said(device_class(), devices, claim)


class TestTwoDriversWithOnePoolName:
    """Two drivers have a pool of the same name, and a device of the same name."""

    SLICES = tuple(
        resource_slice(driver, ["d0"], node="n1", pool="p", driver=f"{driver}.example.com")
        for driver in "ab"
    )

    def test_both_devices_are_allocated(self) -> None:
        claims = device_claim("claim", request(count=2)), device_claim("three", request(count=3))
        assert said(device_class(), *self.SLICES, *claims) == "n1"
        assert NO_DEVICES in said(device_class(), *self.SLICES, *claims, wanted=using("three"))

    def test_the_device_of_the_one_is_free_if_that_of_the_other_is_in_use(self) -> None:
        of_a = allocated(device_result("d0", pool="p", driver="a.example.com"))
        objects = device_class(), *self.SLICES, device_claim("other", allocation=of_a)
        assert said(*objects, device_claim()) == "n1"
        assert NO_DEVICES in said(*objects, device_claim("claim", request(count=2)))


class TestAGenerationThatGoesBack:
    """A driver that has lost the generation of its pool begins again with 1."""

    def test_the_devices_of_the_slice_as_it_is_now_are_allocated(self) -> None:
        deciding = Deciding(
            N1, device_class(), device_claim(), device_claim("two", request("r", 2))
        )
        for generation, names in ((7, ["d0"]), (1, ["d0", "d1"])):
            raw = resource_slice("s", names, node="n1", generation=generation)
            deciding.state.put(Kind.RESOURCE_SLICE, "s", parse_resource_slice(raw))
        assert isinstance(deciding.outcome(using("two")), ScheduleResult)

    def test_a_device_that_is_in_use_is_not_allocated_again(self) -> None:
        held = device_claim("held", allocation=allocated("d0", node="n1"))
        old = resource_slice("s", ["d0"], node="n1", generation=1)
        assert NO_DEVICES in said(device_class(), old, held, device_claim())

    def test_a_slice_that_is_left_of_the_newer_one_keeps_the_pool_from_being_used(self) -> None:
        """The pool is usable again when the driver has deleted the slice of generation 7."""
        left = resource_slice("left", ["d0"], node="n1", generation=7, slices=2)
        back = resource_slice("back", ["d1"], node="n1", generation=1)
        assert NO_DEVICES in said(device_class(), left, back, device_claim())


async def test_of_300_pods_on_one_claim_256_get_it_and_the_others_say_why() -> None:
    """The API server allows 256 reservations of a claim. The failed pods free no devices."""
    claim = device_claim()
    state = cluster(N1, device_class(), resource_slice("s", ["d0", "d1"], node="n1"), claim)
    api = FakeApi({("resourceclaims", "default/claim"): claim})
    plugin = DynamicResources(DynamicResourcesArgs(), handle(state, api))
    refusal = "status.reservedFor: Too many: 257: must have at most 256 items"
    for number in range(300):
        web = parse_pod(using(name=f"web-{number}"))
        state.assume(web, state.nodes.row_of["n1"])
        assert plugin.reserve(web, "n1") is None
        if number < 256:
            await plugin.pre_bind(web, "n1")
            continue
        api.failure = PluginError(refusal)
        with pytest.raises(PluginError, match=refusal):
            await plugin.pre_bind(web, "n1")
        api.failure = None
        plugin.unreserve(web, "n1")
        state.forget(web)
        await api.write_all()
    written = parse_resource_claim(api.objects["resourceclaims", "default/claim"])
    assert len(written.reserved_for) == 256
    assert [device.device for device in state.dynamic_resources.claims.allocated.dedicated] == [
        "d0"
    ]
    assert not state.dynamic_resources.claims.held(web.uid)
