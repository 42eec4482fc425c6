"""Topology-aware scheduling: Kueue chooses the domain of each pod, Mooring a node in it."""

from e2e.replicas import pods
from kueue.team import Team

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"


def add_racks(team: Team, *levels: str) -> dict[str, str]:
    """Add racks of two nodes for two pods each; return the rack of each node."""
    made = {rack: team.add_nodes(2, rack=rack) for rack in ("a", "b")}
    team.add_topology(*levels)
    team.add_flavor(topologyName=team.name)
    team.add_queue("main", "12")
    return {node: rack for rack, nodes in made.items() for node in nodes}


def in_one_rack(key: str = RACK) -> dict[str, dict[str, str]]:
    """Return the metadata of pods that want a rack to themselves."""
    return {"annotations": {"kueue.x-k8s.io/podset-required-topology": key}}


def test_pods_go_to_the_hosts_that_kueue_has_assigned(team: Team) -> None:
    rack_of = add_racks(team, RACK, HOST)
    team.add_job("first", "main", 4, metadata=in_one_rack())
    first = {rack_of[node] for node in team.wait_until_placed("first", 4)}
    team.add_job("second", "main", 4, metadata=in_one_rack())
    second = {rack_of[node] for node in team.wait_until_placed("second", 4)}
    assert {*first, *second} == {"a", "b"}
    for raw in pods(team.client, team.name).values():
        assert raw["spec"]["nodeSelector"][HOST] == raw["spec"]["nodeName"]
        assert "schedulingGates" not in raw["spec"]
    team.add_job("third", "main", 4, metadata=in_one_rack())
    waits = team.wait_for_condition("job-third", "QuotaReserved", bool)
    assert "topology" in waits["message"]
    team.finish("first")
    assert {rack_of[node] for node in team.wait_until_placed("third", 4)} == first


def test_where_kueue_assigns_racks_mooring_chooses_the_hosts(team: Team) -> None:
    rack_of = add_racks(team, RACK)
    team.add_job("first", "main", 4, metadata=in_one_rack())
    nodes = team.wait_until_placed("first", 4)
    assert len({rack_of[node] for node in nodes}) == 1
    assert len({*nodes}) == 2
    for raw in pods(team.client, team.name).values():
        assert raw["spec"]["nodeSelector"][RACK] == rack_of[raw["spec"]["nodeName"]]
