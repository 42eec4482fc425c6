"""Shares of cards: the nodes with room, the chosen card, and the written annotations."""

from typing import Any

import pytest

from devices.assuming import Assuming
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.gpu_cards.gpu_share.plugin import GPUShare
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers, Rejected

SPLIT = "node(s) had enough free GPU memory in sum but not on a single GPU"
TYPE = "scheduling.mooring.dev/gpu-type"
LEAST = "scheduling.mooring.dev/gpu-memory-at-least"
PRODUCT = "nvidia.com/gpu.product"


def rejections(raw: dict[str, Any], *objects: dict[str, Any], **args: Any) -> dict[str, Rejected]:
    answer = PluginAnswers(GPUShare, *objects, **args).rejections(raw)
    assert answer is not None
    return answer


def test_a_pod_that_fits_the_sum_of_a_node_but_no_single_card_is_rejected_with_that_reason() -> (
    None
):
    held = [share_pod(f"p{card}", 6, node="n", card=card) for card in range(2)]
    assert rejections(share_pod("new", 8), gpu_node("n", 2, 10), *held) == {
        "n": Rejected((SPLIT,), resolvable=True)
    }
    assert rejections(share_pod("new", 4), gpu_node("n", 2, 10), *held) == {}


@pytest.mark.parametrize(
    ("raw", "reason", "resolvable"),
    [
        (gpu_node("n", 0), "node(s) had no usable GPU", False),
        (gpu_node("n", 1, unhealthy="0"), "node(s) had no usable GPU", False),
        (gpu_node("n", 4, 4), "node(s) had no GPU large enough", False),
        (
            gpu_node("n", labels={PRODUCT: "T4"}),
            "node(s) had no GPU of the requested type or memory",
            False,
        ),
        (gpu_node("n", 1, 9, labels={PRODUCT: "A100"}), "Insufficient aliyun.com/gpu-mem", True),
    ],
)
def test_a_node_is_rejected_for_the_first_reason_that_holds(
    raw: dict[str, Any], reason: str, *, resolvable: bool
) -> None:
    wants = {TYPE: "A100"} if PRODUCT in raw["metadata"]["labels"] else {}
    held = share_pod("held", 4, node="n", card=0)
    assert rejections(share_pod("new", 8, annotations=wants), raw, held) == {
        "n": Rejected((reason,), resolvable)
    }


def test_compute_counts_beside_memory() -> None:
    held = share_pod("held", 1, cores=80, node="n", card=0)
    full = rejections(share_pod("new", 1, cores=30), gpu_node("n", 1, 16), held)
    assert full == {"n": Rejected(("Insufficient GPU cores",), resolvable=True)}
    assert rejections(share_pod("new", 1, cores=20), gpu_node("n", 1, 16), held) == {}


def test_a_card_that_a_whole_pod_has_is_not_shared() -> None:
    held = whole_pod("held", 2, node="n", on="0,1")
    assert rejections(share_pod("new", 1), gpu_node("n", 2, 16), held).keys() == {"n"}
    assert rejections(share_pod("new", 1), gpu_node("n", 3, 16), held) == {}


def test_a_pod_may_want_a_card_of_a_least_memory() -> None:
    wants = share_pod("new", 1, annotations={LEAST: "40000"})
    small, large = gpu_node("small", 2, 16), gpu_node("large", 2, 40)
    assert rejections(wants, small, large).keys() == {"small"}


