"""Every shipped plugin keeps the rules that a third party's must keep."""

from typing import Any

import pytest
from hypothesis import given, settings

from device_builders import (
    allocated,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.model.node import ZONE
from mooring.plugins import SHIPPED
from mooring.plugins.rules.plugin import Rules
from mooring.testing.builders import node, pod, service
from mooring.testing.contract import PluginContract, Scenario
from pod_terms import spread_evenly
from storage_builders import csi_node, pv, pvc, storage_class
from strategies import scenarios

OF_ALL_SCENARIOS = (
    "test_its_filter_rejects_a_node_in_some_scenario",
    "test_its_scores_differ_in_some_scenario",
)
RULES = [
    name
    for name in vars(PluginContract)
    if name.startswith("test_") and name not in OF_ALL_SCENARIOS
]
"""The rules that hold for each scenario."""

IMAGE = "registry.example/large:v1"
APP = {"app": "a"}
NEAR = {"labelSelector": {"matchLabels": APP}, "topologyKey": ZONE}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
AVOIDS = (
    '{"preferAvoidPods": [{"podSignature": {"podController": {"kind": "ReplicaSet", "uid": "1"}}}]}'
)
ARGS: dict[str, dict[str, Any]] = {
    "NodeLabel": {"presentLabels": ["disk"], "presentLabelsPreference": ["disk"]},
    "ServiceAffinity": {"affinityLabels": ["disk"], "antiAffinityLabelsPreference": ["disk"]},
    "EBSVolumeCount": {"maxVolumes": 1},
    "GCEPDVolumeCount": {"maxVolumes": 1},
    "AzureDiskVolumeCount": {"maxVolumes": 1},
}
"""Without arguments these plugins reject and prefer nothing, or only what is large."""


def required_and_preferred(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    key = "podAffinityTerm" if kind == "podAffinity" else "preference"
    hard = [term] if kind == "podAffinity" else {"nodeSelectorTerms": [term]}
    return {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": hard,
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, key: term}],
        }
    }


def disks(name: str, suffix: str, **fields: Any) -> dict[str, Any]:
    """Return a pod with one disk of each cloud."""
    sources: list[dict[str, Any]] = [
        {"awsElasticBlockStore": {"volumeID": f"vol-{suffix}"}},
        {"gcePersistentDisk": {"pdName": f"pd-{suffix}"}},
        {"azureDisk": {"diskName": suffix, "diskURI": f"/disks/{suffix}"}},
    ]
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    return pod(name, spec={"volumes": volumes}, **fields)


