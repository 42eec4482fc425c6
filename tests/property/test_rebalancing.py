"""Plans of rebalancing: each move is possible at its turn, and nothing is left to do afterwards."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from driving import driven
from mooring.model.node import HOSTNAME
from mooring.model.pod import Pod
from mooring.rebalancing.movable import created_anew
from mooring.scheduling.cycle import decide
from mooring.scheduling.filtering import NodeSearch
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.testing.builders import node
from replanning import Replanning
from strategies import clusters_of_nodes, pods, surroundings

GOALS = st.sampled_from(
    (
        ["Violations"],
        ["Violations", "Spread"],
        ["Spread"],
        ["Pack"],
        ["MakeRoom"],
        ["Violations", "MakeRoom", "Pack"],
        ["Violations", "MakeRoom", "Spread"],
    )
)
OWNERS = st.sampled_from(
    (
        None,
        *({"kind": "ReplicaSet", "name": name, "uid": f"rs-{name}"} for name in "abc"),
        {"kind": "StatefulSet", "name": "s", "uid": "ss"},
        {"kind": "DaemonSet", "name": "d", "uid": "ds"},
    )
)


SIMPLE_NODES = st.builds(
    node,
    st.just(""),
    cpu=st.sampled_from(("2", "4")),
    memory=st.just("8Gi"),
    zone=st.sampled_from(("a", "b")),
    labels=st.sampled_from(({}, {}, {"disk": "ssd"})),
    taints=st.sampled_from(((), (), (), ("dedicated=gpu:NoSchedule",))),
)
SIMPLE_PODS: dict[str, st.SearchStrategy[Any]] = {
    "namespace": st.just("default"),
    "cpu": st.sampled_from(("250m", "500m", "1", "1500m")),
    "memory": st.sampled_from(("256Mi", "1Gi")),
    "labels": st.sampled_from(({"app": "a"}, {"app": "b"})),
    "owner": st.sampled_from([{"kind": "ReplicaSet", "name": n, "uid": f"rs-{n}"} for n in "abc"]),
    "node_selector": st.sampled_from((None, None, None, {"disk": "ssd"})),
}
NOTHING_ELSE: dict[str, st.SearchStrategy[Any]] = {
    "affinity": st.just(None),
    "spread": st.just(()),
    "ports": st.just(()),
    "claims": st.just(()),
    "tolerations": st.just(()),
    "requests": st.just(None),
    "priority": st.just(0),
    "phase": st.just("Running"),
    "terminating": st.just(value=False),
    "spec": st.just(None),
}


@st.composite
def clusters(draw: st.DrawFn) -> Replanning:
    """Draw nodes, pods on them and pods that wait, and a section.

    In half of the clusters most pods may move, and want nothing but resources and a few labels; in
    the others they have all that pods may have.
    """
    simple = draw(st.booleans())
    if simple:
        nodes = [named(draw(SIMPLE_NODES), f"n{n}") for n in range(draw(st.integers(2, 5)))]
        features = SIMPLE_PODS | NOTHING_ELSE
    else:
        nodes, features = [*draw(clusters_of_nodes(2))], {"owner": OWNERS}
    on = st.sampled_from([raw["metadata"]["name"] for raw in nodes])
    names = (st.just(f"p{n}") for n in range(draw(st.integers(2, 12))))
    placed = [draw(pods(name, on, **features)) for name in names]
    big = features | {"cpu": st.sampled_from(("1500m", "2", "3"))} if simple else features
    waits = big | {"phase": st.just("Pending")} if simple else big
    waiting = [
        draw(pods(st.just(f"w{n}"), st.none(), **waits)) for n in range(draw(st.integers(0, 2)))
    ]
    section = {
        "goals": draw(GOALS),
        "minimumGain": draw(st.sampled_from((1, 10, 50))),
        "limits": {"movesPerPlan": draw(st.sampled_from((1, 3, 100)))},
    }
    return Replanning(*surroundings(), *nodes, *placed, waiting=waiting, rebalancing=section)


def named(raw: dict[str, Any], name: str) -> dict[str, Any]:
    labels = raw["metadata"]["labels"] | {HOSTNAME: name}
    return raw | {"metadata": raw["metadata"] | {"name": name, "uid": name, "labels": labels}}


def rejections(replanning: Replanning, anew: Pod, name: str) -> Sequence[Any]:
    """Return why the node rejects the pod, with results that nothing was kept of."""
    results = ResultCache(replanning.cluster).of(anew, replanning.pipeline)
    search = NodeSearch(anew, replanning.pipeline, replanning.cluster, results)
    row = replanning.cluster.row(name)
    assert row is not None
    return [*search.rejections(row), *search.rejections_with_nominated(row)]


@given(clusters())
@settings(max_examples=60)
def test_every_move_is_possible_at_its_turn_and_nothing_is_moved_twice(
    replanning: Replanning,
) -> None:
    plan = replanning.plan()
    limits = replanning.section.limits
    assert len(plan.moves) <= limits.moves_per_plan
    assert len({move.pod.uid for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        placed = replanning.cluster.pod(move.pod.uid)
        assert placed is not None
        source = replanning.cluster.node(placed.row)
        assert source is not None
        assert (source.name, placed.pod) == (move.source, move.pod)
        assert move.target != move.source
        assert move.pod.owner is not None
        assert move.pod.owner.kind in replanning.section.pods.owners
        with replanning.cluster.trial(frees_claims=True) as trial:
            trial.remove(move.pod.uid)
            assert not rejections(replanning, created_anew(move.pod, source), move.target)
        replanning.carry_out_move(move.pod, move.target)


@given(clusters())
@settings(max_examples=60)
def test_a_plan_leaves_the_state_as_it_was_and_the_same_state_has_the_same_plan(
    replanning: Replanning,
) -> None:
    before = described(replanning)
    first = replanning.plan()
    assert described(replanning) == before
    assert replanning.plan() == first
    assert driven(replanning.plan)[0] == first
    assert described(replanning) == before


def schedule_those_that_wait(replanning: Replanning) -> None:
    """Place the pods that wait and fit, as the scheduler does; a plan leaves them their room."""
    for waiting in tuple(replanning.waiting):
        outcome = decide(waiting, replanning.pipeline, replanning.shared, seed=0)
        if isinstance(outcome, ScheduleResult):
            replanning.waiting.remove(waiting)
            replanning.carry_out_move(waiting, outcome.node)


@given(clusters())
@settings(max_examples=60)
def test_a_plan_after_the_plan_is_empty(replanning: Replanning) -> None:
    schedule_those_that_wait(replanning)
    plan = replanning.plan()
    replanning.carry_out(plan)
    schedule_those_that_wait(replanning)
    rested = frozenset(move.pod.uid for move in plan.moves)
    left = replanning.section.limits.moves_per_plan - len(plan.moves)
    if left > 0:
        # A step is planned whole or not at all: what takes more moves than were left may come now.
        limits = replanning.section.limits.model_copy(update={"moves_per_plan": left})
        replanning.section = replanning.section.model_copy(update={"limits": limits})
        assert replanning.plan(resting=rested).steps == ()


def described(replanning: Replanning) -> Any:
    """Return what is where, and what of each node is in use."""
    nodes = replanning.cluster.nodes
    return (
        sorted((placed.pod.uid, placed.row) for placed in replanning.state.pods),
        nodes.pod_count.tolist(),
        nodes.requested("cpu").tolist(),
        nodes.requested("memory").tolist(),
        len(replanning.cluster.nominations),
    )
