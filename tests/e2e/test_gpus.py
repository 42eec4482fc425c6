"""GPU cards on a real API server: annotations, failed writes, groups, restart and failover."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import node_object
from devices.objects import COUNT, MEMORY, WHOLE
from e2e.replicas import (
    PROFILES,
    QUICK_LEASE,
    Replica,
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
    ready,
)
from policies import profile

PREFIX = "ALIYUN_COM_GPU_MEM"
CARDS = "scheduling.mooring.dev/gpu-cards"
CARD = 16
LINKS = (
    '[["X","SYS","NV2","SYS"],["SYS","X","SYS","NV2"],'
    '["NV2","SYS","X","SYS"],["SYS","NV2","SYS","X"]]'
)
"""The linked pairs are 0 and 2, 1 and 3."""


UNHEALTHY = "scheduling.mooring.dev/gpu-unhealthy"
CLIQUE = "nvidia.com/gpu.clique"
"""The label by which GPU feature discovery names a node's NVLink domain, such as an NVL72 rack."""
PRODUCT = "NVIDIA-GB200"
GROUP, MINIMUM = "example.com/group", "example.com/minimum"


def gpu_node(
    name: str, cards: int, use: str, *, lost: int = 0, unhealthy: str = "", clique: str = ""
) -> dict[str, Any]:
    """Return a node for the pods with this `use`; if it has four cards, it has two linked pairs."""
    found = {CLIQUE: clique, "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.count": str(cards)}
    labels = {"use": use, **(found if clique else {})}
    raw = node_object(name, "zone-1", offered(cards), labels)
    raw["status"]["allocatable"] = offered(cards - lost)
    annotations = {UNHEALTHY: unhealthy} if unhealthy else {}
    if cards == 4:
        annotations["scheduling.mooring.dev/gpu-topology"] = f'{{"links": {LINKS}}}'
    raw["metadata"]["annotations"] = annotations
    return raw


def offered(cards: int) -> dict[str, str]:
    amounts = {MEMORY: str(cards * CARD), COUNT: str(cards), WHOLE: str(cards)}
    return {"cpu": "32", "memory": "64Gi", "pods": "110", **amounts}


NODES = (
    gpu_node("a", 2, "books"),
    gpu_node("b", 2, "books"),
    gpu_node("linked", 4, "pairs"),
    gpu_node("named", 2, "named", unhealthy="0"),
    gpu_node("shrunk", 2, "shrunk", lost=1),
    gpu_node("moved", 2, "moved"),
    *(gpu_node(f"repeated-{i}", 4, "repeated") for i in range(4)),
    *(gpu_node(f"small-{i}", 4, "cliques", clique="cluster.1") for i in range(2)),
    *(gpu_node(f"large-{i}", 4, "cliques", clique="cluster.2") for i in range(3)),
)


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    with plane.access.client() as client:
        for raw in NODES:
            client.post("/api/v1/nodes", raw)
        enabled = [{"name": name} for name in ("GPUShare", "GPUTopology", "GPUFragmentation")]
        groups = {"podGroupLabels": [{"name": GROUP, "minimum": MINIMUM}]}
        spec: dict[str, Any] = {
            "plugins": {"multiPoint": {"enabled": enabled}},
            "pluginConfig": [{"name": "GangScheduling", "args": groups}],
        }
        client.post(PROFILES, profile("gpus", **spec))
    return plane


def share(name: str, memory: int, use: str = "books") -> dict[str, Any]:
    return gpu_pod(name, {MEMORY: str(memory)}, use)


def whole(name: str, cards: int, use: str = "pairs", **fields: Any) -> dict[str, Any]:
    return gpu_pod(name, {WHOLE: str(cards)}, use, **fields)


def gpu_pod(name: str, amounts: dict[str, str], use: str, **fields: Any) -> dict[str, Any]:
    return pod(
        name,
        cpu="1m",
        scheduler="gpus",
        requests=amounts,
        limits=amounts,
        nodeSelector={"use": use},
        **fields,
    )


