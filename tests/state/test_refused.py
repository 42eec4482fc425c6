from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from mooring.model.changes import Action, Change, Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.state.refused import RefusedPods
from mooring.testing import builders


@dataclass
class Waiting:
    """A refused pod whose signature is its app, and whose cure is its node's name."""

    pod: Pod
    nominated: str | None = None


def app(waiting: Waiting) -> Hashable:
    return waiting.pod.labels["app"]


def waiting(name: str, app: str = "web", *, nominated: str | None = None) -> Waiting:
    return Waiting(parse_pod(builders.pod(name, labels={"app": app})), nominated)


def node_added(name: str) -> Change:
    return Change(Kind.NODE, Action.ADD, None, parse_node(builders.node(name)))


def pod_deleted(node: str) -> Change:
    return Change(Kind.POD, Action.DELETE, parse_pod(builders.pod("old", node=node)), None)


@pytest.fixture
def refused() -> RefusedPods[Waiting]:
    return RefusedPods(app)


def add(refused: RefusedPods[Waiting], *pods: Waiting) -> None:
    for pod in pods:
        refused.add(pod)


def woken_by(refused: RefusedPods[Waiting], change: Change) -> list[str]:
    """Names of whom the change wakes, taken out as the caller must; * tries for itself alone."""
    names = []
    for pod, for_all in refused.cured_by(change, lambda _pod, _change: True):
        refused.remove(pod.pod.key)
        names.append(pod.pod.name if for_all else f"{pod.pod.name}*")
    return names


def test_the_first_of_each_signature_is_tried(refused: RefusedPods[Waiting]) -> None:
    add(refused, waiting("a", "web"), waiting("b", "web"), waiting("c", "db"))
    assert woken_by(refused, node_added("n1")) == ["a", "c"]


def test_only_the_first_of_a_signature_is_asked(refused: RefusedPods[Waiting]) -> None:
    add(refused, waiting("a"), waiting("b"))
    asked = []

    def cures(pod: Waiting, _change: Change) -> bool:
        asked.append(pod.pod.name)
        return False

    assert list(refused.cured_by(node_added("n1"), cures)) == []
    assert asked == ["a"]


def test_who_left_is_not_tried(refused: RefusedPods[Waiting]) -> None:
    add(refused, waiting("a"), waiting("b"))
    refused.remove("default/a")
    assert woken_by(refused, node_added("n1")) == ["b"]
    assert woken_by(refused, node_added("n1")) == []


def test_pods_that_wait_for_this_very_node_are_tried_as_well(
    refused: RefusedPods[Waiting],
) -> None:
    add(refused, waiting("a"), waiting("b", nominated="n1"), waiting("c", nominated="n1"))
    assert woken_by(refused, pod_deleted("n1")) == ["b*", "c*", "a"]


def test_others_who_wait_for_room_are_not_tried_beside_those_who_wait_for_this(
    refused: RefusedPods[Waiting],
) -> None:
    add(refused, waiting("a", nominated="n2"), waiting("b", nominated="n1"))
    assert woken_by(refused, pod_deleted("n1")) == ["b*"]


def test_pods_that_wait_for_another_node_let_the_others_go_first(
    refused: RefusedPods[Waiting],
) -> None:
    add(refused, waiting("a", nominated="n2"), waiting("b"))
    assert woken_by(refused, pod_deleted("n1")) == ["b"]


def test_where_all_wait_for_another_node_the_first_is_tried(
    refused: RefusedPods[Waiting],
) -> None:
    add(refused, waiting("a", nominated="n2"), waiting("b", nominated="n3"))
    assert woken_by(refused, pod_deleted("n1")) == ["a"]


def test_the_longest_waiting_of_a_signature_is_its_first(refused: RefusedPods[Waiting]) -> None:
    add(refused, waiting("a"), waiting("b"))
    signature = refused.signature_of("default/a")
    refused.remove("default/a")
    first = refused.first_of(signature)
    assert first is not None
    assert first.pod.name == "b"


def test_a_signature_under_which_nobody_waits_has_no_first(
    refused: RefusedPods[Waiting],
) -> None:
    assert refused.first_of("web") is None


def test_a_pod_leaves_the_signature_it_came_under_even_if_it_changed(
    refused: RefusedPods[Waiting],
) -> None:
    pod = waiting("a", "web")
    refused.add(pod)
    pod.pod = waiting("a", "db").pod
    refused.remove("default/a")
    assert refused.first_of("web") is None
