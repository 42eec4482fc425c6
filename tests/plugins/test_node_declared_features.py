from typing import Any

import pytest

from mooring.model.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.plugins.node_declared_features import NodeDeclaredFeatures
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers, Rejected

REASON = "node(s) didn't match Pod's required features"
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]
RESTARTING = pod(spec={"containers": [{"name": "c", "restartPolicyRules": RULES}]})
MOUNT = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}
MOUNTING = pod(spec={"containers": [{"name": "c", "volumeMounts": [MOUNT]}]})
BOTH = pod(
    spec={
        "containers": [{"name": "c", "restartPolicyRules": RULES}],
        "hostNetwork": True,
        "hostUsers": False,
    }
)


def declaring(name: str, *features: str) -> dict[str, Any]:
    return node(name, status={"declaredFeatures": sorted(features)})


def out(*missing: str) -> Rejected:
    return Rejected((f"{REASON} (it does not declare {', '.join(missing)})",), resolvable=False)


def test_a_node_must_declare_every_feature_that_the_pod_needs() -> None:
    asking = PluginAnswers(
        NodeDeclaredFeatures,
        declaring("both", RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK, "Other"),
        declaring("one", RESTART_ALL_CONTAINERS),
        node("none"),
    )
    assert asking.rejections(BOTH) == {
        "one": out(USER_NAMESPACES_HOST_NETWORK),
        "none": out(RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK),
    }
    assert asking.rejections(RESTARTING) == {"none": out(RESTART_ALL_CONTAINERS)}


def test_a_pod_that_needs_no_feature_is_skipped() -> None:
    assert PluginAnswers(NodeDeclaredFeatures, node("n1")).rejections(pod()) is None


@pytest.mark.parametrize(
    ("kubernetes", "restarting", "mounting"),
    [("1.34", None, None), ("1.35", None, None), ("1.36", {"n1"}, None), ("1.37", {"n1"}, {"n1"})],
)
def test_each_version_knows_its_features(
    kubernetes: str, restarting: set[str] | None, mounting: set[str] | None
) -> None:
    asking = PluginAnswers(NodeDeclaredFeatures, node("n1"), kubernetes=kubernetes)
    for wanted, rejected in ((RESTARTING, restarting), (MOUNTING, mounting)):
        found = asking.rejections(wanted)
        assert (None if found is None else {*found}) == rejected


def test_a_node_that_declares_less_than_before_is_out() -> None:
    asking = PluginAnswers(NodeDeclaredFeatures, declaring("n1", VOLUME_BIND_MOUNT_OPTIONS))
    assert asking.rejections(MOUNTING) == {}
    asking.state.put(Kind.NODE, "n1", parse_node(node("n1")))
    assert asking.rejections(MOUNTING) == {"n1": out(VOLUME_BIND_MOUNT_OPTIONS)}


def test_a_node_that_declares_all_that_is_needed_queues() -> None:
    asking = PluginAnswers(NodeDeclaredFeatures)
    able, unable = declaring("n1", RESTART_ALL_CONTAINERS), declaring("n1", "Other")
    assert asking.queueing_hint(RESTARTING, after=able)
    assert asking.queueing_hint(RESTARTING, before=unable, after=able)
    assert not asking.queueing_hint(RESTARTING, before=able, after=able)
    assert not asking.queueing_hint(RESTARTING, after=unable)
    assert not asking.queueing_hint(BOTH, before=unable, after=able)
