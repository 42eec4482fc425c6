from typing import Any

import pytest

from mooring.plugins.node_ports import NodePorts
from mooring.testing.builders import node, pod, uid_of
from plugin_answers import PluginAnswers, Rejected

REFUSAL = Rejected(("node(s) didn't have free ports for the requested pod ports",), resolvable=True)


def port(number: int = 80, protocol: str = "TCP", address: str = "") -> dict[str, Any]:
    return {"containerPort": 1, "hostPort": number, "protocol": protocol, "hostIP": address}


@pytest.mark.parametrize(
    ("taken", "wanted", "clash"),
    [
        (port(), port(), True),
        (port(), port(81), False),
        (port(), port(protocol="UDP"), False),
        (port(address="10.0.0.1"), port(address="10.0.0.2"), False),
        (port(address="10.0.0.1"), port(address="10.0.0.1"), True),
        (port(address="10.0.0.1"), port(), True),
        (port(), port(address="10.0.0.1"), True),
        (port(address="0.0.0.0"), port(), True),
    ],
)
def test_a_port_has_one_user_per_address(
    taken: dict[str, Any], wanted: dict[str, Any], *, clash: bool
) -> None:
    asking = PluginAnswers(NodePorts, node("n1"), pod("user", node="n1", ports=[taken]))
    assert asking.rejections(pod(ports=[wanted])) == ({"n1": REFUSAL} if clash else {})


def test_every_wanted_port_must_be_free() -> None:
    asking = PluginAnswers(NodePorts, node("n1"), node("n2"), pod("user", node="n1", ports=[81]))
    assert asking.rejections(pod(ports=[80, 81])) == {"n1": REFUSAL}


def test_a_pod_without_host_ports_is_skipped() -> None:
    assert (
        PluginAnswers(NodePorts, node("n1")).rejections(pod(ports=[{"containerPort": 80}])) is None
    )


def test_a_port_stays_taken_while_any_of_its_users_is_there() -> None:
    one, other = port(address="10.0.0.1"), port(address="10.0.0.2")
    asking = PluginAnswers(
        NodePorts,
        node("n1"),
        pod("a", node="n1", ports=[one]),
        pod("b", node="n1", ports=[other]),
    )
    placed = asking.state.pods.get(uid_of("a"))
    assert placed is not None
    asking.state.nodes.remove_pod(placed.row, placed.pod)
    assert asking.rejections(pod(ports=[one])) == {}
    assert asking.rejections(pod(ports=[other])) == {"n1": REFUSAL}


def test_a_new_node_or_a_pod_that_frees_the_port_queues() -> None:
    asking, waiting = PluginAnswers(NodePorts), pod(ports=[80])
    assert asking.queueing_hint(waiting, after=node("n1"))
    assert asking.queueing_hint(waiting, before=pod(node="n1", ports=[80]))
    assert not asking.queueing_hint(waiting, before=pod(node="n1", ports=[81]))
    assert not asking.queueing_hint(waiting, before=pod(node="n1"))