def test_the_nodes_of_each_preset_are_understood() -> None:
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "8000"}
    gfd = node("n", labels=labels)
    half = pod("half", annotations={"gpu-fraction": "0.5"})
    assert rejections(half, gfd, preset="kai") == {}
    two = pod("two", requests={"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000})
    three = pod("three", requests={"nvidia.com/gpu": 3, "nvidia.com/gpumem": 4000})
    assert rejections(two, gfd, preset="hami") == {}
    assert rejections(three, gfd, preset="hami").keys() == {"n"}


def test_pods_without_shares_are_left_alone() -> None:
    answers = PluginAnswers(GPUShare, gpu_node("n"))
    for raw in (pod("plain"), whole_pod("whole", 1)):
        assert answers.rejections(raw) is None
        assert answers.scores(raw) is None


def test_a_request_that_cannot_be_read_is_told_to_its_owner() -> None:
    asked = Assuming(GPUShare, gpu_node("n"), preset="kai")
    wrong = parse_pod(pod("p", annotations={"gpu-fraction": "2"}))
    answer = asked.plugin.pre_filter(wrong, None)
    assert isinstance(answer, Unschedulable)
    assert answer.reason.startswith("annotation gpu-fraction: '2' must be above 0")


def test_a_pod_cannot_have_whole_cards_and_shares_at_once() -> None:
    both = pod("p", requests={"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": 4})
    answer = Assuming(GPUShare, gpu_node("n")).plugin.pre_filter(parse_pod(both), None)
    assert answer == Unschedulable(
        "requests whole GPUs and shares of GPUs at once; request one of both"
    )


def test_the_fullest_nodes_score_best_or_the_emptiest() -> None:
    objects = (gpu_node("empty", 2), gpu_node("busy", 2), share_pod("h", 8, node="busy", card=0))
    packed = PluginAnswers(GPUShare, *objects).scores(share_pod("new", 4))
    spread = PluginAnswers(GPUShare, *objects, nodes="Spread").scores(share_pod("new", 4))
    assert packed == {"empty": (25 + 12) // 2, "busy": (75 + 37) // 2}
    assert spread == {name: 100 - score for name, score in packed.items()}


@pytest.mark.parametrize(("cards", "expected"), [("Binpack", 1), ("Spread", 2), ("FirstFit", 0)])
def test_the_card_is_chosen_by_the_profile(cards: str, expected: int) -> None:
    held = (share_pod("a", 4, node="n", card=0), share_pod("b", 8, node="n", card=1))
    asked = Assuming(GPUShare, gpu_node("n", 3, 16), *held, cards=cards)
    assert asked.reserve(share_pod("new", 4), "n") is None
    assert asked.cards(share_pod("new", 4)) == ((expected,),)


def test_the_card_that_keeps_most_space_usable_is_chosen() -> None:
    """Typical requests are 8; they would no longer fit on the card with 8 free."""
    others = [share_pod(f"o{i}", 8, node="far", card=i) for i in range(16)]
    held = (share_pod("a", 8, node="n", card=0), share_pod("b", 6, node="n", card=1))
    cluster = (gpu_node("far", 16, 8), gpu_node("n", 2, 16), *held, *others)
    asked = Assuming(GPUShare, *cluster, cards="LeastFragmentation")
    asked.reserve(share_pod("new", 2), "n")
    assert asked.cards(share_pod("new", 2)) == ((1,),)


def test_the_annotations_are_those_that_gpushares_device_plugin_reads() -> None:
    asked, new = Assuming(GPUShare, gpu_node("n", 2, 16)), share_pod("new", 4)
    asked.reserve(new, "n")
    assert asked.annotations(new, "n") == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1767225600000000000",
    }


@pytest.mark.parametrize("left", [gpu_node("n", 1), gpu_node("n", 0), None])
def test_no_pod_is_bound_to_a_card_that_has_gone_while_it_waited(
    left: dict[str, Any] | None,
) -> None:
    """A member of a gang may wait at Permit for a long time after its card was chosen."""
    asked, new = Assuming(GPUShare, gpu_node("n", 2), cards="Spread"), share_pod("new", 4)
    asked.state.put(Kind.POD, "held", parse_pod(share_pod("held", 4, node="n", card=0)))
    asked.reserve(new, "n")
    assert asked.cards(new) == ((1,),)
    if left is None:
        asked.state.delete(Kind.NODE, "n")
    else:
        asked.state.put(Kind.NODE, "n", parse_node(left))
    with pytest.raises(PluginError, match="GPUs of node n have gone"):
        asked.annotations(new, "n")


def test_cards_of_several_containers_are_written_in_their_order() -> None:
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "8000"}
    limits = [{"nvidia.com/gpumem": 3000}, {"nvidia.com/gpumem": 6000}]
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": limit}}
        for i, limit in enumerate(limits)
    ]
    new = pod("new", spec={"containers": containers})
    asked = Assuming(GPUShare, node("n", labels=labels), preset="hami")
    asked.reserve(new, "n")
    assert asked.annotations(new, "n") == {"scheduling.mooring.dev/gpu-cards": "1;0"}


def test_a_pod_is_tried_again_when_a_node_forgets_its_lost_cards() -> None:
    """A restarted device plugin may publish fewer units; the labels state the number of cards."""
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "16"}

    def with_capacity(units: int) -> dict[str, Any]:
        capacity = {"nvidia.com/gpu": str(units)}
        return node(
            "n", labels=labels, resources={"nvidia.com/gpu": 10}, status={"capacity": capacity}
        )

    def using(name: str, **fields: Any) -> dict[str, Any]:
        return pod(name, requests={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12}, **fields)

    before, after, waiting = with_capacity(20), with_capacity(10), using("new")
    held = using("held", node="n")
    hami: dict[str, Any] = {"preset": "hami"}
    assert {*rejections(waiting, before, held, **hami)} == {"n"}
    assert rejections(waiting, after, held, **hami) == {}
    asked = PluginAnswers(GPUShare, after, held, **hami)
    assert asked.queueing_hint(waiting, before=before, after=after)
