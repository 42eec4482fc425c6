import json
from typing import Any

import pytest

from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.plugins.node_prefer_avoid_pods import NodePreferAvoidPods
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers


def avoiding(name: str, *controllers: tuple[str, str]) -> dict[str, Any]:
    entries = [
        {"podSignature": {"podController": {"kind": kind, "uid": uid}}} for kind, uid in controllers
    ]
    annotation = json.dumps({"preferAvoidPods": entries})
    return node(name, annotations={"scheduler.alpha.kubernetes.io/preferAvoidPods": annotation})


def owned(kind: str, uid: str) -> dict[str, Any]:
    return pod(owner={"kind": kind, "name": "web", "uid": uid})


NODES = (
    avoiding("n1", ("ReplicaSet", "1"), ("ReplicationController", "2")),
    avoiding("n2", ("ReplicaSet", "1"), ("StatefulSet", "3")),
    node("n3"),
)


@pytest.mark.parametrize(
    ("incoming", "scores"),
    [
        (owned("ReplicaSet", "1"), {"n1": 0, "n2": 0, "n3": 100}),
        (owned("ReplicationController", "2"), {"n1": 0, "n2": 100, "n3": 100}),
        (owned("ReplicaSet", "2"), None),
        (owned("StatefulSet", "3"), None),
        (pod(), None),
    ],
)
def test_nodes_are_spared_the_pods_of_the_controllers_they_name(
    incoming: dict[str, Any], scores: dict[str, int] | None
) -> None:
    assert PluginAnswers(NodePreferAvoidPods, *NODES).scores(incoming) == scores


def test_where_no_feasible_node_minds_nothing_is_scored() -> None:
    assert PluginAnswers(NodePreferAvoidPods, *NODES).scores(owned("ReplicaSet", "1"), "n3") is None


def test_a_node_that_takes_its_annotation_back_or_goes_minds_no_more() -> None:
    asking, incoming = PluginAnswers(NodePreferAvoidPods, *NODES), owned("ReplicaSet", "1")
    asking.state.put(Kind.NODE, "n1", parse_node(node("n1")))
    assert asking.scores(incoming) == {"n1": 100, "n2": 0, "n3": 100}
    asking.state.delete(Kind.NODE, "n2")
    asking.state.put(Kind.NODE, "its successor", parse_node(node("its successor")))
    assert asking.scores(incoming, "n1", "n3", "its successor") is None
