from device_builders import (
    DRIVER,
    allocated,
    device_claim,
    device_class,
    device_result,
    resource_slice,
)
from mooring.claims.model.resource_claims import DeviceId
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster


def test_the_view_shows_claims_classes_slices_and_who_uses_a_device() -> None:
    admin = allocated(device_result("d0", adminAccess=True))
    view = ClusterView(
        cluster(
            device_claim("a", allocation=allocated("d0")),
            device_claim("b", allocation=admin),
            device_claim("c"),
            device_class("gpu"),
            resource_slice("s", ["d0"]),
        )
    ).dynamic_resources
    used = DeviceId(DRIVER, "pool", "d0")
    assert [claim.name for claim in view.claims.users(used)] == ["a", "b"]
    assert view.claims.allocated.dedicated == {used: 1}
    assert view.classes.get("gpu") is not None
    assert view.classes.get("other") is None
    assert [each.name for each in view.slices.all()] == ["s"]
    assert view.slices.version == view.classes.version == 1
