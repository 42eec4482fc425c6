from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from call_counts import calls_in
from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node
from mooring.volumes.model.storage_objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    parse_persistent_volume_claim,
)
from mooring.volumes.state.node_affinities import check_node_affinity
from mooring.volumes.volume_binding.choice import choices
from node_selectors import expression, node_selector, term
from storage_builders import pv, pvc

Raw = Mapping[str, Any]

NODES = (node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b"))


def chosen(volumes: Sequence[Raw], *claims: Raw) -> dict[str, tuple[str | None, ...]]:
    """Return for each node the names of the volumes that the claims would take."""
    cluster_view = ClusterView(cluster(*NODES, *volumes))
    parsed = [parse_persistent_volume_claim(claim) for claim in claims]
    made = choices(parsed, cluster_view.nodes, cluster_view.storage)
    volumes_at = [[choice.at(i) for choice in made] for i in range(len(cluster_view.nodes))]
    return {
        cluster_view.nodes.name(i): tuple(None if v is None else v.name for v in found)
        for i, found in enumerate(volumes_at)
    }


def everywhere(*names: str | None) -> dict[str, tuple[str | None, ...]]:
    return {"n1": names, "n2": names, "n3": names}


def test_the_smallest_volume_that_is_large_enough_is_taken() -> None:
    volumes = [pv("small", size="1Gi"), pv("large", size="3Gi"), pv("fitting", size="2Gi")]
    assert chosen(volumes, pvc("data", size="2Gi")) == everywhere("fitting")


def test_sizes_of_volumes_are_compared_exactly() -> None:
    volumes = [pv("small", size="1500m"), pv("large", size="1900m"), pv("fitting", size="1600m")]
    assert chosen(volumes, pvc("data", size="1.6")) == everywhere("fitting")


def test_each_node_has_the_volumes_that_it_can_reach() -> None:
    volumes = [pv("v1", nodes=("n1",)), pv("v2", nodes=("n2",))]
    assert chosen(volumes, pvc("data")) == {"n1": ("v1",), "n2": ("v2",), "n3": (None,)}


def test_a_smaller_volume_that_a_node_cannot_reach_is_not_in_the_way() -> None:
    volumes = [pv("v1", size="1Gi", nodes=("n1",)), pv("any", size="2Gi")]
    assert chosen(volumes, pvc("data")) == {"n1": ("v1",), "n2": ("any",), "n3": ("any",)}


@pytest.mark.parametrize(
    ("volume", "claim"),
    [
        (pv("v", storage_class="other"), pvc("data")),
        (pv("v", modes=("ReadWriteOnce",)), pvc("data", modes=("ReadWriteMany",))),
        (pv("v", spec={"volumeMode": "Block"}), pvc("data")),
        (pv("v"), pvc("data", spec={"volumeAttributesClassName": "gold"})),
        (pv("v"), pvc("data", spec={"selector": {"matchLabels": {"tier": "1"}}})),
        (pv("v", claim="default/other"), pvc("data")),
        (pv("v") | {"status": {"phase": "Released"}}, pvc("data")),
    ],
)
def test_a_volume_that_does_not_suit_the_claim_is_not_taken(volume: Raw, claim: Raw) -> None:
    assert chosen([volume], claim) == everywhere(None)


def test_a_volume_that_is_being_deleted_is_not_taken() -> None:
    volume = pv("v")
    volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert chosen([volume], pvc("data")) == everywhere(None)


def test_a_volume_with_more_access_modes_than_requested_matches() -> None:
    volume = pv("v", modes=("ReadWriteOnce", "ReadOnlyMany"))
    assert chosen([volume], pvc("data")) == everywhere("v")


def test_a_selector_picks_among_the_volumes() -> None:
    volumes = [pv("v1", labels={"tier": "1"}), pv("v2", labels={"tier": "2"})]
    claim = pvc("data", spec={"selector": {"matchLabels": {"tier": "2"}}})
    assert chosen(volumes, claim) == everywhere("v2")


def test_a_prebound_volume_is_chosen_before_smaller_ones() -> None:
    volumes = [pv("small"), pv("kept", size="5Gi", claim="default/data")]
    assert chosen(volumes, pvc("data")) == everywhere("kept")


def test_no_other_volume_is_chosen_where_the_prebound_one_does_not_match_the_node() -> None:
    volumes = [pv("any"), pv("kept", nodes=("n1",), claim="default/data")]
    assert chosen(volumes, pvc("data")) == {"n1": ("kept",), "n2": (None,), "n3": (None,)}


def test_a_volume_prebound_to_an_earlier_claim_of_the_same_name_is_not_chosen() -> None:
    other = {"namespace": "default", "name": "data", "uid": "of-an-earlier-one"}
    assert chosen([pv("v", spec={"claimRef": other}), pv("any")], pvc("data")) == everywhere("any")


def test_a_prebound_volume_that_is_too_small_is_not_chosen() -> None:
    volumes = [pv("kept", claim="default/data"), pv("any", size="5Gi")]
    assert chosen(volumes, pvc("data", size="2Gi")) == everywhere("any")


def test_two_claims_do_not_take_the_same_volume() -> None:
    volumes = [pv("v1", nodes=("n1",)), pv("v2", nodes=("n1",)), pv("v3", nodes=("n2",))]
    assert chosen(volumes, pvc("a"), pvc("b")) == {
        "n1": ("v1", "v2"),
        "n2": ("v3", None),
        "n3": (None, None),
    }


def steps(claims: int, volumes: Sequence[Raw]) -> int:
    """Return the number of function calls for choosing volumes for `claims` claims."""
    cluster_view = ClusterView(cluster(*NODES, *volumes))
    parsed = [parse_persistent_volume_claim(pvc(f"c{n}")) for n in range(claims)]
    return calls_in(lambda: choices(parsed, cluster_view.nodes, cluster_view.storage))


@pytest.mark.parametrize("local", [True, False])
def test_twice_as_many_claims_take_twice_as_many_steps(*, local: bool) -> None:
    """A tenant's pod may have 1,000 claims, and no other decision is made meanwhile."""
    names = ("n1", "n2", "n3")
    volumes = [pv(f"v{n}", nodes=names[n % 3 : n % 3 + 1] if local else ()) for n in range(150)]
    assert steps(40, volumes) < 3 * steps(20, volumes)


def test_the_labels_of_volumes_are_read_once_for_many_claims_with_selectors() -> None:
    """A tenant's pod may have 1,000 claims, and a cluster 20,000 volumes."""
    volumes = [pv(f"v{n}", labels={"tier": str(n)}) for n in range(200)]
    cluster_view = ClusterView(cluster(*NODES, *volumes))
    selector = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["none"]}]}
    raws = [pvc(f"c{n}", spec={"selector": selector}) for n in range(100)]
    parsed = [parse_persistent_volume_claim(raw) for raw in raws]
    assert calls_in(lambda: choices(parsed, cluster_view.nodes, cluster_view.storage)) < 10_000


