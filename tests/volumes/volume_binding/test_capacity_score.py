from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.node import ZONE
from mooring.testing.builders import node, pod
from mooring.volumes.volume_binding.plugin import VolumeBinding
from plugin_answers import PluginAnswers
from storage_builders import (
    csi_driver,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

Raw = Mapping[str, Any]

NODES = (node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="c"))
STATIC = storage_class("static")
MADE = storage_class("made", provisioner="csi.example")
TRACKED = csi_driver("csi.example", storage_capacity=True)
FULLEST = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]


def scores(
    *objects: Raw, kubernetes: str = "1.37", shape: list[dict[str, int]] | None = None
) -> dict[str, int] | None:
    """Return the scores of the feasible nodes for a pod with all claims among the objects."""
    args = {} if shape is None else {"shape": shape}
    asking = PluginAnswers(
        VolumeBinding, *NODES, STATIC, MADE, *objects, kubernetes=kubernetes, **args
    )
    claims = [raw["metadata"]["name"] for raw in objects if raw["kind"] == "PersistentVolumeClaim"]
    wanted = pod(claims=claims)
    rejected = asking.rejections(wanted) or {}
    feasible = [raw["metadata"]["name"] for raw in NODES]
    return asking.scores(wanted, *(name for name in feasible if name not in rejected))


def room(zone: str, size: int, name: str = "", **fields: Any) -> Raw:
    return storage_capacity(name or f"in-{zone}", "made", size, {ZONE: zone}, **fields)


def test_available_volumes_score_by_the_share_of_them_that_is_requested() -> None:
    volumes = [
        pv("v1", size=100, storage_class="static", nodes=["n1"]),
        pv("v2", size=30, storage_class="static", nodes=["n2"]),
    ]
    claim = pvc("c", size=30, storage_class="static")
    assert scores(claim, *volumes) == {"n1": 70, "n2": 0}
    assert scores(claim, *volumes, shape=FULLEST) == {"n1": 30, "n2": 100}


def test_a_volume_that_is_kept_for_the_claim_counts_like_any_other() -> None:
    kept = pv("v1", size=60, storage_class="static", claim="default/c")
    assert scores(pvc("c", size=30, storage_class="static"), kept) == dict.fromkeys(
        ("n1", "n2", "n3"), 50
    )


def test_volumes_of_one_class_are_added_up_and_classes_are_averaged() -> None:
    other = storage_class("other")
    volumes = [
        pv("v1", size=40, storage_class="static", nodes=["n1"]),
        pv("v2", size=60, storage_class="static", nodes=["n1"]),
        pv("v3", size=100, storage_class="other", nodes=["n1"]),
    ]
    claims = [
        pvc("c1", size=10, storage_class="static"),
        pvc("c2", size=50, storage_class="static"),
        pvc("c3", size=5, storage_class="other"),
    ]
    assert scores(other, *claims, *volumes) == {"n1": 68}  # of 40 and 95, a half rounded up


def test_a_volume_to_be_made_scores_by_the_capacity_of_its_class_on_the_node() -> None:
    made = pvc("c", size=25, storage_class="made")
    assert scores(TRACKED, made, room("a", 100), room("b", 25), room("c", 24)) == {
        "n1": 75,
        "n2": 0,
    }


def test_all_claims_of_a_class_share_one_capacity() -> None:
    claims = [pvc(f"c{n}", size=50, storage_class="made") for n in range(2)]
    assert scores(TRACKED, *claims, room("a", 200), room("b", 60)) == {"n1": 50, "n2": 0}


def test_what_is_made_does_not_count_on_nodes_where_an_available_volume_is_bound() -> None:
    volume = pv("v1", size=50, storage_class="static", nodes=["n1"])
    found, made = pvc("c1", size=5, storage_class="static"), pvc("c2", size=5, storage_class="made")
    assert scores(TRACKED, found, made, volume, room("a", 10)) == {"n1": 90}


def test_the_node_that_was_selected_for_a_claim_is_scored_too() -> None:
    selected = pvc("c", size=20, storage_class="made", selected_node="n2")
    assert scores(TRACKED, selected, room("a", 100), room("b", 100)) == {"n2": 80}


def test_without_a_known_capacity_every_node_scores_zero() -> None:
    made = pvc("c", size=20, storage_class="made")
    everywhere = dict.fromkeys(("n1", "n2", "n3"), 0)
    assert scores(made, room("a", 100)) == everywhere
    unknown = dict(room("a", 100, maximumVolumeSize="50"))
    del unknown["capacity"]
    assert scores(TRACKED, made, unknown) == {"n1": 0}


@pytest.mark.parametrize("kubernetes", ["1.34", "1.35", "1.36"])
def test_nodes_are_scored_since_1_37(kubernetes: str) -> None:
    made = pvc("c", size=25, storage_class="made")
    assert scores(TRACKED, made, room("a", 100), kubernetes=kubernetes) is None


def test_pods_whose_claims_are_bound_are_not_scored() -> None:
    bound = (pvc("c", volume="v"), pv("v", claim="default/c"))
    assert scores(*bound) is None
    assert scores() is None


SHAPES = st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True).flatmap(
    lambda at: st.tuples(*(st.tuples(st.just(u), st.integers(0, 10)) for u in sorted(at)))
)


def reference(shape: tuple[tuple[int, int], ...], requested: int, capacity: int) -> int:
    """Return the score by Go's arithmetic, as in buildScorerFunction."""
    percent = requested * 100 // capacity
    before = None
    for utilization, tenth in shape:
        if percent <= utilization:
            if before is None:
                return tenth * 10
            (x, y), rise = before, tenth * 10 - before[1]
            step = abs(rise) * (percent - x) // (utilization - x)
            return y + (step if rise >= 0 else -step)
        before = (utilization, tenth * 10)
    return shape[-1][1] * 10


@given(SHAPES, st.integers(1, 10**15), st.integers(0, 10**15))
def test_the_score_is_that_of_the_shape_in_whole_numbers(
    shape: tuple[tuple[int, int], ...], requested: int, left: int
) -> None:
    points = [{"utilization": u, "score": s} for u, s in shape]
    claim = pvc("c", size=requested, storage_class="static")
    volume = pv("v", size=requested + left, storage_class="static", nodes=["n1"])
    expected = reference(shape, requested, requested + left)
    assert scores(claim, volume, shape=points) == {"n1": expected}
