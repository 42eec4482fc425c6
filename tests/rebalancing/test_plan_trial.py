"""The trial of a plan: changes that are made and undone, and where pods fit in it."""

import numpy as np
import pytest

from mooring.model.pod import parse_pod
from mooring.pausing import Work, pause
from mooring.rebalancing.plan import Move
from mooring.rebalancing.record import whole
from mooring.testing.builders import node, pod, pod_group, uid_of
from replanning import Replanning, owned

CLUSTER = [
    node("a", cpu="4", memory="4Gi"),
    node("b", cpu="4", memory="4Gi"),
    node("c", cpu="4", memory="4Gi"),
    owned("a-1", cpu="1", memory="1Gi", node="a"),
    owned("b-1", cpu="3", memory="1Gi", node="b"),
]
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


class Stage:
    """Two nodes, one pod, and a trial."""

    def __init__(self) -> None:
        replanning = Replanning(node("a"), node("b"), owned("web", cpu="1", node="a"))
        self.cluster = replanning.cluster
        self.trial = replanning.planning()

    def move(self) -> None:
        placed = self.cluster.pod(uid_of("web"))
        assert placed is not None
        self.trial.make([Move(placed.pod, "a", "b")])

    def where(self, name: str = "web") -> str | None:
        """Return the pod's node in the trial."""
        placed = self.cluster.pod(uid_of(name))
        return self.cluster.node_names[placed.row] if placed is not None else None

    def where_after_a_pause(self) -> str | None:
        """Move the pod, pause, and return its node after the pause."""
        with self.trial.undone():
            self.move()
            pause()
            return self.where()


def test_moves_are_seen_inside_and_undone_at_the_end() -> None:
    stage = Stage()
    with stage.trial.undone():
        stage.move()
        assert stage.where() == "b"
        stage.trial.back_to(0)
        assert stage.where() == "a"
        stage.move()
    assert stage.where() == "a"


def test_moves_are_undone_when_the_plan_is_cancelled_in_a_pause() -> None:
    stage = Stage()
    with Work(stage.where_after_a_pause) as work:
        assert not work.advance()
        assert stage.where() == "b"
    assert stage.where() == "a"


def test_a_pod_without_a_node_may_come_and_one_may_be_left_out_for_a_moment() -> None:
    stage = Stage()
    with stage.trial.undone():
        stage.trial.add(parse_pod(pod("new")), "b")
        assert stage.where("new") == "b"
        placed = stage.cluster.pod(uid_of("web"))
        assert placed is not None
        with stage.trial.undone():
            stage.trial.remove(placed.pod)
            assert stage.where() is None
        assert stage.where() == "a"
    assert stage.where("new") is None


def test_the_policy_decides_and_the_fullest_node_is_the_best_fit() -> None:
    trial = Replanning(*CLUSTER).planning()
    new, all_nodes = parse_pod(pod("new", cpu="1", memory="1Gi")), {"a", "b", "c"}
    assert trial.decided(new) == "c"
    assert trial.best_fit(new, all_nodes) == "b"
    assert trial.best_fit(new, all_nodes, last={"b"}) == "a"
    assert trial.best_fit(new, {"b"}, last={"b"}) == "b"
    assert trial.best_fit(new, ()) is None


def test_a_pod_that_fits_nowhere_has_no_node() -> None:
    trial = Replanning(*CLUSTER).planning()
    new = parse_pod(pod("new", cpu="5"))
    assert trial.decided(new) is None
    assert trial.best_fit(new, {"a", "b", "c"}) is None


def test_filters_of_one_node_count_nominated_pods() -> None:
    replanning = Replanning(*CLUSTER)
    trial, new = replanning.planning(), parse_pod(pod("new", cpu="2"))
    assert [trial.fits_on(new, name) for name in "abcd"] == [True, False, True, False]
    replanning.nominate(pod("first", cpu="3", priority=1), "c")
    assert not trial.fits_on(new, "c")


def test_what_is_free_and_requested_is_counted_in_shares() -> None:
    trial = Replanning(*CLUSTER).planning()
    assert trial.free_shares(np.array([0, 1, 2])).tolist() == [1.5, 1.0, 2.0]
    assert trial.share_of(parse_pod(pod("new", cpu="6"))) == pytest.approx(0.5)
    assert trial.share_of(parse_pod(pod("new"))) == 0.0


def test_members_get_the_nodes_that_moves_have_left() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        pod_group("train", 2),
        owned("web", cpu="1", node="a"),
        waiting=[pod(f"m{n}", cpu="3", group="train") for n in range(2)],
        plugins=GANGS,
    )
    trial, (group,) = replanning.planning(), replanning.cluster.pod_groups
    members = [*group.unscheduled.values()]
    names = replanning.cluster.node_names
    rows = trial.group_decision(group, members).rows
    assert sorted(names[row] for row in rows.values()) == ["a", "b"]
    with trial.undone():
        trial.add(members[0], "b")
        rows = trial.group_decision(group, members[1:]).rows
        assert {uid: names[row] for uid, row in rows.items()} == {members[1].uid: "a"}
    replanning.nominate(pod("first", cpu="3", priority=9), "b")
    decision = trial.group_decision(group, members)
    assert not decision.rows
    assert decision.message


def test_moves_that_belong_together_are_possible_together() -> None:
    """Each of the two pods needs the other pod's room."""
    replanning = Replanning(
        *(node(name, cpu="2") for name in "ab"),
        owned("first", cpu="2", node="a"),
        owned("second", cpu="2", node="b"),
    )
    first, second = (placed.pod for placed in replanning.state.pods)
    trial, moves = replanning.planning(), (Move(first, "a", "b"), Move(second, "b", "a"))
    with trial.undone():
        assert trial.why_impossible(moves) is None
    with trial.undone():
        why = trial.why_impossible(moves[:1])
        assert whole(why or "") == "pod default/first does not fit on node b any more"
    gone = [Move(first, "a", "c")]
    with trial.undone():
        assert trial.why_impossible(gone) == "node c has gone"