def smallest(
    claim: PersistentVolumeClaim,
    volumes: Sequence[PersistentVolume],
    taken: set[str],
    here: set[str],
) -> str | None:
    """Return the volume by FindMatchingVolume's rule for one node, one volume after the other."""
    best: PersistentVolume | None = None
    for volume in sorted(volumes, key=lambda v: v.name):
        kept = volume.claim
        if kept is not None and f"{kept.namespace}/{kept.name}" != claim.key:
            continue
        if volume.name in taken or volume.storage_class != claim.storage_class:
            continue
        if volume.capacity < claim.size or volume.volume_mode != claim.volume_mode:
            continue
        if kept is not None:
            return volume.name if volume.name in here else None
        if claim.selector is not None and not claim.selector.matches(volume.labels):
            continue
        if volume.name not in here or not claim.access_modes <= volume.access_modes:
            continue
        if best is None or volume.capacity < best.capacity:
            best = volume
    return None if best is None else best.name


def _terms(*terms: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
    return node_selector(*(term(expression(key, "In", *values)) for key, values in terms))


PLACES = st.sampled_from(
    (
        None,
        _terms((HOSTNAME, ("n1",))),
        _terms((HOSTNAME, ("n2",))),
        _terms((ZONE, ("a",))),
        _terms((ZONE, ("b",))),
        _terms((ZONE, ("a", "b"))),
        _terms((HOSTNAME, ("n1",)), (ZONE, ("b",))),
    )
)
SIZES = st.sampled_from(("1", "1500m", "1900m", "3"))
CLASSES = st.sampled_from(("fast", "fast", "slow"))
MODES = st.sampled_from((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany")))
VOLUME_MODES = st.sampled_from(("Filesystem", "Filesystem", "Block"))
KEYS = st.sampled_from(("tier", "disk", "unheard"))
LABELS = st.dictionaries(st.sampled_from(("tier", "disk")), st.sampled_from(("a", "b")))
VALUES = st.lists(st.sampled_from(("a", "b", "none")), min_size=1)
SELECTORS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"key": KEYS, "operator": st.sampled_from(("In", "NotIn")), "values": VALUES}
        ),
        st.fixed_dictionaries(
            {"key": KEYS, "operator": st.sampled_from(("Exists", "DoesNotExist"))}
        ),
    ),
    max_size=2,
)
CLAIM_NAMES = ("c0", "c1", "c2", "c3", "c4")


