"""GPU cards on a real API server: what is written, and that a restart keeps every card's books."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import node_object
from devices.objects import COUNT, MEMORY, WHOLE
from e2e.replicas import (
    PROFILES,
    QUICK_LEASE,
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
    profile,
    ready,
)

PREFIX = "ALIYUN_COM_GPU_MEM"
CARDS = "scheduling.mooring.dev/gpu-cards"
CARD = 16
LINKS = (
    '[["X","SYS","NV2","SYS"],["SYS","X","SYS","NV2"],'
    '["NV2","SYS","X","SYS"],["SYS","NV2","SYS","X"]]'
)
"""The linked pairs are 0 and 2, 1 and 3."""


def gpu_node(name: str, cards: int) -> dict[str, Any]:
    capacity = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    amounts = {MEMORY: str(cards * CARD), COUNT: str(cards), WHOLE: str(cards)}
    raw = node_object(name, "zone-1", capacity | amounts, {"cards": str(cards)})
    if cards == 4:
        topology = f'{{"links": {LINKS}}}'
        raw["metadata"]["annotations"] = {"scheduling.mooring.dev/gpu-topology": topology}
    return raw


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        replica.apply_manifests(plane.access)
        with plane.access.client() as client:
            for raw in (gpu_node("a", 2), gpu_node("b", 2), gpu_node("linked", 4)):
                client.post("/api/v1/nodes", raw)
            enabled = [{"name": name} for name in ("GPUShare", "GPUTopology", "GPUFragmentation")]
            client.post(PROFILES, profile("gpus", plugins={"multiPoint": {"enabled": enabled}}))
        yield plane


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with plane.access.client() as client:
        yield client


def share(name: str, memory: int) -> dict[str, Any]:
    amounts = {MEMORY: str(memory)}
    return pod(
        name,
        cpu="1m",
        scheduler="gpus",
        requests=amounts,
        limits=amounts,
        nodeSelector={"cards": "2"},
    )


def whole(name: str, cards: int) -> dict[str, Any]:
    amounts = {WHOLE: str(cards)}
    return pod(
        name,
        cpu="1m",
        scheduler="gpus",
        requests=amounts,
        limits=amounts,
        nodeSelector={"cards": "4"},
    )


def used(client: Client) -> Counter[tuple[str, int]]:
    """What pods have of each card by their annotations, which must be those of gpushare."""
    totals: Counter[tuple[str, int]] = Counter()
    for raw in pods(client, "default").values():
        annotations = raw["metadata"].get("annotations", {})
        node = raw["spec"].get("nodeName")
        if node is None or f"{PREFIX}_IDX" not in annotations:
            continue
        assert annotations[f"{PREFIX}_DEV"] == str(CARD)
        assert annotations[f"{PREFIX}_ASSIGNED"] == "false"
        assert int(annotations[f"{PREFIX}_ASSUME_TIME"]) > 10**18
        totals[node, int(annotations[f"{PREFIX}_IDX"])] += int(annotations[f"{PREFIX}_POD"])
    return totals


def placed(client: Client, *names: str) -> None:
    eventually(lambda: bound(client, "default"), lambda known: {*names} <= {*known}, "bound pods")


def message(client: Client, name: str) -> str:
    """The message of the pod's PodScheduled condition, empty while it has none."""
    conditions = pods(client, "default")[name]["status"].get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def test_every_cards_books_survive_a_kill_and_a_failover(
    client: Client, replicas: Replicas
) -> None:
    first = replicas.start(*QUICK_LEASE)
    first.wait_until_leads()
    eventually(lambda: ready(client.get(f"{PROFILES}/gpus"))[0], lambda s: s == "True", "in force")
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
    assert used(client) == {("a", 0): 16, ("a", 1): 16, ("b", 0): 16, ("b", 1): 16}

    pairs = [pods(client, "default")[f"pair-{i}"]["metadata"]["annotations"][CARDS] for i in (0, 1)]
    assert sorted(pairs) == ["0,2", "1,3"]

    for name in ("early-0", "early-1"):  # two halves, of one card or of two
        delete_now(client, "default", name)
    left = [CARD - used(client)[node, card] for node in ("a", "b") for card in (0, 1)]
    fits = max(left)
    create_pods(client, "default", share("exact", fits))
    placed(client, "exact")
    assert max(used(client).values()) == CARD
    if fits < CARD:
        create_pods(client, "default", share("split", fits + 1))
        eventually(lambda: message(client, "split"), bool, "a reason")
        assert bound(client, "default").get("split") is None
    assert third.terminate() == 0
