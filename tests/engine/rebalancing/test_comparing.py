"""A pod's node compared with the one that would be chosen today."""

from mooring.engine.rebalancing.comparing import Compared, compared, left_to_others
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, toleration, uid_of
from replanning import Replanning, owned


def found(replanning: Replanning, name: str = "web") -> Compared | None:
    """Return the comparison of the pod."""
    planning, placed = replanning.planning(), replanning.cluster.pod(uid_of(name))
    assert placed is not None
    with planning.trial:
        return compared(placed.pod, planning.pipeline, planning.what_if, planning.trial)


def test_a_pod_on_the_best_node_is_not_compared() -> None:
    assert found(Replanning(node("a"), owned("web", node="a"))) is None


def test_both_nodes_are_scored_without_the_pod() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("web", cpu="2", memory="1Gi", node="a"),
        owned("other", cpu="1", memory="1Gi", node="a"),
    )
    better = found(replanning)
    assert better is not None
    assert (better.source, better.target, better.violation) == ("a", "b", "")
    assert better.gain == better.scores[0] - better.scores[1] > 0


def test_a_node_that_rejects_its_pod_is_a_violation_with_or_without_another_node() -> None:
    pods = owned("web", node="a", node_selector={"disk": "ssd"})
    why = "NodeAffinity: node(s) didn't match Pod's node affinity/selector"
    nowhere = found(Replanning(node("a"), node("b"), pods))
    assert nowhere is not None
    assert (nowhere.target, nowhere.violation) == ("", why)
    for count in (1, 2):
        ssd = (node(f"s{n}", labels={"disk": "ssd"}) for n in range(count))
        elsewhere = found(Replanning(node("a"), *ssd, pods))
        assert elsewhere is not None
        assert elsewhere.target.startswith("s")
        assert (elsewhere.violation, elsewhere.gain) == (why, 0)


def test_taints_of_the_node_controller_are_left_to_it_unless_tolerated() -> None:
    web = parse_pod(pod("web"))
    tolerant = parse_pod(pod("web", tolerations=[toleration("node.kubernetes.io/role")]))
    tainted = parse_node(node("a", taints=["node.kubernetes.io/role=x:NoSchedule"]))
    assert left_to_others(tainted, web)
    assert not left_to_others(tainted, tolerant)
    assert left_to_others(parse_node(node("a", unschedulable=True)), tolerant)
    assert left_to_others(parse_node(node("a", conditions={"Ready": "False"})), tolerant)
    assert not left_to_others(parse_node(node("a", taints=["dedicated=x:NoSchedule"])), web)


def test_a_pod_on_a_node_that_is_drained_is_not_compared() -> None:
    pods = owned("web", node="a", node_selector={"disk": "ssd"})
    ssd = node("b", labels={"disk": "ssd"})
    assert found(Replanning(node("a", unschedulable=True), ssd, pods)) is None
    assert found(Replanning(node("a"), ssd, pods)) is not None
