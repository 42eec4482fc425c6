"""Dry runs on single nodes find correct victims, and pause."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deciding import Deciding
from driving import driven
from mooring.framework.post_filter import Nomination
from mooring.groups.model.pod_group import DISRUPTION_MODE, GroupFormat
from mooring.model.pod import Uid, parse_pod
from mooring.plugins.default_preemption.dry_runs import checks_of
from mooring.scheduling.cycle import LiveDryRun
from mooring.scheduling.outcome import FitError
from mooring.testing.builders import Raw, node, pdb, pod, pod_group
from node_selectors import met_by_every_node

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


def placed(n: int, i: int, cpu: int, priority: int, *, port: bool, guarded: bool) -> Raw:
    labels = {"guarded": "yes" if guarded else "no"}
    ports = [80] if port else []
    return pod(
        f"n{n}-{i}", cpu=str(cpu), priority=priority, node=f"n{n}", labels=labels, ports=ports
    )


def deciding(drawn: list[list[tuple[int, int, bool, bool]]]) -> Deciding:
    """Return a cluster with these nodes and pods, and a budget that allows one disruption."""
    objects = [node(f"n{n}", cpu="4") for n in range(len(drawn))]
    for n, pods in enumerate(drawn):
        for i, (cpu, priority, port, guarded) in enumerate(pods):
            objects.append(placed(n, i, cpu, priority, port=port, guarded=guarded))
    return Deciding(*objects, pdb("guard", {"guarded": "yes"}, allowed=1))


def fits_without(
    cluster: Deciding, preemptor: Raw, nomination: Nomination, stays: Uid | None = None
) -> bool:
    """Return whether the preemptor fits on its node without the victims, except `stays`."""
    search, asked = cluster.search(preemptor)
    dry_run = LiveDryRun(search, asked, cluster.shared)
    row = cluster.state.nodes.row_of[nomination.node]
    with dry_run.trial() as trial:
        for victim in nomination.victims:
            if victim.uid != stays:
                trial.remove(victim.uid)
        return not dry_run.rejection(row)


@given(nodes, preemptors)
def test_the_pod_fits_without_its_victims_and_beside_none_of_them(
    drawn: list[Any], preemptor: Raw
) -> None:
    cluster = deciding(drawn)
    outcome, pauses = driven(partial(cluster.outcome, preemptor))
    nomination = outcome.nomination if isinstance(outcome, FitError) else None
    if nomination is None:
        return
    assert pauses
    on_node = {p.pod.uid for p in cluster.cluster.pods_of(nomination.node)}
    assert {victim.uid for victim in nomination.victims} <= on_node
    assert fits_without(cluster, preemptor, nomination)
    for victim in nomination.victims:
        assert not fits_without(cluster, preemptor, nomination, stays=victim.uid), "it need not go"


def whole(name: str, number: int, *, labelled: bool) -> Raw:
    """Return a pod on node `number`, a member of a group that is disrupted as a whole."""
    how: dict[str, Any] = {"group": name}
    if labelled:
        how = {"labels": {"train": name}, "annotations": {DISRUPTION_MODE: "PodGroup"}}
    return pod(f"{name}-{number}", cpu="1", node=f"n{number}", priority=0, **how)


def deciding_by_labels(*objects: Raw) -> Deciding:
    """Return a cluster of these objects, where the label `train` names groups."""
    found = Deciding(*objects)
    found.state.track_pod_groups((GroupFormat("train"),))
    return found


@pytest.mark.parametrize("labelled", [False, True], ids=["objects", "labels"])
@pytest.mark.parametrize("preemptor", [PREEMPTOR, BY_REQUESTS])
def test_a_search_with_pauses_finds_groups_that_are_disrupted_as_a_whole(
    preemptor: Raw, *, labelled: bool
) -> None:
    """A dry run adds members back in another order, which must not count as a change."""
    objects = [node(f"n{n}", cpu="3") for n in range(6)]
    for name, on in (("g0", (0, 1, 2)), ("g1", (3, 4, 5)), ("g2", (1, 3, 5))):
        if not labelled:
            objects.append(pod_group(name, 1, disruption_mode="PodGroup", priority=0))
        objects += [whole(name, n, labelled=labelled) for n in on]
    objects += [
        pod(f"p{n}", cpu="1", node=f"n{n}", priority=n, ports=[80 + n % 2]) for n in range(6)
    ]
    at_once = deciding_by_labels(*objects).outcome(preemptor)
    outcome, paused = driven(partial(deciding_by_labels(*objects).outcome, preemptor))
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


def disks(number: int) -> Raw:
    return {
        "volumes": [
            {"name": f"d{i}", "gcePersistentDisk": {"pdName": f"disk-{i}"}} for i in range(number)
        ]
    }


MUCH: dict[str, Raw] = {
    "volumes": {"spec": disks(100)},
    "ports": {"ports": range(80, 480)},
    "requirements": {"affinity": met_by_every_node(900)},
    "resources": {"requests": {f"example.com/r{i}": 1 for i in range(190)}},
}


@pytest.mark.parametrize("fields", MUCH.values(), ids=MUCH)
def test_a_check_costs_by_all_that_the_pod_has(fields: Raw) -> None:
    assert checks_of(parse_pod(pod("new", **fields))) > 10


def test_a_check_of_an_ordinary_pod_costs_one() -> None:
    few = pod("new", cpu="1", ports=[80, 443], affinity=met_by_every_node(3), spec=disks(3))
    assert checks_of(parse_pod(few)) == 1
