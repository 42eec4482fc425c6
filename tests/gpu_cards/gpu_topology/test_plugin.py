"""Whole cards: their number and type, their links, and unbroken groups."""

from collections.abc import Sequence
from typing import Any

import pytest

from devices.assuming import Assuming
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.framework.verdicts import Unschedulable
from mooring.gpu_cards.gpu_topology.plugin import GPUTopology
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod
from plugin_answers import PluginAnswers, Rejected

PREFIX = "scheduling.mooring.dev/gpu"


def matrix(groups: Sequence[int], inside: str = "NV4", between: str = "SYS") -> list[list[str]]:
    """Return the link codes of cards in groups: `inside` within a group, else `between`."""
    of = [group for group, size in enumerate(groups) for _ in range(size)]
    count = len(of)
    return [
        ["X" if i == j else inside if of[i] == of[j] else between for j in range(count)]
        for i in range(count)
    ]


def rejections(raw: dict[str, Any], *objects: dict[str, Any]) -> dict[str, Rejected]:
    answer = PluginAnswers(GPUTopology, *objects).rejections(raw)
    assert answer is not None
    return answer


def test_a_pod_gets_the_best_connected_free_set() -> None:
    held = whole_pod("held", 1, node="n", on="1")
    asked = Assuming(GPUTopology, gpu_node("n", 6, links=matrix((3, 3))), held)
    new = whole_pod("new", 3)
    assert asked.reserve(new, "n") is None
    assert asked.cards(new) == ((3, 4, 5),)
    assert asked.annotations(new, "n") == {"scheduling.mooring.dev/gpu-cards": "3,4,5"}


@pytest.mark.parametrize(
    ("raw", "wanted", "annotations", "reason", "resolvable"),
    [
        (gpu_node("n", 0), 1, {}, "node(s) had no usable GPU", False),
        (gpu_node("n", 2), 4, {}, "node(s) had fewer GPUs than requested", False),
        (gpu_node("n", 4), 4, {}, "Insufficient free GPUs", True),
        (
            gpu_node("n", 4, 16),
            1,
            {f"{PREFIX}-memory-at-least": "40000"},
            "node(s) had no GPU of the requested type or memory",
            False,
        ),
        (
            gpu_node("n", 4, links=matrix((2, 2))),
            3,
            {f"{PREFIX}-link-required": "NVLink"},
            "node(s) had no GPUs linked as requested",
            False,
        ),
        (
            gpu_node("n", 4, links=matrix((2, 2), inside="PIX")),
            3,
            {f"{PREFIX}-link-required": "NUMANode"},
            "node(s) had no GPUs linked as requested",
            False,
        ),
        (
            gpu_node("n", 4, links=matrix((2, 2))),
            2,
            {f"{PREFIX}-link-required": "NVLink"},
            None,
            True,
        ),
        (
            gpu_node("n", 4, links=matrix((3, 1))),
            3,
            {f"{PREFIX}-link-required": "NVLink"},
            "node(s) had no free GPUs linked as requested",
            True,
        ),
    ],
)
def test_a_node_is_rejected_for_the_first_reason_that_holds(
    raw: dict[str, Any],
    wanted: int,
    annotations: dict[str, str],
    reason: str | None,
    *,
    resolvable: bool,
) -> None:
    held = share_pod("held", 1, node="n", card=0)
    expected = {} if reason is None else {"n": Rejected((reason,), resolvable)}
    assert rejections(whole_pod("new", wanted, annotations=annotations), raw, held) == expected


def test_only_cards_of_the_wanted_type_are_chosen_where_they_differ() -> None:
    described = [{"product": name, "memory": 16384} for name in ("T4", "A100", "T4", "A100")]
    new = whole_pod("new", 2, annotations={f"{PREFIX}-type": "A100"})
    asked = Assuming(GPUTopology, gpu_node("n", 4, described=described))
    assert asked.reserve(new, "n") is None
    assert asked.cards(new) == ((1, 3),)


def test_better_linked_nodes_score_higher() -> None:
    objects = (
        gpu_node("nvlink", 2, links=matrix((2,))),
        gpu_node("switch", 2, links=matrix((2,), inside="PIX")),
        gpu_node("system", 2, links=matrix((1, 1))),
    )
    scores = PluginAnswers(GPUTopology, *objects).scores(whole_pod("new", 2))
    assert scores is not None
    assert scores["nvlink"] > scores["switch"] > scores["system"]


def test_a_link_that_is_preferred_is_as_good_as_any_better_one() -> None:
    objects = (
        gpu_node("nvlink", 2, links=matrix((2,))),
        gpu_node("switch", 2, links=matrix((2,), inside="PIX")),
        gpu_node("system", 2, links=matrix((1, 1))),
    )
    wants = whole_pod("new", 2, annotations={f"{PREFIX}-link-preferred": "PCIeSwitch"})
    scores = PluginAnswers(GPUTopology, *objects).scores(wants)
    assert scores is not None
    assert scores["nvlink"] == scores["switch"] > scores["system"]


@pytest.mark.parametrize("wanted", [1, 2])
def test_few_cards_do_not_break_up_the_last_group_of_four_or_eight(wanted: int) -> None:
    objects = (
        gpu_node("eight", 8),
        gpu_node("seven", 8),
        whole_pod("a", 1, node="seven", on="0"),
        gpu_node("four", 4),
        gpu_node("three", 4),
        whole_pod("b", 1, node="three", on="0"),
    )
    scores = PluginAnswers(GPUTopology, *objects).scores(whole_pod("new", wanted))
    assert scores is not None
    assert scores["three"] > scores["four"] > scores["eight"]
    assert scores["seven"] > scores["eight"]


def test_pods_without_whole_cards_are_left_alone() -> None:
    answers = PluginAnswers(GPUTopology, gpu_node("n"))
    for raw in (pod("plain"), share_pod("share")):
        assert answers.rejections(raw) is None
        assert answers.scores(raw) is None


def test_a_request_that_cannot_be_read_is_told_to_its_owner() -> None:
    wrong = whole_pod("p", 2, annotations={f"{PREFIX}-link-required": "fast"})
    answer = Assuming(GPUTopology, gpu_node("n")).plugin.pre_filter(parse_pod(wrong), None)
    assert isinstance(answer, Unschedulable)
    assert "gpu-link-required: 'fast' must be one of" in answer.reason
