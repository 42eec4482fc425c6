from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster
from mooring.volumes.model.storage_objects import (
    ClaimRef,
    parse_persistent_volume,
    parse_persistent_volume_claim,
)
from mooring.volumes.state.volume_index import Volumes
from storage_builders import pv, pvc

Raw = Mapping[str, Any]

CLAIM = parse_persistent_volume_claim(pvc("data", storage_class="fast"))


def volumes_of(state: ClusterState) -> Volumes:
    return state.storage.volumes


def free(state: ClusterState, storage_class: str = "fast") -> list[str]:
    return [volume.name for volume in volumes_of(state).available(storage_class).items]


def kept(state: ClusterState) -> list[str]:
    return [volume.name for volume in volumes_of(state).with_claim_ref(CLAIM)]


def assume(state: ClusterState, holder: str, *names: str) -> None:
    """Assume the volumes for the claim, and the claim's selected node."""
    taken = []
    for name in names:
        volume = volumes_of(state).volume(name)
        assert volume is not None
        taken.append(replace(volume, claim=ClaimRef(CLAIM.namespace, CLAIM.name, CLAIM.uid)))
    volumes_of(state).assume(holder, taken, [replace(CLAIM, selected_node="n1")])


def shown(raw: Raw, version: str) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": version}}


def put(state: ClusterState, raw: Raw) -> None:
    volume = parse_persistent_volume(raw)
    state.put(Kind.PERSISTENT_VOLUME, volume.name, volume)


def test_free_volumes_are_sorted_by_size_within_their_class() -> None:
    state = cluster(
        pv("large", size="2Gi", storage_class="fast"),
        pv("small", size="1Gi", storage_class="fast"),
        pv("slow", storage_class="slow"),
    )
    assert free(state) == ["small", "large"]
    assert free(state, "slow") == ["slow"]
    assert free(state, "none") == []


def test_a_volume_bound_to_a_claim_is_found_by_the_claim_and_is_not_available() -> None:
    state = cluster(pv("v", storage_class="fast", claim="default/data"))
    assert (free(state), kept(state)) == ([], ["v"])


def test_a_volume_of_another_class_is_not_found_by_the_claim() -> None:
    assert kept(cluster(pv("v", storage_class="slow", claim="default/data"))) == []


def test_an_assumed_volume_is_bound_and_an_assumed_claim_has_a_selected_node() -> None:
    state = cluster(pv("v", storage_class="fast"), pvc("data", storage_class="fast"))
    assume(state, "pod", "v")
    claim = volumes_of(state).claim("default/data")
    assert claim is not None
    assert (free(state), kept(state), claim.selected_node) == ([], ["v"], "n1")


def test_restoring_undoes_exactly_what_was_assumed() -> None:
    state = cluster(pv("v", storage_class="fast"), pvc("data", storage_class="fast"))
    assume(state, "pod", "v")
    volumes_of(state).restore("pod")
    claim = volumes_of(state).claim("default/data")
    assert claim is not None
    assert (free(state), kept(state), claim.selected_node) == (["v"], [], None)


def test_a_newer_version_from_the_watch_replaces_the_assumed_one() -> None:
    raw = pv("v", storage_class="fast")
    state = cluster(shown(raw, "1"), pvc("data", storage_class="fast"))
    assume(state, "pod", "v")
    put(state, shown(raw, "1"))
    assert kept(state) == ["v"]
    put(state, shown(raw, "2"))
    assert (free(state), kept(state)) == (["v"], [])
    volumes_of(state).restore("pod")
    assert free(state) == ["v"]


def test_a_volume_that_goes_while_it_is_assumed_is_gone() -> None:
    state = cluster(pv("v", storage_class="fast"), pvc("data", storage_class="fast"))
    assume(state, "pod", "v")
    state.delete(Kind.PERSISTENT_VOLUME, "v")
    assert volumes_of(state).volume("v") is None
    assert (free(state), kept(state)) == ([], [])


VOLUMES = ("v0", "v1", "v2", "v3")
HOLDERS = st.sampled_from(("pod-a", "pod-b"))
EVENTS = st.one_of(
    st.tuples(HOLDERS, st.sets(st.sampled_from(VOLUMES))),
    st.tuples(HOLDERS, st.none()),
)


@settings(deadline=None)
@given(st.lists(EVENTS))
def test_when_every_pod_has_restored_its_volumes_the_state_is_as_before(
    events: list[tuple[str, set[str] | None]],
) -> None:
    objects = [pv(name, storage_class="fast") for name in VOLUMES]
    objects[3] = pv("v3", storage_class="fast", claim="default/data")
    state = cluster(*objects, pvc("data", storage_class="fast"))
    before = (free(state), kept(state), volumes_of(state).claim("default/data"))
    held: dict[str, set[str]] = {}
    for holder, names in events:
        if names is None:
            volumes_of(state).restore(holder)
            held.pop(holder, None)
        else:
            assume(state, holder, *sorted(names))
            held.setdefault(holder, set()).update(names)
        taken = {"v3"}.union(*held.values())
        assert kept(state) == sorted(taken)
        assert free(state) == sorted({*VOLUMES} - taken)
    for holder in tuple(held):
        volumes_of(state).restore(holder)
    assert (free(state), kept(state), volumes_of(state).claim("default/data")) == before
