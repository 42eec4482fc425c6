"""Members that were placed before a pause, and what has changed since."""

from typing import Any

import pytest

from deciding import Deciding
from driving import driven
from group_searching import search_for
from mooring.engine.groups.validation import Validation
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.pausing import pause
from mooring.testing.builders import node, pod

Raw = dict[str, Any]


def after_a_pause(deciding: Deciding, members: list[Raw]) -> tuple[Validation, list[Pod]]:
    """Return what knows the state before a pause, and the members that were placed then."""
    search = search_for(deciding, members)
    driven(pause)
    return search.validation, [parse_pod(raw) for raw in members]


def test_members_that_are_counted_are_checked_beside_those_before_them() -> None:
    deciding = Deciding(node("a", cpu="2"))
    validation, pods = after_a_pause(deciding, [pod(f"m{i}", cpu="1") for i in range(3)])
    row = deciding.state.nodes.row_of["a"]
    fits = []
    for member in pods:
        fits.append(validation.still_fits(member, row))
        if fits[-1]:
            deciding.state.assume(member, row)
    assert fits == [True, True, False]


def test_a_member_with_a_port_is_checked_against_the_pods_of_now() -> None:
    deciding = Deciding(node("a"), node("b"))
    validation, pods = after_a_pause(deciding, [pod(f"m{i}", ports=(80,)) for i in range(2)])
    deciding.place(pod("other", ports=(80,)), "a")
    rows = deciding.state.nodes.row_of
    assert [
        validation.still_fits(pods[0], rows["a"]),
        validation.still_fits(pods[1], rows["b"]),
    ] == [
        False,
        True,
    ]


@pytest.mark.parametrize("ports", [(), (80,)])
def test_what_another_pod_is_nominated_to_is_not_free_but_what_a_member_is(
    ports: tuple[int, ...],
) -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"))
    raws = [pod(f"m{i}", cpu="1", ports=ports) for i in range(2)]
    deciding.nominate(raws[1], "a")
    deciding.nominate(pod("other", cpu="1"), "b")
    validation, pods = after_a_pause(deciding, raws)
    rows = deciding.state.nodes.row_of
    assert [
        validation.still_fits(pods[0], rows["a"]),
        validation.still_fits(pods[1], rows["b"]),
    ] == [
        True,
        False,
    ]


def test_no_member_fits_any_more_when_the_labels_of_a_node_changed() -> None:
    deciding = Deciding(node("a", labels={"rack": "r1"}))
    validation, pods = after_a_pause(deciding, [pod("m")])
    raw = node("a", labels={"rack": "r2"})
    deciding.state.put(Kind.NODE, "a", parse_object(Kind.NODE, raw))
    assert not validation.still_fits(pods[0], deciding.state.nodes.row_of["a"])


def test_a_member_that_another_scheduler_bound_does_not_fit_any_more() -> None:
    deciding = Deciding(node("a"), node("b"))
    validation, pods = after_a_pause(deciding, [pod("m")])
    deciding.place(pod("m"), "b")
    assert not validation.still_fits(pods[0], deciding.state.nodes.row_of["a"])