N1 = node(
    "n1",
    zone="a",
    labels={"disk": "ssd"},
    images={IMAGE: 2**30},
    taints=("dedicated=a:PreferNoSchedule",),
    conditions={"MemoryPressure": "True", "DiskPressure": "True", "NetworkUnavailable": "True"},
    annotations={"scheduler.alpha.kubernetes.io/preferAvoidPods": AVOIDS},
    status={"declaredFeatures": ["UserNamespacesHostNetworkSupport"]},
)
N2 = node("n2", cpu=2, zone="b", taints=("broken:NoExecute",), unschedulable=True)
BUSY = pod("busy", labels=APP, cpu=3, memory="1Gi", ports=[80], node="n1")
SPREAD = [
    spread_evenly(APP, ZONE, whenUnsatisfiable=action)
    for action in ("DoNotSchedule", "ScheduleAnyway")
]
CSI = {"csi": {"driver": "csi.example", "volumeHandle": "h"}}
STORED = (
    csi_node("n1", {"csi.example": 0}),
    pv("old", nodes=("n1",), claim="default/data", labels={ZONE: "a"}, spec=CSI),
    pvc("data", volume="old"),
    storage_class("local"),
    pv("small", size="2Gi", nodes=("n1",), storage_class="local"),
    pv("large", size="9Gi", nodes=("n2",), storage_class="local"),
    pvc("new", size="1Gi", storage_class="local"),
)
PODS = (
    pod("plain", cpu=2, memory="1Gi", images=(IMAGE,), ports=[80]),
    pod("named", spec={"nodeName": "n1"}),
    pod("owned", labels=APP, owner={"kind": "ReplicaSet", "name": "web", "uid": "1"}),
    pod("picky", affinity=required_and_preferred("nodeAffinity", {"matchExpressions": [SSD]})),
    pod("social", affinity=required_and_preferred("podAffinity", NEAR)),
    pod("spread", labels=APP, spread=SPREAD),
    pod("stored", claims=["data"]),
    pod("storing", claims=["new"]),
    pod("hosted", spec={"hostNetwork": True, "hostUsers": False}),
    disks("more", "2"),
    disks("same", "1"),
    pod("limited", spec={"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]}),
)
OTHERS = (BUSY, disks("other", "1", node="n1"), service("front", APP), *STORED)
GPUS = (gpu_node("g1", 2), gpu_node("g2", 4), N1)
SHARE = share_pod("placed", 9, node="g2", card=0)
CLAIMED = (
    device_class("gpu"),
    resource_slice("s1", ["d0", "d1"], node="n1"),
    resource_slice("s2", ["d0"], node="n2"),
    device_claim("two", request(count=2)),
    device_claim(
        "some",
        {
            "name": "r",
            "firstAvailable": [
                {"name": "two", "deviceClassName": "gpu", "count": 2},
                {"name": "one", "deviceClassName": "gpu"},
            ],
        },
    ),
)
FRAGMENTED = (
    device_class("gpu"),
    resource_slice("s1", ["d0", "d1", "d2", "d3", "d4"], node="n1"),
    resource_slice("s2", ["d0", "d1"], node="n2"),
    device_claim("pair", request(count=2), allocation=allocated("d0", "d1", node="n1")),
    device_claim("one"),
)
"""A claim for one device takes the place of a pair on n2 only."""
CLAIMING = [
    pod(name, spec={"resourceClaims": [{"name": "c", "resourceClaimName": name}]})
    for name in ("two", "some", "one")
]
SCENARIOS = (
    *(Scenario((N1, N2), incoming, OTHERS) for incoming in PODS),
    *(Scenario((N1, N2), incoming, CLAIMED) for incoming in CLAIMING[:2]),
    Scenario((N1, N2), CLAIMING[2], FRAGMENTED),
    *(Scenario(GPUS, i, (SHARE,)) for i in (share_pod("share", 8), whole_pod("whole", 2))),
)
"""In one of them at least, a plugin rejects a node or prefers one."""

WITH_DEFAULTS = [plugin for plugin in SHIPPED if plugin is not Rules]
"""A rule has no default; its contract is in `tests/plugins/rules/test_plugin.py`."""


def contract_of(of: type[Any], *given: Scenario) -> PluginContract:
    class Contract(PluginContract):
        plugin = of
        args = ARGS.get(of.name, {})
        scenarios = given

    return Contract()


@pytest.mark.parametrize("plugin", WITH_DEFAULTS, ids=lambda plugin: plugin.name)
@settings(max_examples=12, deadline=None)
@given(scenario=scenarios())
def test_a_shipped_plugin_keeps_every_rule(plugin: type[Any], scenario: Scenario) -> None:
    contract = contract_of(plugin, scenario)
    for rule in RULES:
        getattr(contract, rule)()


@pytest.mark.parametrize("rule", OF_ALL_SCENARIOS)
@pytest.mark.parametrize(
    "plugin",
    [p for p in WITH_DEFAULTS if p.name != "EqualPriority"],
    ids=lambda plugin: plugin.name,
)
def test_a_shipped_plugin_rejects_and_prefers_nodes(plugin: type[Any], rule: str) -> None:
    """EqualPriority, which scores all nodes alike on purpose, is left out."""
    getattr(contract_of(plugin, *SCENARIOS), rule)()
