import pytest

from mooring.framework.verdicts import PluginError
from mooring.model.pod import parse_pod
from mooring.simulate.offline import OfflineApi, offline_handle
from mooring.testing.builders import cluster, node, pod


async def test_a_plugin_that_writes_in_a_simulation_is_told_that_it_cannot() -> None:
    api = OfflineApi()
    with pytest.raises(PluginError, match="a simulation has no API server"):
        await api.bind(parse_pod(pod()), "n1")
    with pytest.raises(PluginError):
        await api.patch("persistentvolumes", None, "v", {})
    with pytest.raises(PluginError):
        api.annotate(parse_pod(pod()), {"a": "b"})
    with pytest.raises(PluginError):
        api.unix_nanoseconds()
    with pytest.raises(PluginError):
        await api.until(lambda: True, 1.0)
    with pytest.raises(PluginError):
        await api.read("resourceclaims", "default", "c")
    with pytest.raises(PluginError):
        await api.update("resourceclaims", "default", "c", {})
    with pytest.raises(PluginError):
        api.alone("c")
    with pytest.raises(PluginError):
        api.record(parse_pod(pod()), "Reason", "note")


def test_a_write_that_nobody_waits_for_is_left_out_of_a_simulation() -> None:
    written: list[str] = []

    async def write() -> None:
        written.append("something")

    OfflineApi().later(write)
    assert not written


def test_a_plugin_reads_the_state_that_the_handle_is_made_over() -> None:
    assert offline_handle(cluster(node("n1"))).cluster.node_count == 1
