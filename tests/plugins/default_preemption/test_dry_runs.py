"""Dry runs that pause: without a change they find what they find at once, else what holds then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deciding import Deciding
from mooring.engine.cycle import LiveDryRun
from mooring.engine.outcome import FitError
from mooring.framework.post_filter import Nomination
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Uid, parse_pod
from mooring.model.pod_group import DISRUPTION_MODE, GroupFormat
from mooring.plugins.default_preemption.dry_runs import checks_of
from mooring.testing.builders import Raw, node, pdb, pod, pod_group, uid_of

MODULE = "mooring.plugins.default_preemption.dry_runs"
PREEMPTOR = pod("new", cpu="2", priority=100, ports=[80])
BY_REQUESTS = pod("new", cpu="2", priority=100)
"""A pod that only requests keep from the nodes: no filter runs, but budgets are looked at."""
preemptors = st.sampled_from([PREEMPTOR, BY_REQUESTS])

on_node = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 100]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)
"""Pods of a node: CPUs, priority, whether they have the preemptor's host port, and a budget."""
nodes = st.lists(on_node, min_size=2, max_size=5)
change = st.tuples(
    st.sampled_from(["leaves", "comes", "nominated", "budget", "gone", "cordoned", "resized"]),
    st.integers(0, 4),
    st.integers(1, 3),
)


