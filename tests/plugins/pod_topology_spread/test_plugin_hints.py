"""The events that may cure a rejection by PodTopologySpread."""

from typing import Any

import pytest

from mooring.model.node import HOSTNAME, ZONE
from mooring.plugins.pod_topology_spread.plugin import PodTopologySpread
from mooring.testing.builders import api_object, node, pod, service, toleration
from plugin_answers import PluginAnswers

Raw = dict[str, Any]

WEB, DB = {"app": "web"}, {"app": "db"}
A1, IN_B = node("a1", zone="a"), node("a1", zone="b")
NO_AFFINITY, TAINTED = node("a1"), node("a1", zone="a", taints=["gpu:NoSchedule"])


def constraint(key: str = ZONE, **fields: Any) -> Raw:
    selector = {"matchLabels": WEB}
    how = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologyKey": key} | how | fields


def web(name: str = "web", **fields: Any) -> Raw:
    return pod(name, **{"labels": WEB} | fields)


def queueing_hint(waiting: Raw, before: Raw | None, after: Raw | None) -> bool:
    return PluginAnswers(PodTopologySpread).queueing_hint(waiting, before=before, after=after)


@pytest.mark.parametrize(
    ("before", "after", "cured"),
    [
        (None, web("new", node="a1"), True),
        (web("old", node="a1"), None, True),
        (web("hopeful", nominated="a1"), None, True),
        (web("p", node="a1"), web("p", node="a1", labels=DB), True),
        (web("p", node="a1", labels=DB), web("p", node="a1"), True),
        (web("p", node="a1"), web("p", node="a1", terminating=True), True),
        (web("p", node="a1", terminating=True), None, False),
        (web("p", node="a1"), web("p", node="a1", phase="Running"), False),
        (None, web("new", node="a1", labels=DB), False),
        (None, web("new", node="a1", namespace="other"), False),
        (web("p", node="a1", labels=DB), None, False),
    ],
)
def test_a_pod_that_starts_or_ends_being_counted_queues_the_pod(
    before: Raw | None, after: Raw | None, *, cured: bool
) -> None:
    assert queueing_hint(web(spread=[constraint()]), before, after) is cured


@pytest.mark.parametrize(
    ("before", "after", "cured"),
    [
        (None, A1, True),
        (A1, None, True),
        (None, NO_AFFINITY, False),
        (NO_AFFINITY, None, False),
        (NO_AFFINITY, A1, True),
        (A1, NO_AFFINITY, True),
        (A1, IN_B, True),
        (A1, A1, False),
        (A1, node("a1", zone="a", labels={"disk": "ssd"}), False),
        (A1, TAINTED, False),
    ],
)
def test_a_node_that_adds_or_changes_a_domain_queues_the_pod(
    before: Raw | None, after: Raw | None, *, cured: bool
) -> None:
    assert queueing_hint(web(spread=[constraint()]), before, after) is cured


def test_a_node_that_lacks_one_of_the_labels_is_in_no_domain() -> None:
    spread = [constraint(), constraint("rack")]
    assert not queueing_hint(web(spread=spread), None, A1)
    assert queueing_hint(web(spread=[constraint(), constraint(HOSTNAME)]), None, A1)


def test_a_taint_queues_the_pod_if_nodes_with_it_do_not_count() -> None:
    honoured = [constraint(nodeTaintsPolicy="Honor")]
    assert queueing_hint(web(spread=honoured), A1, TAINTED)
    assert not queueing_hint(web(spread=honoured, tolerations=[toleration("gpu")]), A1, TAINTED)


def test_a_label_queues_the_pod_if_only_nodes_with_it_count() -> None:
    ssd = node("a1", zone="a", labels={"disk": "ssd"})
    selecting = web(spread=[constraint()], node_selector={"disk": "ssd"})
    ignoring = [constraint(nodeAffinityPolicy="Ignore")]
    assert queueing_hint(selecting, ssd, A1)
    assert not queueing_hint(web(spread=ignoring, node_selector={"disk": "ssd"}), ssd, A1)


REPLICA_SET = api_object("ReplicaSet", "web", namespace="default")


@pytest.mark.parametrize("parent", [service("web", WEB), REPLICA_SET], ids=["Service", "owner"])
def test_the_objects_of_default_selectors_queue_pods_that_default_constraints_reject(
    parent: Raw,
) -> None:
    listed = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    asking = PluginAnswers(PodTopologySpread, defaultingType="List", defaultConstraints=listed)
    assert asking.queueing_hint(web(), after=parent)
    assert asking.queueing_hint(web(), before=parent)
    assert not asking.queueing_hint(web(spread=[constraint()]), after=parent)
    assert not queueing_hint(web(), None, parent)
