import pytest

from mooring.model.pod import parse_pod
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import FakeApi, Patch, handle


async def test_bindings_are_remembered_in_order() -> None:
    api = FakeApi()
    await api.bind(parse_pod(pod("a")), "n1")
    await api.bind(parse_pod(pod("b")), "n2")
    assert api.bindings == [("default/a", "n1"), ("default/b", "n2")]


async def test_a_patch_is_remembered_and_merged_into_the_object() -> None:
    api = FakeApi({("claims", "default/data"): {"a": {"x": 1, "y": 2}, "b": 1}})
    patch = {"a": {"y": None, "z": 3}, "b": 2}
    merged = await api.patch("claims", "default", "data", patch)
    assert merged == {"a": {"x": 1, "z": 3}, "b": 2}
    assert api.objects["claims", "default/data"] == merged
    assert api.patches == [Patch("claims", "default/data", patch)]


async def test_a_patched_object_gets_the_next_version() -> None:
    api = FakeApi({("volumes", "v"): {"metadata": {"name": "v", "resourceVersion": "9"}}})
    merged = await api.patch("volumes", None, "v", {"metadata": {"resourceVersion": "9"}})
    assert merged["metadata"] == {"name": "v", "resourceVersion": "10"}


async def test_a_patch_of_an_unknown_cluster_scoped_object_makes_it() -> None:
    api = FakeApi()
    assert await api.patch("volumes", None, "v", {"a": 1}) == {"a": 1}
    assert ("volumes", "v") in api.objects


async def test_while_a_failure_is_set_every_write_raises_it() -> None:
    api = FakeApi()
    api.failure = RuntimeError("rejected")
    with pytest.raises(RuntimeError, match="rejected"):
        await api.bind(parse_pod(pod("a")), "n1")
    with pytest.raises(RuntimeError, match="rejected"):
        await api.patch("volumes", None, "v", {})
    assert (api.bindings, api.patches) == ([], [])


async def test_who_waits_sees_the_changes_one_by_one_and_then_the_time_is_up() -> None:
    seen: list[int] = []
    api = FakeApi(events=[lambda: seen.append(1), lambda: seen.append(2), lambda: seen.append(3)])
    await api.until(lambda: len(seen) == 2, 5)
    assert seen == [1, 2]
    with pytest.raises(TimeoutError):
        await api.until(lambda: len(seen) == 9, 5)


def test_a_handle_sees_the_state_it_was_made_for() -> None:
    state = cluster(node("n1"))
    assert handle(state).cluster.node_count == 1


def test_annotations_are_kept_until_they_are_taken_back() -> None:
    api = FakeApi()
    api.annotate(parse_pod(pod("web")), {"a": "1"})
    api.annotate(parse_pod(pod("web")), {"b": "2"})
    assert api.annotations == {"default/web": {"a": "1", "b": "2"}}
    api.annotate(parse_pod(pod("web")), {})
    assert api.annotations == {}
    assert api.unix_nanoseconds() == api.unix_nanoseconds()