def gang(group: str, size: int, **annotations: str) -> list[dict[str, Any]]:
    """Return pods with two cards each that must be placed in one clique, all or none."""
    members = [whole(f"{group}-{i}", 2, "cliques", labels={GROUP: group}) for i in range(size)]
    for raw in members:
        raw["metadata"]["annotations"] = {
            MINIMUM: str(size),
            "scheduling.mooring.dev/topology-keys": CLIQUE,
            "scheduling.mooring.dev/gpu-link-required": "NVLink",
            "scheduling.mooring.dev/gpu-type": PRODUCT,
            **annotations,
        }
    return members


def used(client: Client, *nodes: str) -> Counter[tuple[str, int]]:
    """Return the memory of each card in use, from the pods' annotations in gpushare's form."""
    totals: Counter[tuple[str, int]] = Counter()
    for raw in pods(client, "default").values():
        annotations = raw["metadata"].get("annotations", {})
        node = raw["spec"].get("nodeName")
        if node not in nodes or f"{PREFIX}_IDX" not in annotations:
            continue
        assert annotations[f"{PREFIX}_DEV"] == str(CARD)
        assert annotations[f"{PREFIX}_ASSIGNED"] == "false"
        assert int(annotations[f"{PREFIX}_ASSUME_TIME"]) > 10**18
        totals[node, int(annotations[f"{PREFIX}_IDX"])] += int(annotations[f"{PREFIX}_POD"])
    return totals


def placed(client: Client, *names: str) -> None:
    eventually(lambda: bound(client, "default"), lambda known: {*names} <= {*known}, "bound pods")


def message(client: Client, name: str) -> str:
    """Return the message of the pod's PodScheduled condition; "" without the condition."""
    conditions = pods(client, "default")[name]["status"].get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def card_of(client: Client, name: str) -> str:
    return str(pods(client, "default")[name]["metadata"]["annotations"][f"{PREFIX}_IDX"])


def started(client: Client, replicas: Replicas, kubeconfig: Path | None = None) -> Replica:
    """Start a replica; return it when it leads and the profile is in force."""
    leader = replicas.start(*QUICK_LEASE, kubeconfig=kubeconfig)
    leader.wait_until_leads()
    eventually(lambda: ready(client.get(f"{PROFILES}/gpus"))[0], lambda s: s == "True", "in force")
    return leader


def mismatches(leader: Replica) -> str:
    _, text = leader.get("/metrics")
    (line,) = re.findall(r"^mooring_gpu_assignment_mismatches_total.*$", text, re.MULTILINE)
    return str(line.split()[-1])


def test_every_cards_books_survive_a_kill_and_a_failover(
    client: Client, replicas: Replicas
) -> None:
    first = started(client, replicas)
    create_pods(client, "default", *(share(f"early-{i}", 8) for i in range(3)), whole("pair-0", 2))
    placed(client, *(f"early-{i}" for i in range(3)), "pair-0")

    second = replicas.start(*QUICK_LEASE)
    create_pods(client, "default", *(share(f"middle-{i}", 4) for i in range(6)))
    first.kill()
    second.wait_until_says("leading:")
    placed(client, *(f"middle-{i}" for i in range(6)))

    third = replicas.start(*QUICK_LEASE)
    assert second.terminate() == 0
    third.wait_until_says("leading:")
    create_pods(client, "default", share("late-0", 8), share("late-1", 8), whole("pair-1", 2))
    placed(client, "late-0", "late-1", "pair-1")
    assert used(client, "a", "b") == {("a", 0): 16, ("a", 1): 16, ("b", 0): 16, ("b", 1): 16}

    pairs = [pods(client, "default")[f"pair-{i}"]["metadata"]["annotations"][CARDS] for i in (0, 1)]
    assert sorted(pairs) == ["0,2", "1,3"]

    for name in ("early-0", "early-1"):  # two halves, of one card or of two
        delete_now(client, "default", name)
    left = [CARD - used(client, "a", "b")[node, card] for node in ("a", "b") for card in (0, 1)]
    fits = max(left)
    create_pods(client, "default", share("exact", fits))
    placed(client, "exact")
    assert max(used(client, "a", "b").values()) == CARD
    if fits < CARD:
        create_pods(client, "default", share("split", fits + 1))
        eventually(lambda: message(client, "split"), bool, "a reason")
        assert bound(client, "default").get("split") is None
    assert third.terminate() == 0


