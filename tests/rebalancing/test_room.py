"""The search for room: the pods that leave a node, and their targets."""

from typing import Any

import pytest

from mooring.groups.search.search_budget import SearchBudget
from mooring.model.node import ZONE
from mooring.model.pod import parse_pod
from mooring.rebalancing.plan import Move
from mooring.rebalancing.room import Room, RoomSearch
from mooring.testing.builders import node, pod, uid_of
from pod_terms import apart, near, spread_evenly, to_pods
from replanning import Replanning, owned


def room(
    replanning: Replanning, wanted: dict[str, Any], most: int = 9, **about: Any
) -> Room | None:
    planning = replanning.planning()
    with planning.undone():
        found = RoomSearch(planning, **about).room(parse_pod(wanted), most)
        assert len(planning) == 0
        return found


def names(found: Room | None) -> list[tuple[str, str, str]]:
    """Return the pod's name, the source and the target of each move."""
    assert found is not None
    return [(each.pod.name, each.source, each.target) for each in found.moves]


FULL = [
    node("a", cpu="4"),
    node("b", cpu="4"),
    node("c", cpu="4"),
    owned("a-1", cpu="1", node="a"),
    owned("a-2", cpu="2", node="a"),
    owned("b-1", cpu="3", node="b"),
    owned("c-1", cpu="2", node="c"),
]


def test_a_pod_that_fits_needs_no_moves() -> None:
    assert room(Replanning(*FULL), pod("new", cpu="2")) == Room("c", ())


def test_the_node_that_needs_the_fewest_moves_is_chosen() -> None:
    found = room(Replanning(*FULL), pod("new", cpu="3"))
    assert found is not None
    assert len(found.moves) == 1


def test_no_more_moves_are_made_than_allowed() -> None:
    assert room(Replanning(*FULL), pod("new", cpu="3"), most=0) is None


def test_pods_go_to_no_other_nodes_than_these() -> None:
    assert names(room(Replanning(*FULL), pod("new", cpu="3"))) == [("a-2", "a", "c")]
    assert names(room(Replanning(*FULL), pod("new", cpu="3"), within=["a", "b"])) == [
        ("a-1", "a", "b"),
        ("c-1", "c", "a"),
    ]
    assert room(Replanning(*FULL), pod("new", cpu="3"), within=["b"]) is None


def test_pods_that_may_not_move_make_no_room() -> None:
    replanning = Replanning(node("a", cpu="4"), node("b"), pod("bare", cpu="1", node="a"))
    assert room(replanning, pod("new", cpu="4", node_selector={"x": "y"})) is None


def test_room_is_made_where_a_pod_keeps_another_away() -> None:
    away = apart(to_pods({"app": "web"}))
    replanning = Replanning(
        node("a", labels={"disk": "ssd"}), node("b"), owned("web", labels={"app": "web"}, node="a")
    )
    wanted = pod("new", affinity=away, node_selector={"disk": "ssd"})
    assert names(room(replanning, wanted)) == [("web", "a", "b")]


def test_moves_are_made_in_the_trial_and_kept_as_the_plan_has_them() -> None:
    replanning = Replanning(*FULL)
    planning = replanning.planning(SearchBudget(100))
    with planning.undone():
        found = RoomSearch(planning).room(parse_pod(pod("new", cpu="3")), 9)
        assert found is not None
        planning.make(found.moves)
        placed = replanning.cluster.pod(uid_of("a-2"))
        assert placed is not None
        assert replanning.cluster.node_names[placed.row] == "c"
    (made,) = found.moves
    assert made == Move(made.pod, "a", "c")


def zoned(*zones: str) -> list[dict[str, Any]]:
    """Return a node of four cores in each zone, with the zone's name."""
    return [node(name, cpu="4", zone=name) for name in zones]


def test_the_pods_to_which_a_pod_has_affinity_follow_it_to_its_zone() -> None:
    replanning = Replanning(
        *zoned("a", "b"),
        node("full", cpu="2", zone="a"),
        owned("cache-1", cpu="1", node="a", labels={"app": "cache"}),
        owned("cache-2", cpu="1", node="a", labels={"app": "cache"}),
        owned("other", cpu="1", node="full"),
    )
    wanted = pod(
        "db",
        cpu="2",
        labels={"app": "cache"},
        node_selector={ZONE: "b"},
        affinity=near(to_pods({"app": "cache"}, ZONE)),
    )
    assert names(room(replanning, wanted)) == [("cache-1", "a", "b"), ("cache-2", "a", "b")]
    assert room(replanning, wanted, most=1) is None


@pytest.mark.parametrize("theirs", [True, False])
def test_pods_leave_the_zone_from_which_they_keep_a_pod_apart(*, theirs: bool) -> None:
    """They are on another node of the zone than the node on which the pod then fits."""
    away: dict[str, Any] = {"affinity": apart(to_pods({"app": "db"}, ZONE))}
    replanning = Replanning(
        *zoned("a", "b"),
        node("full", cpu="1", zone="b"),
        owned("db-1", cpu="1", node="full", labels={"app": "db"}, **(away if theirs else {})),
    )
    wanted = pod(
        "db",
        cpu="2",
        labels={"app": "db"},
        node_selector={"kubernetes.io/hostname": "b"},
        **({} if theirs else away),
    )
    found = room(replanning, wanted)
    assert names(found) == [("db-1", "full", "a")]
    assert found is not None
    assert found.node == "b"


def test_a_pod_leaves_a_zone_that_has_too_many_by_topology_spread() -> None:
    """The waiting pod is too large for zone a, which has no such pods."""
    spread = {"topologySpreadConstraints": [spread_evenly({"app": "web"}, ZONE)]}
    replanning = Replanning(
        node("a", cpu="1", zone="a"),
        *zoned("b"),
        node("full", cpu="1", zone="b"),
        owned("web-1", cpu="1", node="full", labels={"app": "web"}),
    )
    wanted = pod("web", cpu="2", labels={"app": "web"}, spec=spread)
    assert names(room(replanning, wanted)) == [("web-1", "full", "a")]


def test_a_pod_that_may_not_move_keeps_all_that_are_in_the_way_with_it() -> None:
    replanning = Replanning(
        *zoned("a", "b"),
        owned("cache-1", cpu="1", node="a", labels={"app": "cache"}),
        pod("cache-2", cpu="1", node="a", labels={"app": "cache"}),
    )
    beside = near(to_pods({"app": "cache"}, ZONE))
    wanted = pod("db", labels={"app": "cache"}, node_selector={ZONE: "b"}, affinity=beside)
    assert room(replanning, wanted) is None
