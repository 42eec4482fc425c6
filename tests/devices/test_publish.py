"""The script of the example DaemonSet, from recorded texts to what the scheduler reads."""

import importlib.util
from pathlib import Path
from types import ModuleType

import orjson
import pytest

from devices.objects import gpu_node
from devices.topologies import A100_NVSWITCH, FOUR_ON_TWO_SOCKETS, ONE_CARD, V100_HYBRID_CUBE
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.model.cards import link_rank, node_cards
from mooring.model.node import parse_node

SCRIPT = Path(__file__).parents[2] / "manifests" / "gpu-topology" / "publish.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_links_between_gpus_are_published(script: ModuleType) -> None:
    matrix = script.links(V100_HYBRID_CUBE)
    assert matrix == [
        ["X", "NV1", "NV1", "NV2"],
        ["NV1", "X", "NV2", "NV1"],
        ["NV1", "NV2", "X", "NV2"],
        ["NV2", "NV1", "NV2", "X"],
    ]
    assert script.links(FOUR_ON_TWO_SOCKETS)[2] == ["SYS", "SYS", "X", "PHB"]
    assert script.links(ONE_CARD) == [["X"]]


def test_a_head_in_escape_sequences_is_read(script: ModuleType) -> None:
    matrix = script.links(A100_NVSWITCH)
    assert len(matrix) == 8
    assert {code for row in matrix for code in row} == {"X", "NV12"}


def test_cards_are_read_by_their_index(script: ModuleType) -> None:
    assert script.cards("1, Tesla T4, 15360\n0, NVIDIA A100-SXM4-80GB, 81920\n\n") == [
        {"product": "NVIDIA-A100-SXM4-80GB", "memory": 81920},
        {"product": "Tesla-T4", "memory": 15360},
    ]


def test_the_scheduler_reads_what_the_script_publishes(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv = "\n".join(f"{i}, Tesla V100, 16384" for i in range(4))
    outputs = iter((csv, V100_HYBRID_CUBE))
    monkeypatch.setattr(script, "_output", lambda _: next(outputs))
    raw = gpu_node("n", 4, 16)
    raw["metadata"]["annotations"] = {script.ANNOTATION: script.described()}
    cards = node_cards(parse_node(raw), PRESETS["gpushare"])
    assert cards.products == ("Tesla-V100",) * 4
    assert cards.links[0] == (0, link_rank("NV1"), link_rank("NV1"), link_rank("NV2"))
    assert orjson.loads(raw["metadata"]["annotations"][script.ANNOTATION])["cards"]
