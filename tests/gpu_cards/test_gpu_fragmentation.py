"""Nodes score higher if more of their GPU stays usable."""

import pytest

from deciding import Deciding
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.framework.plugin_failures import PluginFailed
from mooring.gpu_cards.gpu_fragmentation import GPUFragmentation
from mooring.scheduling.outcome import ScheduleResult
from mooring.testing.builders import pod
from plugin_answers import PluginAnswers

OTHERS = (
    gpu_node("far", 16, 16),
    *(whole_pod(f"w{i}", 1, node="far", on=str(i)) for i in range(8)),
    *(share_pod(f"s{i}", 8, node="far", card=8 + i) for i in range(8)),
)
"""Half of the demand is whole cards, half is halves of one."""


def test_attempts_count_the_cards_of_all_nodes_one_after_the_other() -> None:
    enabled = {"multiPoint": {"enabled": [{"name": "GPUFragmentation"}]}}
    nodes = [gpu_node(f"n{i}", 2, 16) for i in range(3)]
    deciding = Deciding(*nodes, plugins=enabled, most_per_attempt=1)
    for _ in range(2):
        with pytest.raises(PluginFailed):
            deciding.outcome(pod("plain"))
    assert isinstance(deciding.outcome(pod("plain")), ScheduleResult)


def test_a_share_rather_goes_beside_another_than_onto_a_free_card() -> None:
    answers = PluginAnswers(
        GPUFragmentation,
        *OTHERS,
        gpu_node("empty", 2, 16),
        gpu_node("half", 2, 16),
        share_pod("h", 8, node="half", card=0),
    )
    scores = answers.scores(share_pod("new", 8), "empty", "half")
    assert scores is not None
    assert scores["half"] > 50 > scores["empty"]


def test_a_whole_card_rather_comes_from_a_node_where_it_is_of_no_other_use() -> None:
    answers = PluginAnswers(
        GPUFragmentation,
        gpu_node("far", 16, 16),
        *(whole_pod(f"w{i}", 4, node="far", on=f"{i % 13},13,14,15") for i in range(16)),
        gpu_node("four", 4, 16),
        gpu_node("three", 3, 16),
    )
    scores = answers.scores(whole_pod("new", 1), "four", "three")
    assert scores is not None
    assert scores["three"] > scores["four"]


def test_a_pod_without_cards_rather_goes_where_cards_keep_their_cpu() -> None:
    others = (
        gpu_node("far", 16, 16),
        *(whole_pod(f"w{i}", 1, cpu="8", node="far", on=str(i)) for i in range(8)),
    )
    scores = PluginAnswers(
        GPUFragmentation, *others, gpu_node("cards", 1, 16, cpu="8"), gpu_node("plain", 0, cpu="8")
    ).scores(pod("new", cpu="1"))
    assert scores is not None
    assert scores["plain"] == 50 > scores["cards"]


def test_much_cpu_is_rather_taken_where_all_cards_keep_enough() -> None:
    """Both nodes have enough cpu for several requests; only one has enough for all its cards."""
    others = (
        gpu_node("far", 16, 16),
        *(whole_pod(f"w{i}", 1, cpu="8", node="far", on=str(i)) for i in range(8)),
    )
    nodes = (gpu_node("little", 4, 16, cpu="32"), gpu_node("much", 4, 16, cpu="96"))
    answers = PluginAnswers(GPUFragmentation, *others, *nodes)
    scores = answers.scores(whole_pod("new", 1, cpu="16"))
    assert scores is not None
    assert scores["much"] > scores["little"]
    scores = answers.scores(share_pod("new", 8, cpu="16"))
    assert scores is not None
    assert scores["much"] > scores["little"]


def test_a_request_that_cannot_be_read_is_left_to_the_filters() -> None:
    answers = PluginAnswers(GPUFragmentation, *OTHERS, preset="kai")
    assert answers.scores(pod("odd", annotations={"gpu-fraction": "x"})) is None
