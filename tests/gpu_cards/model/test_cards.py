"""Parses the cards of nodes and the requests of pods, including malformed and hostile ones."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.objects import gpu_node, share_pod, whole_pod
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.model.cards import (
    NO_CARDS,
    CardRequest,
    CardRequestError,
    CardShare,
    NodeCards,
    assignment_text,
    card_request,
    link_rank,
    node_cards,
    parse_assignment,
)
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod

TOPOLOGY = "scheduling.mooring.dev/gpu-topology"
GFD = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.product": "NVIDIA-A100",
}


def cards_of(raw: dict[str, Any], preset: str = "gpushare") -> NodeCards:
    return node_cards(parse_node(raw), PRESETS[preset])


def requested(raw: dict[str, Any], preset: str = "gpushare") -> CardRequest | None:
    return card_request(parse_pod(raw).spec, PRESETS[preset])


def hami(name: str, *containers: dict[str, int]) -> dict[str, Any]:
    return pod(
        name,
        spec={
            "containers": [
                {
                    "name": f"c{i}",
                    "image": "i",
                    "resources": {"limits": {f"nvidia.com/{k}": v for k, v in amounts.items()}},
                }
                for i, amounts in enumerate(containers)
            ]
        },
    )


def test_closer_links_have_higher_ranks() -> None:
    codes = ("?", "SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV12", "NV18")
    ranks = [link_rank(code) for code in codes]
    assert ranks == sorted(set(ranks))
    assert link_rank("NV999") == link_rank("") == 0


def test_gpushare_nodes_publish_the_memory_of_all_cards_together() -> None:
    assert cards_of(gpu_node("n", 4, 16)).memory == (16, 16, 16, 16)


def test_the_memory_of_a_card_does_not_shrink_with_the_cards_that_a_node_loses() -> None:
    cards = cards_of(gpu_node("n", 4, 16, lost=1))
    assert cards.memory == (16, 16, 16, 16)
    assert cards.unnamed == 1
    assert cards_of(gpu_node("n", 4, 16, lost=1, unhealthy="3")).unnamed == 0


@pytest.mark.parametrize("preset", ["hami", "kai"])
@pytest.mark.parametrize(("left", "lost"), [(20, 0), (10, 1), (9, 2), (0, 2)])
def test_a_card_that_is_published_ten_times_over_is_lost_once(
    preset: str, left: int, lost: int
) -> None:
    raw = node("n", labels=GFD, resources={"nvidia.com/gpu": left})
    raw["status"]["capacity"] = {"nvidia.com/gpu": "20"}
    assert cards_of(raw, preset).unnamed == lost


@pytest.mark.parametrize("preset", ["hami", "kai"])
def test_labels_of_gpu_feature_discovery_describe_cards(preset: str) -> None:
    cards = cards_of(node("n", labels=GFD, resources={"nvidia.com/gpu": 20}), preset)
    assert cards.memory == (81920, 81920)
    assert cards.products == ("NVIDIA-A100", "NVIDIA-A100")


def test_an_annotation_describes_cards_that_differ_and_their_links() -> None:
    described = [{"product": "A100", "memory": 81920}, {"product": "T4", "memory": 16384}]
    cards = cards_of(gpu_node("n", 2, 1, described=described, links=[["X", "NV4"], ["PIX", "X"]]))
    assert cards.memory == (80, 16)
    assert cards.products == ("A100", "T4")
    assert cards.links == ((0, 5), (5, 0))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        '{"links":' * 5_000,
        "{",
        "[]",
        "7",
        '{"links": 3}',
        '{"links": [["X","PIX"]]}',
        '{"links": [[1,2],[3,4]]}',
        '{"links": [["X", null],[null, "X"]]}',
        orjson.dumps({"links": [["X"] * 17] * 17}).decode(),
        '{"links": [["X","' + "N" * 20_000 + '"],["PIX","X"]]}',
        '{"cards": [{"memory": -1}, {"memory": 1}]}',
        '{"cards": [{"memory": true}, {"memory": 1}]}',
        '{"cards": [{"memory": 1e300}, {"memory": 1}]}',
        '{"cards": [1, 2]}',
        '{"cards": [{"memory": 1, "product": {}}, {"memory": 1}]}',
    ],
)
def test_a_description_that_cannot_be_read_describes_nothing(text: str) -> None:
    raw = gpu_node("n", 2, 16)
    raw["metadata"]["annotations"] = {TOPOLOGY: text}
    assert cards_of(raw) == cards_of(gpu_node("n", 2, 16))


@given(text=st.text(max_size=60), topology=st.text(max_size=200))
def test_no_text_of_a_node_or_pod_raises_anything_but_the_error_with_a_reason(
    text: str, topology: str
) -> None:
    parse_assignment(text)
    labels = {"nvidia.com/gpu.count": text, "nvidia.com/gpu.memory": text}
    annotations = {TOPOLOGY: topology, "scheduling.mooring.dev/gpu-unhealthy": text}
    cards_of(node("n", labels=labels, annotations=annotations), "kai")
    for key in ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"):
        try:
            requested(pod("p", annotations={"gpu-memory": "1", key: text}), "kai")
        except CardRequestError as error:
            assert key in str(error)  # noqa: PT017 - it may be raised or not


def test_a_node_without_cards_has_none() -> None:
    assert cards_of(node("n")) is NO_CARDS


def test_a_gpushare_pod_requests_one_share_for_all_of_its_containers() -> None:
    assert requested(share_pod("p", 4, cores=20)) == CardRequest((CardShare(1, 4, cores=20),))


def test_a_pod_requests_whole_cards_by_their_number() -> None:
    request = requested(whole_pod("p", 4))
    assert request == CardRequest((CardShare(4, whole=True),))
    assert request.whole_cards == 4
    assert requested(whole_pod("p", 10**9)) == CardRequest((CardShare(17, whole=True),))


def test_each_container_of_a_hami_pod_requests_shares_of_its_own() -> None:
    request = requested(
        hami(
            "p", {"gpu": 2, "gpumem": 3000, "gpucores": 30}, {"gpumem-percentage": 50}, {"gpu": 1}
        ),
        "hami",
    )
    assert request == CardRequest(
        (CardShare(2, 3000, cores=30), CardShare(1, permille=500), CardShare(1, whole=True))
    )


def test_a_pod_with_too_many_shares_is_told_so() -> None:
    with pytest.raises(CardRequestError, match="9 containers request shares"):
        requested(hami("p", *[{"gpumem": 1}] * 9), "hami")
    with pytest.raises(CardRequestError, match="at most 100"):
        requested(hami("p", {"gpumem-percentage": 101}), "hami")


@pytest.mark.parametrize(
    ("annotations", "share"),
    [
        ({"gpu-fraction": "0.5"}, CardShare(1, permille=500)),
        ({"gpu-fraction": "0.0005"}, CardShare(1, permille=1)),
        ({"gpu-fraction": "1"}, CardShare(1, permille=1000)),
        ({"gpu-memory": "2000"}, CardShare(1, 2000)),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, CardShare(2, permille=250)),
    ],
)
def test_a_kai_pod_requests_a_fraction_by_annotation(
    annotations: dict[str, str], share: CardShare
) -> None:
    assert requested(pod("p", annotations=annotations), "kai") == CardRequest((share,))


@pytest.mark.parametrize("text", ["0", "0.0", "1.5", "-0.5", "a lot", "", "1e-3", "x" * 9999])
def test_a_fraction_that_is_none_is_an_error_that_names_the_annotation(text: str) -> None:
    with pytest.raises(CardRequestError, match=r"gpu-fraction: .* must be above 0") as raised:
        requested(pod("p", annotations={"gpu-fraction": text}), "kai")
    assert len(str(raised.value)) < 200


def test_a_pod_restricts_its_cards_by_annotations() -> None:
    prefix = "scheduling.mooring.dev/gpu"
    request = requested(
        whole_pod(
            "p",
            2,
            annotations={
                f"{prefix}-type": "A100, H100",
                f"{prefix}-memory-at-least": "40000",
                f"{prefix}-link-required": "NVLink",
            },
        )
    )
    assert request is not None
    assert request.products == {"A100", "H100"}
    assert request.least_memory == 40000
    assert request.link_required == link_rank("NV1")
    with pytest.raises(CardRequestError, match="must be one of NUMANode, PCIeSwitch, NVLink"):
        requested(whole_pod("p", 2, annotations={f"{prefix}-link-required": "fast"}))
    with pytest.raises(CardRequestError, match="must be a whole number above 0"):
        requested(whole_pod("p", 2, annotations={f"{prefix}-memory-at-least": "40Gi"}))


def test_an_assignment_is_read_as_it_is_written() -> None:
    for assignment in (((0,),), ((0, 1), (3,)), ((15, 2),)):
        assert parse_assignment(assignment_text(assignment)) == assignment


def test_a_share_of_a_card_is_rounded_up() -> None:
    assert CardShare(permille=333).memory_on(16) == 6
    assert CardShare(whole=True).memory_on(16) == 16
