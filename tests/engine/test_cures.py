"""Which changes may cure which refusals."""

from typing import Any, ClassVar

import numpy as np
import pytest

from mooring.engine.cures import Cures
from mooring.engine.world import World
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Explanation
from mooring.model.changes import Action, Change, Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.state.queue import Part, QueuedPod
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod, service
from worlds import put_profile, world


class Undeclared:
    """Refuses every node and does not say what could cure that."""

    name: ClassVar[str] = "Undeclared"
    row_local: ClassVar[bool] = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def filter(self, _pod: Pod, nodes: NodeView, _state: None) -> BoolArray:
        return np.zeros(len(nodes.rows), bool)

    def explain(self, _pod: Pod, nodes: NodeView, _state: None) -> Explanation:
        return Explanation.single("no", len(nodes.rows), resolvable=False)


REGISTRY = Registry((*SHIPPED, Undeclared), {})

BIGGER = Change(
    Kind.NODE, Action.UPDATE, parse_node(node("a", cpu="1")), parse_node(node("a", cpu="8"))
)
A_SERVICE = Change(Kind.SERVICE, Action.ADD, None, service("front", {"app": "web"}))


@pytest.fixture
def shared() -> World:
    made = world(node("a", cpu="8"), registry=REGISTRY)
    put_profile(made, registry=REGISTRY, plugins={"filter": {"enabled": [{"name": "Undeclared"}]}})
    return made


@pytest.fixture
def cures(shared: World) -> Cures:
    return Cures(shared.profiles, shared.cluster)


def refused(*plugins: str, name: str = "web", **fields: Any) -> QueuedPod:
    waiting = parse_pod(pod(name, **{"cpu": "2"} | fields))
    return QueuedPod(waiting, 0.0, 0.0, part=Part.UNSCHEDULABLE, refused_by=frozenset(plugins))


def left(name: str, **fields: Any) -> Change:
    return Change(Kind.POD, Action.DELETE, parse_pod(pod(name, cpu="2", **fields)), None)


def test_pods_of_one_shape_share_what_row_local_plugins_refused(cures: Cures) -> None:
    one = refused("NodeResourcesFit", name="one", labels={"app": "one"})
    other = refused("NodeResourcesFit", name="other", labels={"app": "other"})
    assert cures.signature(one) == cures.signature(other)


def test_other_plugins_may_have_read_the_labels(cures: Cures) -> None:
    by = ("NodeResourcesFit", "InterPodAffinity")
    one = refused(*by, name="one", labels={"app": "one"})
    like_it = refused(*by, name="like-it", labels={"app": "one"})
    other = refused(*by, name="other", labels={"app": "other"})
    assert cures.signature(one) == cures.signature(like_it)
    assert cures.signature(one) != cures.signature(other)


def test_neither_another_shape_nor_another_refusal_is_shared(cures: Cures) -> None:
    known = cures.signature(refused("NodeResourcesFit"))
    assert cures.signature(refused("NodeResourcesFit", cpu="3")) != known
    assert cures.signature(refused("TaintToleration")) != known


def test_a_plugin_that_declares_nothing_is_cured_by_anything(cures: Cures) -> None:
    assert cures.may_cure(refused("Undeclared"), A_SERVICE)


def test_a_plugin_is_cured_by_what_it_declares_and_by_nothing_else(cures: Cures) -> None:
    assert cures.may_cure(refused("NodeResourcesFit"), BIGGER)
    assert not cures.may_cure(refused("NodeResourcesFit"), A_SERVICE)
    assert not cures.may_cure(refused("NodeResourcesFit", cpu="16"), BIGGER)


def test_one_cured_refusal_of_several_is_enough(cures: Cures) -> None:
    assert cures.may_cure(refused("NodeResourcesFit", "TaintToleration"), BIGGER)


def test_a_pod_that_nobody_refused_may_be_cured_by_anything(cures: Cures) -> None:
    assert cures.may_cure(refused(), A_SERVICE)


def test_a_pod_without_a_profile_is_cured_by_a_profile_alone(shared: World, cures: Cures) -> None:
    shared.profiles.remove("default-scheduler")
    assert not cures.may_cure(refused("NodeResourcesFit"), BIGGER)


def test_a_pods_own_place_taken_and_given_back_in_its_attempt_is_no_news(cures: Cures) -> None:
    queued = refused("NodeResourcesFit")
    own = left("web", node="a")
    assert cures.may_cure(queued, own)
    queued.part = None
    assert not cures.may_cure(queued, own)


def test_room_kept_for_a_pod_of_lower_priority_was_not_kept_from_this_one(cures: Cures) -> None:
    queued = refused("NodeResourcesFit", priority=10)
    assert not cures.may_cure(queued, left("lower", nominated="a", priority=5))
    assert cures.may_cure(queued, left("equal", nominated="a", priority=10))


def test_the_last_victim_of_a_preemption_wakes_the_preemptor_whatever_refused_it(
    shared: World, cures: Cures
) -> None:
    queued = refused("TaintToleration", priority=10)
    victim = left("victim", node="a")
    assert not cures.may_cure(queued, victim)
    shared.state.nominate(queued.pod, "a")
    assert cures.may_cure(queued, victim)