@contextmanager
def short_steps(checks: int) -> Iterator[None]:
    """Have a step end after so many checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}._CHECKS_PER_STEP", checks)
        patch.setattr(f"{MODULE}._LEAST_PER_STEP", 1)
        patch.setattr(f"{MODULE}._REPRIEVES_PER_CHECK", 1)
        yield


def placed(n: int, i: int, cpu: int, priority: int, *, port: bool, guarded: bool) -> Raw:
    """Return a pod on node n."""
    labels = {"guarded": "yes" if guarded else "no"}
    ports = [80] if port else []
    return pod(
        f"n{n}-{i}", cpu=str(cpu), priority=priority, node=f"n{n}", labels=labels, ports=ports
    )


def deciding(drawn: list[list[tuple[int, int, bool, bool]]]) -> Deciding:
    """Return the cluster of these nodes and pods, and a budget that allows one disruption."""
    objects = [node(f"n{n}", cpu="4") for n in range(len(drawn))]
    for n, pods in enumerate(drawn):
        for i, (cpu, priority, port, guarded) in enumerate(pods):
            objects.append(placed(n, i, cpu, priority, port=port, guarded=guarded))
    return Deciding(*objects, pdb("guard", {"guarded": "yes"}, allowed=1))


def changer(cluster: Deciding, changes: list[tuple[str, int, int]]) -> Callable[[], None]:
    """Return what makes the next of these changes when it is called."""
    left = iter(changes)

    def change_something() -> None:
        what, n, number = next(left, ("", 0, 0))
        state, name = cluster.state, f"n{n}"
        if what == "leaves":
            state.delete(Kind.POD, uid_of(f"n{n}-{number - 1}"))
        elif what == "comes":
            raw = placed(n, 10 + number, number, 1, port=False, guarded=False)
            state.put(Kind.POD, uid_of(raw["metadata"]["name"]), parse_pod(raw))
        elif what == "nominated" and name in state.nodes.row_of:
            cluster.nominate(pod(f"other-{number}", cpu=str(number), priority=100), name)
        elif what == "budget":
            raw = pdb("guard", {"guarded": "yes"}, allowed=number - 1)
            key = "default/guard"
            state.put(
                Kind.POD_DISRUPTION_BUDGET, key, parse_object(Kind.POD_DISRUPTION_BUDGET, raw)
            )
        elif what == "gone":
            state.delete(Kind.NODE, name)
        elif what in ("cordoned", "resized"):
            raw = node(name, cpu=str(number + 2), unschedulable=what == "cordoned")
            state.put(Kind.NODE, name, parse_object(Kind.NODE, raw))

    return change_something


def fits_without(
    cluster: Deciding, preemptor: Raw, nomination: Nomination, stays: Uid | None = None
) -> bool:
    """Return whether the preemptor fits on its node now if the other victims leave."""
    search, asked = cluster.search(preemptor)
    dry_run = LiveDryRun(search, asked)
    row = cluster.state.nodes.row_of[nomination.node]
    with dry_run.trial() as trial:
        for victim in nomination.victims:
            if victim.uid != stays:
                trial.remove(victim.uid)
        return not dry_run.rejection(row)


@given(nodes, preemptors, st.integers(1, 4))
def test_a_search_with_pauses_ends_like_one_without(
    drawn: list[Any], preemptor: Raw, checks: int
) -> None:
    at_once = deciding(drawn).outcome(preemptor)
    cluster = deciding(drawn)
    with short_steps(checks):
        outcome, _ = cluster.outcome_in_steps(preemptor, lambda: None)
    if not isinstance(at_once, FitError) or not isinstance(outcome, FitError):
        assert type(at_once) is type(outcome)
        return
    assert outcome.message == at_once.message
    found, expected = outcome.nomination, at_once.nomination
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.node == expected.node
        assert [victim.name for victim in found.victims] == [v.name for v in expected.victims]


def whole(name: str, number: int, *, labelled: bool) -> Raw:
    """Return a member on a node of a group of the name that is disrupted as a whole."""
    how: dict[str, Any] = {"group": name}
    if labelled:
        how = {"labels": {"train": name}, "annotations": {DISRUPTION_MODE: "PodGroup"}}
    return pod(f"{name}-{number}", cpu="1", node=f"n{number}", priority=0, **how)


def deciding_by_labels(*objects: Raw) -> Deciding:
    """Return the cluster of these objects, in which a label names groups."""
    found = Deciding(*objects)
    found.state.track_pod_groups((GroupFormat("train"),))
    assert found.state.recounting
    found.state.recount()
    return found


@pytest.mark.parametrize("labelled", [False, True], ids=["objects", "labels"])
@pytest.mark.parametrize("preemptor", [PREEMPTOR, BY_REQUESTS])
def test_a_search_with_pauses_finds_groups_that_are_disrupted_as_a_whole(
    preemptor: Raw, *, labelled: bool
) -> None:
    """A dry run puts their members back in another order, which is no change."""
    objects = [node(f"n{n}", cpu="3") for n in range(6)]
    for name, on in (("g0", (0, 1, 2)), ("g1", (3, 4, 5)), ("g2", (1, 3, 5))):
        if not labelled:
            objects.append(pod_group(name, 1, disruption_mode="PodGroup", priority=0))
        objects += [whole(name, n, labelled=labelled) for n in on]
    objects += [
        pod(f"p{n}", cpu="1", node=f"n{n}", priority=n, ports=[80 + n % 2]) for n in range(6)
    ]
    at_once = deciding_by_labels(*objects).outcome(preemptor)
    with short_steps(1):
        outcome, paused = deciding_by_labels(*objects).outcome_in_steps(preemptor, lambda: None)
    assert paused >= 6
    assert isinstance(at_once, FitError)
    assert isinstance(outcome, FitError)
    assert outcome.message == at_once.message
    assert outcome.nomination is not None
    assert at_once.nomination is not None
    assert outcome.nomination.node == at_once.nomination.node
    assert [v.uid for v in outcome.nomination.victims] == [
        v.uid for v in at_once.nomination.victims
    ]


@given(nodes, preemptors, st.integers(1, 4), st.lists(change, max_size=12))
def test_what_a_search_with_pauses_finds_holds_in_the_cluster_of_its_end(
    drawn: list[Any], preemptor: Raw, checks: int, changes: list[tuple[str, int, int]]
) -> None:
    cluster = deciding(drawn)
    with short_steps(checks):
        outcome, _ = cluster.outcome_in_steps(preemptor, changer(cluster, changes))
    if not isinstance(outcome, FitError):
        return
    nomination = outcome.nomination
    if nomination is None:
        return
    on_node = {p.pod.uid for p in cluster.cluster.pods_of(nomination.node)}
    assert {victim.uid for victim in nomination.victims} <= on_node
    assert fits_without(cluster, preemptor, nomination)
    for victim in nomination.victims:
        assert not fits_without(cluster, preemptor, nomination, stays=victim.uid), "it need not go"


@pytest.mark.parametrize("preemptor", [PREEMPTOR, BY_REQUESTS])
def test_a_search_on_many_nodes_pauses(preemptor: Raw) -> None:
    full = [[(2, 1, False, False), (2, 1, False, False)]] * 6
    with short_steps(2):
        _, pauses = deciding(full).outcome_in_steps(preemptor, lambda: None)
    assert pauses >= 5


def disks(number: int) -> Raw:
    """Return the volumes of a pod."""
    return {
        "volumes": [
            {"name": f"d{i}", "gcePersistentDisk": {"pdName": f"disk-{i}"}} for i in range(number)
        ]
    }


def requiring(requirements: int) -> Raw:
    """Return the node affinity of a pod that every node meets."""
    expressions = [
        {"key": f"key-{i}", "operator": "NotIn", "values": ["x"]} for i in range(requirements)
    ]
    terms = [{"matchExpressions": expressions}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


MUCH: dict[str, Raw] = {
    "volumes": {"spec": disks(100)},
    "ports": {"ports": range(80, 480)},
    "requirements": {"affinity": requiring(900)},
    "resources": {"requests": {f"example.com/r{i}": 1 for i in range(190)}},
}


@pytest.mark.parametrize("fields", MUCH.values(), ids=MUCH)
def test_a_check_costs_by_all_that_the_pod_has(fields: Raw) -> None:
    assert checks_of(parse_pod(pod("new", **fields))) > 10


def test_a_check_of_an_ordinary_pod_costs_one() -> None:
    few = pod("new", cpu="1", ports=[80, 443], affinity=requiring(3), spec=disks(3))
    assert checks_of(parse_pod(few)) == 1


@pytest.mark.parametrize("what", ["volumes", "ports", "requirements"])
def test_a_search_for_a_pod_that_has_much_pauses_sooner(what: str) -> None:
    """A tenant chooses what a check costs, and 200 checks were one step."""
    full = [[(2, 1, False, False), (2, 1, False, False)]] * 6
    ordinary: Raw = {"cpu": "2", "priority": 100, "ports": [80]}
    with short_steps(10):
        _, few = deciding(full).outcome_in_steps(pod("new", **ordinary), lambda: None)
        much = pod("new", **(ordinary | MUCH[what]))
        _, many = deciding(full).outcome_in_steps(much, lambda: None)
    assert many > 3 * few


def test_a_pod_that_fits_in_a_pause_takes_no_victims() -> None:
    cluster = deciding([[(2, 1, False, False), (2, 1, False, False)]] * 3)
    with short_steps(1):
        outcome, _ = cluster.outcome_in_steps(PREEMPTOR, changer(cluster, [("leaves", 1, 1)]))
    assert not isinstance(outcome, FitError)
    assert outcome.node == "n1"


def test_a_candidate_whose_budget_has_nothing_left_at_the_end_is_weighed_again() -> None:
    guarded, costly = [(4, 1, False, True)], [(4, 2, False, False)]
    cluster = deciding([guarded, costly])
    spend = changer(cluster, [("", 0, 0), ("budget", 0, 1)])
    with short_steps(1):
        outcome, _ = cluster.outcome_in_steps(PREEMPTOR, spend)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert outcome.nomination.node == "n1"


def test_a_node_that_grows_after_it_was_tried_needs_fewer_victims() -> None:
    cluster = deciding(
        [[(2, 100, False, False), *[(1, 1, False, False)] * 2], [(4, 2, False, False)]]
    )
    grow = changer(cluster, [*[("", 0, 0)] * 3, ("resized", 0, 3)])
    with short_steps(1):
        outcome, _ = cluster.outcome_in_steps(PREEMPTOR, grow)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert [victim.node_name for victim in outcome.nomination.victims] == ["n0"]


def test_a_node_that_changes_in_every_pause_is_left_out() -> None:
    cluster = deciding([[(2, 1, False, False), (2, 1, False, False)]])
    numbers = iter(range(1000))

    def replace_a_pod() -> None:
        number = next(numbers)
        state = cluster.state
        if number:
            state.delete(Kind.POD, uid_of(f"n0-{9 + number}"))
        raw = placed(0, 10 + number, 1, 1, port=False, guarded=False)
        state.put(Kind.POD, uid_of(raw["metadata"]["name"]), parse_pod(raw))

    with short_steps(1):
        outcome, pauses = cluster.outcome_in_steps(PREEMPTOR, replace_a_pod)
    assert isinstance(outcome, FitError)
    assert outcome.nomination is None
    assert "1 node(s) changed again and again while they were tried" in outcome.message
    assert pauses < 12


@pytest.mark.parametrize("preemptor", [PREEMPTOR, BY_REQUESTS])
def test_a_search_notices_that_a_member_on_another_node_has_left(preemptor: Raw) -> None:
    """Each of the nodes has a member of a group that is disrupted as a whole."""
    group = pod_group("g", 3, disruption_mode="PodGroup", priority=0)
    names = ("a", "b", "c")
    members = [
        pod(f"on-{name}", cpu="2", node=name, group="g", priority=0, ports=[80]) for name in names
    ]
    cluster = Deciding(*(node(name, cpu="2") for name in names), group, *members)

    def leave() -> None:
        cluster.state.delete(Kind.POD, uid_of("on-c"))
        raw = node("c", cpu="2", unschedulable=True)
        cluster.state.put(Kind.NODE, "c", parse_object(Kind.NODE, raw))

    with short_steps(1):
        outcome, paused = cluster.outcome_in_steps(preemptor, leave)
    assert paused
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert sorted(victim.name for victim in outcome.nomination.victims) == ["on-a", "on-b"]
