import pytest

from mooring.framework.registry import NoArgs
from mooring.model.pod import parse_pod
from mooring.plugins.default_binder import DefaultBinder
from mooring.testing.builders import cluster, pod
from mooring.testing.fakes import FakeApi, handle


async def test_a_pod_is_bound_through_the_api() -> None:
    api = FakeApi()
    await DefaultBinder(NoArgs(), handle(cluster(), api)).bind(parse_pod(pod("web")), "n1")
    assert api.bindings == [("default/web", "n1")]


async def test_an_error_of_the_binding_is_raised() -> None:
    api = FakeApi()
    api.failure = RuntimeError("conflict")
    with pytest.raises(RuntimeError, match="conflict"):
        await DefaultBinder(NoArgs(), handle(cluster(), api)).bind(parse_pod(pod("web")), "n1")