@st.composite
def storage(draw: st.DrawFn) -> tuple[list[Raw], list[Raw]]:
    volumes: list[Raw] = []
    for i in range(draw(st.integers(0, 8))):
        spec: dict[str, Any] = {"volumeMode": draw(VOLUME_MODES)}
        place = draw(PLACES)
        if place is not None:
            spec["nodeAffinity"] = {"required": place}
        kept = draw(st.sampled_from((None, None, None, "default/c0", "default/c1")))
        volumes.append(
            pv(
                f"v{i}",
                size=draw(SIZES),
                storage_class=draw(CLASSES),
                modes=draw(MODES),
                claim=kept,
                labels=draw(LABELS),
                spec=spec,
            )
        )
    sizes = draw(st.lists(SIZES, min_size=1, max_size=len(CLAIM_NAMES)))
    claims: list[Raw] = [
        pvc(
            name,
            size=size,
            storage_class=draw(CLASSES),
            modes=draw(MODES),
            spec={
                "volumeMode": draw(VOLUME_MODES),
                "selector": {"matchExpressions": draw(SELECTORS)},
            },
        )
        for name, size in zip(CLAIM_NAMES, sorted(sizes), strict=False)
    ]
    return volumes, claims


@settings(deadline=None)
@given(storage())
def test_all_nodes_at_once_have_what_each_would_have_by_itself(
    drawn: tuple[list[Raw], list[Raw]],
) -> None:
    raw_volumes, raw_claims = drawn
    cluster_view = ClusterView(cluster(*NODES, *raw_volumes))
    volumes = [*cluster_view.objects(Kind.PERSISTENT_VOLUME).values()]
    expected: dict[str, tuple[str | None, ...]] = {}
    for index in range(len(cluster_view.nodes)):
        node_name = cluster_view.nodes.name(index)
        only = cluster_view.nodes.only(node_name)
        here = {v.name for v in volumes if check_node_affinity(only, v.node_affinity)[0]}
        taken: list[str | None] = []
        for raw in raw_claims:
            claim = parse_persistent_volume_claim(raw)
            gone = {name for name in taken if name is not None}
            taken.append(smallest(claim, volumes, gone, here))
        expected[node_name] = tuple(taken)
    assert chosen(raw_volumes, *raw_claims) == expected
