"""Pauses of a search: no trial is open in them, and some changes end the search."""

from contextlib import suppress
from typing import Any

import pytest

from deciding import Deciding
from group_searching import placed_in_slices, search_for
from mooring.engine.groups.search import DecisionOutdated
from mooring.framework.evaluations import StillEvaluating
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.pausing import Work
from mooring.testing.builders import node, pod
from mooring.testing.device_builders import device_claim, device_class, resource_slice

Raw = dict[str, Any]


def test_a_search_pauses_and_no_member_is_on_a_node_then() -> None:
    nodes = [node(f"n{i}", cpu="2") for i in range(20)]
    deciding = Deciding(*nodes, pod("other", cpu="1", node="n0"))
    deciding.nominate(pod("x0", cpu="1"), "n1")
    members = [pod(f"x{i}", cpu="1", ports=(80,)) for i in range(20)]
    on_nodes, nominated = list[int](), list[int]()

    def look() -> None:
        on_nodes.append(len(deciding.state.pods))
        nominated.append(len(deciding.state.nominations))

    assignment, pauses = placed_in_slices(deciding, members, look)
    assert assignment.complete
    assert pauses >= 5
    assert set(on_nodes) == set(nominated) == {1}


def test_members_have_their_devices_again_after_each_pause_however_many_they_are() -> None:
    """What that costs is not charged to the decision before the pause, which may have done all."""
    names = [f"n{i}" for i in range(25)]
    slices = [resource_slice(name, ["d0", "d1", "d2", "d3"], node=name) for name in names]
    claims = [device_claim(f"c{i}") for i in range(100)]
    members = [
        pod(f"x{i}", spec={"resourceClaims": [{"name": "d", "resourceClaimName": f"c{i}"}]})
        for i in range(100)
    ]
    objects = (*map(node, names), device_class(), *slices, *claims)
    deciding = Deciding(*objects, most_per_decision=2_000)
    for _ in range(10):  # the first attempts read the devices of the nodes
        with suppress(StillEvaluating):
            assignment, pauses = placed_in_slices(deciding, members)
            break
    assert assignment.complete
    assert pauses >= 50


def test_a_search_ends_when_a_node_comes_in_a_pause() -> None:
    deciding = Deciding(node("a"), node("b"))
    members = [pod(f"x{i}", cpu="1", ports=(80,)) for i in range(2)]

    def add_node() -> None:
        deciding.state.put(Kind.NODE, "c", parse_object(Kind.NODE, node("c")))

    with pytest.raises(DecisionOutdated):
        placed_in_slices(deciding, members, add_node)
    assert len(deciding.state.pods) == 0


def test_a_search_ends_when_another_scheduler_binds_a_member_in_a_pause() -> None:
    deciding = Deciding(*(node(f"n{i}") for i in range(10)))
    members = [pod(f"x{i}", cpu="1", ports=(80,)) for i in range(9)]
    bound = parse_pod(pod("x0", cpu="1", ports=(80,), node="n9"))

    with Work(search_for(deciding, members).place) as work:
        for _ in range(4):
            assert not work.advance()
        deciding.state.put(Kind.POD, bound.uid, bound)
        with pytest.raises(DecisionOutdated):
            work.advance()
    assert [placed.pod for placed in deciding.state.pods] == [bound]


def test_a_search_that_is_cancelled_in_a_pause_leaves_nothing() -> None:
    deciding = Deciding(node("a"), node("b"))
    members = [pod(f"x{i}", cpu="1", ports=(80,)) for i in range(2)]
    with Work(search_for(deciding, members).place) as work:
        assert not work.advance()
        assert not work.advance()
    assert len(deciding.state.pods) == 0
