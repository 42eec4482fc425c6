from pathlib import Path
from typing import Any

import yaml

from bench.scheduler_perf.objects import csi_node, named_nodes, pods, volumes, with_claim
from bench.scheduler_perf.reading import Operation

NODE = """
metadata: {generateName: n-, labels: {a: b}}
status: {capacity: {cpu: "4"}}
"""


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


def operation(opcode: str = "createNodes", **fields: Any) -> Operation:
    return Operation(opcode, fields)


def test_nodes_have_a_name_of_their_own_and_it_as_their_hostname(tmp_path: Path) -> None:
    path = written(tmp_path, "node.yaml", NODE)
    steps = [operation(count=2), operation(count=2, nodeTemplatePath=path)]
    nodes = [node for at, step in enumerate(steps) for node in named_nodes(step, tmp_path, at)]
    names = [node["metadata"]["name"] for node in nodes]
    assert len({*names}) == 4
    hosts = [node["metadata"]["labels"]["kubernetes.io/hostname"] for node in nodes]
    assert hosts == names
    assert nodes[2]["metadata"]["labels"]["a"] == "b"
    assert nodes[0]["status"]["allocatable"] == {"pods": "110", "cpu": "4", "memory": "32Gi"}


def test_nodes_get_labels_in_turn_and_what_they_have_for_volumes(tmp_path: Path) -> None:
    path = written(tmp_path, "node.yaml", NODE)
    zones = {"labelKey": "zone", "labelValues": ["x", "y"]}
    labelled = operation(count=3, nodeTemplatePath=path, labelNodePrepareStrategy=zones)
    found = [*named_nodes(labelled, tmp_path, 0)]
    assert [node["metadata"]["labels"]["zone"] for node in found] == ["x", "y", "x"]
    strategy = {
        "nodeAllocatable": {"disks": "39"},
        "csiNodeAllocatable": {"ebs": {"count": 39}},
        "migratedPlugins": ["aws"],
    }
    step = operation(count=1, nodeTemplatePath=path, nodeAllocatableStrategy=strategy)
    (node,) = named_nodes(step, tmp_path, 0)
    assert node["status"]["allocatable"] == {"cpu": "4", "disks": "39"}
    described = csi_node(step, "n1")
    assert described is not None
    assert described["spec"]["drivers"] == [
        {"name": "ebs", "nodeID": "n1", "allocatable": {"count": 39}}
    ]
    assert csi_node(labelled, "n1") is None


def test_a_label_that_is_unique_is_so(tmp_path: Path) -> None:
    step = operation(count=3, uniqueNodeLabelStrategy={"labelKey": "id"})
    nodes = [*named_nodes(step, tmp_path, 0)]
    assert len({node["metadata"]["labels"]["id"] for node in nodes}) == 3


def test_pods_are_for_the_scheduler_and_signed_in_batches(tmp_path: Path) -> None:
    text = "metadata: {labels: {a: b}}\nspec: {n: '{{.Index}}', x: '{{.size}}'}"
    path = written(tmp_path, "pod.yaml", text)
    step = operation(count=3, signatureBatchSize=2, templateParams={"size": 7})
    found = [*pods(step, tmp_path, path, "mooring")]
    specs = [{"schedulerName": "mooring", "n": str(index), "x": "7"} for index in range(3)]
    assert [pod["spec"] for pod in found] == specs
    signatures = [pod["metadata"]["labels"]["signature"] for pod in found]
    assert signatures == ["signature-label-0", "signature-label-0", "signature-label-1"]


def test_a_pod_keeps_the_scheduler_that_its_template_names(tmp_path: Path) -> None:
    path = written(tmp_path, "pod.yaml", "spec: {schedulerName: own}")
    (pod,) = pods(operation(count=1, podTemplatePath=path), tmp_path, None, "mooring")
    assert pod["spec"]["schedulerName"] == "own"


def test_pods_without_a_template_are_upstreams_plain_ones(tmp_path: Path) -> None:
    (pod,) = pods(operation(count=1), tmp_path, None, "mooring")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "500Mi"}


def test_a_claim_and_its_volume_are_bound_to_each_other(tmp_path: Path) -> None:
    paths = {
        "persistentVolumeClaimTemplatePath": written(tmp_path, "claim.yaml", "spec: {a: b}"),
        "persistentVolumeTemplatePath": written(
            tmp_path, "volume.yaml", yaml.safe_dump({"spec": {"csi": {"driver": "d"}}})
        ),
    }
    (first, second) = volumes(operation(count=2, **paths), tmp_path, "ns")
    claim, volume = second
    assert claim["spec"] == {"a": "b", "volumeName": "ns-vol-1"}
    assert volume["spec"]["csi"] == {"driver": "d", "volumeHandle": "ns-vol-1"}
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"] == "pvc-1"
    assert first[1]["spec"]["csi"]["volumeHandle"] == "ns-vol-0"
    pod = with_claim({"spec": {"x": 1}}, 1)
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "pvc-1"}
