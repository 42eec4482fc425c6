from mooring.claims.model.device_classes import DeviceClass, parse_device_class
from mooring.claims.model.resource_claims import OpaqueConfig


def test_a_class_has_selectors_configuration_and_an_extended_resource() -> None:
    raw = {
        "metadata": {"name": "gpu", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z"},
        "spec": {
            "selectors": [{"cel": {"expression": "true"}}, {}],
            "config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}],
            "extendedResourceName": "example.com/gpu",
        },
    }
    assert parse_device_class(raw) == DeviceClass(
        name="gpu",
        uid="u",
        created=60.0,
        selectors=("true", None),
        config=(OpaqueConfig("d", {"a": 1}),),
        extended_resource="example.com/gpu",
    )


def test_a_class_may_select_all_devices() -> None:
    bare = parse_device_class({"metadata": {"name": "all"}, "spec": {}})
    assert (bare.selectors, bare.config, bare.extended_resource) == ((), (), "")