@pytest.mark.parametrize(
    ("node", "path", "repair"),
    [
        ("named", "", {"metadata": {"annotations": {UNHEALTHY: None}}}),
        ("shrunk", "/status", {"status": {"allocatable": offered(2)}}),
    ],
    ids=["an annotation names it", "allocatable shrinks"],
)
def test_a_card_that_is_unhealthy_is_used_again_once_it_is_back(
    client: Client, replicas: Replicas, node: str, path: str, repair: dict[str, Any]
) -> None:
    leader = started(client, replicas)
    create_pods(client, "default", share(f"{node}-0", CARD, node), share(f"{node}-1", CARD, node))
    names = {f"{node}-0", f"{node}-1"}

    def placed_here() -> set[str]:
        return names & {*bound(client, "default")}

    (first,) = eventually(placed_here, bool, "one of the pods is bound")
    (second,) = names - {first}
    eventually(lambda: message(client, second), bool, "a reason")
    assert placed_here() == {first}
    sick = {"0": "1", "1": "0"}[card_of(client, first)]
    assert node == "shrunk" or sick == "0"
    client.patch(f"/api/v1/nodes/{node}{path}", repair)
    placed(client, second)
    assert card_of(client, second) == sick
    assert used(client, node) == {(node, 0): CARD, (node, 1): CARD}
    assert leader.terminate() == 0


def test_if_a_device_plugin_hands_out_another_card_its_annotation_is_right_and_it_is_counted(
    client: Client, replicas: Replicas
) -> None:
    leader = started(client, replicas)
    create_pods(client, "default", share("handed-out", 4, "moved"))
    placed(client, "handed-out")
    assert mismatches(leader) == "0.0"
    chosen = card_of(client, "handed-out")
    actual = {f"{PREFIX}_IDX": {"0": "1", "1": "0"}[chosen], f"{PREFIX}_ASSIGNED": "true"}
    path = "/api/v1/namespaces/default/pods/handed-out"
    client.patch(path, {"metadata": {"annotations": actual}})
    eventually(lambda: mismatches(leader), lambda count: count == "1.0", "the mismatch")
    create_pods(client, "default", share("whole-of-it", CARD, "moved"))
    placed(client, "whole-of-it")
    assert card_of(client, "whole-of-it") == chosen
    assert leader.terminate() == 0


def test_a_group_is_placed_within_one_nvlink_domain_on_linked_cards(
    client: Client, replicas: Replicas
) -> None:
    leader = started(client, replicas)
    create_pods(client, "default", *gang("required", 6))
    names = {f"required-{i}" for i in range(6)}
    placed(client, *names)
    found = pods(client, "default")
    assert {found[name]["spec"]["nodeName"][:5] for name in names} == {"large"}
    cards = Counter(
        (found[name]["spec"]["nodeName"], found[name]["metadata"]["annotations"][CARDS])
        for name in names
    )
    assert cards == {(f"large-{i}", pair): 1 for i in range(3) for pair in ("0,2", "1,3")}

    create_pods(client, "default", *gang("too-large", 5))
    said = eventually(lambda: message(client, "too-large-0"), bool, "a reason")
    assert "4 of 5 members fit in gpu.clique cluster.1" in said
    delete_now(client, "default", "required-0")
    preferred = {"scheduling.mooring.dev/topology-mode": "Preferred"}
    create_pods(client, "default", *gang("preferred", 5, **preferred))
    placed(client, *(f"preferred-{i}" for i in range(5)))
    here = {bound(client, "default")[f"preferred-{i}"] for i in range(5)}
    assert {name[:5] for name in here} == {"small", "large"}
    assert leader.terminate() == 0
