"""The trial of a plan: changes that are made and taken back."""

from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.trial import PlanTrial
from mooring.engine.result_cache import ResultCache
from mooring.engine.what_if import WhatIf
from mooring.model.pod import parse_pod
from mooring.pausing import Work, pause
from mooring.testing.builders import node, pod, uid_of
from replanning import Replanning, owned


class Stage:
    """Two nodes, one pod, and a trial."""

    def __init__(self) -> None:
        self.replanning = Replanning(node("a"), node("b"), owned("web", cpu="1", node="a"))
        self.cluster = self.replanning.cluster
        what_if = WhatIf(self.cluster, ResultCache(self.replanning.state.nodes))
        self.trial = PlanTrial(what_if, self.replanning.pipeline)

    def move(self) -> None:
        """Move the pod from a to b."""
        placed = self.cluster.pod(uid_of("web"))
        assert placed is not None
        here = self.cluster.node(placed.row)
        assert here is not None
        self.trial.move(placed.pod, created_anew(placed.pod, here), "b")

    def where(self, name: str = "web") -> str | None:
        """Return the pod's node in the present state."""
        placed = self.cluster.pod(uid_of(name))
        return self.cluster.node_names[placed.row] if placed is not None else None

    def where_after_a_pause(self) -> str | None:
        """Move the pod, pause, and return where it is then."""
        with self.trial:
            self.move()
            pause()
            return self.where()


def test_moves_are_seen_inside_and_undone_at_the_end() -> None:
    stage = Stage()
    with stage.trial:
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
    with stage.trial:
        stage.trial.add(parse_pod(pod("new")), "b")
        assert stage.where("new") == "b"
        placed = stage.cluster.pod(uid_of("web"))
        assert placed is not None
        with stage.trial.without(placed.pod):
            assert stage.where() is None
        assert stage.where() == "a"
    assert stage.where("new") is None
