"""The random gangs for the comparison with kube-scheduler, and the texts about them."""

from typing import Any

import pytest

from conformance.gangs.__main__ import main, summary, summary_of_evictions
from conformance.gangs.cases import Gang, random_gang, wrong_placement
from conformance.gangs.comparing import Verdict
from conformance.gangs.urgent import Evicted, random_scene
from mooring.testing.builders import node, pod, pod_group

RACK = "example.com/rack"


def described(gang: Gang) -> Any:
    """Return the properties of a gang that are the same for every scheduler."""
    return (
        gang.minimum,
        gang.topology,
        [raw["status"]["allocatable"] for raw in gang.nodes],
        [raw["spec"]["containers"] for raw in (*gang.running, *gang.members)],
    )


def test_both_schedulers_get_the_same_gang_on_nodes_of_their_own() -> None:
    for number in range(20):
        theirs, ours = (random_gang(7, number, name, "ns") for name in ("default", "mooring"))
        assert described(theirs) == described(ours)
        assert {raw["spec"]["schedulerName"] for raw in ours.members} == {"mooring"}
        names = [{raw["metadata"]["name"] for raw in gang.nodes} for gang in (theirs, ours)]
        assert not names[0] & names[1]


def test_the_gangs_are_of_many_kinds() -> None:
    gangs = [random_gang(7, number, "mooring", "ns") for number in range(200)]
    assert {gang.topology for gang in gangs} == {None, RACK}
    assert {gang.minimum == len(gang.members) for gang in gangs} == {True, False}
    assert {len(gang.members) for gang in gangs} == {*range(2, 11)}
    assert any(len({str(raw["spec"]["containers"]) for raw in g.members}) > 1 for g in gangs)


def gang(minimum: int = 2, topology: str | None = None) -> Gang:
    """Return a gang of three members of 2 cores, with nodes of 4 cores; one core is in use."""
    return Gang(
        "g",
        minimum,
        topology,
        nodes=[node("n1", labels={RACK: "r1"}), node("n2", labels={RACK: "r2"})],
        running=[pod("busy", cpu="1", node="n1")],
        members=[pod(f"m{i}", cpu="2") for i in range(3)],
        group=pod_group("g", minimum),
    )


@pytest.mark.parametrize(
    ("node_of", "wrong"),
    [
        ({}, ""),
        ({"m0": "n1", "m1": "n2", "m2": "n2"}, ""),
        ({"m0": "n1"}, "1 of at least 2 members are bound"),
        (
            {"m0": "n1", "m1": "n1"},
            "node n1 is over its allocatable cpu, or is not for this gang",
        ),
        (
            {"m0": "other", "m1": "n2"},
            "node other is over its allocatable cpu, or is not for this gang",
        ),
    ],
)
def test_a_wrong_placement_is_described(node_of: dict[str, str], wrong: str) -> None:
    assert wrong_placement(gang(), node_of) == wrong


def test_members_in_two_domains_are_wrong_if_the_gang_has_a_topology() -> None:
    apart = {"m0": "n1", "m1": "n2"}
    assert wrong_placement(gang(topology=RACK), apart) == "its members are in 2 domains"
    assert wrong_placement(gang(topology=RACK), {"m0": "n2", "m1": "n2"}) == ""


def test_the_summary_counts_and_names_what_should_not_be() -> None:
    found = [
        Verdict(0, kube_scheduler=True, mooring=True, wrong=""),
        Verdict(1, kube_scheduler=False, mooring=True, wrong=""),
        Verdict(2, kube_scheduler=True, mooring=False, wrong="1 of at least 2 members are bound"),
    ]
    assert summary(found) == (
        "3 gangs: kube-scheduler placed 2, Mooring 2\n"
        "only Mooring placed 1, only kube-scheduler 1\n"
        "gang 2: only kube-scheduler placed it\n"
        "gang 2: 1 of at least 2 members are bound\n"
    )


def test_a_number_of_cases_below_one_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--cases", "0"])
    assert ended.value.code == 2
    assert "--cases must be 1 or more" in capsys.readouterr().err


def test_both_schedulers_get_the_same_scene_with_an_urgent_pod() -> None:
    for number in range(20):
        theirs, ours = (random_scene(7, number, name, "ns") for name in ("default", "mooring"))
        assert len(theirs.nodes) == len(ours.nodes)
        assert len(theirs.groups) == len(ours.groups)
        for a, b in zip(theirs.running, ours.running, strict=True):
            assert a["spec"]["containers"] == b["spec"]["containers"]
            assert a["status"] == b["status"]
        assert ours.urgent["spec"]["schedulerName"] == "mooring"
        classes = {scene.urgent["spec"]["priorityClassName"] for scene in (theirs, ours)}
        assert len(classes) == 1


def test_the_summary_of_evictions_names_each_pod_for_which_others_are_evicted() -> None:
    found = [Evicted(0, ("n0-1",), ("n0-1",)), Evicted(1, (), ("n1-0", "n1-1")), Evicted(2, (), ())]
    assert summary_of_evictions(found) == (
        "3 urgent pods, 1 of which kube-scheduler evicts others for: the same are evicted for 2\n"
        "pod 1: kube-scheduler evicts nobody, Mooring n1-0, n1-1\n"
    )
