"""The common behaviour of GPUShare and GPUTopology."""

from typing import Any, NamedTuple

import pytest

from deciding import Deciding
from devices.assuming import Assuming
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.gpu_cards.card_plugin import CardPlugin
from mooring.gpu_cards.gpu_share.plugin import GPUShare
from mooring.gpu_cards.gpu_topology.plugin import GPUTopology
from mooring.scheduling.outcome import ScheduleResult
from mooring.testing.builders import pod
from plugin_answers import PluginAnswers


class Case(NamedTuple):
    plugin: type[CardPlugin]
    pod: dict[str, Any]
    """A pod for whose cards the plugin is."""


CASES = (Case(GPUShare, share_pod("new", 4)), Case(GPUTopology, whole_pod("new", 2)))
each_plugin = pytest.mark.parametrize("case", CASES, ids=lambda case: case.plugin.name)


@each_plugin
def test_the_binding_carries_the_cards_that_were_reserved(case: Case) -> None:
    asked = Assuming(case.plugin, gpu_node("n", 2, 16))
    assert asked.reserve(case.pod, "n") is None
    assert asked.cards(case.pod)
    assert asked.annotations(case.pod, "n")


@each_plugin
def test_a_pod_that_requests_no_cards_is_left_alone(case: Case) -> None:
    asked = Assuming(case.plugin, gpu_node("n", 2, 16))
    assert asked.reserve(pod("plain"), "n") is None
    assert asked.annotations(pod("plain"), "n") == {}


@each_plugin
def test_a_pod_without_reserved_cards_is_not_bound(case: Case) -> None:
    asked = Assuming(case.plugin, gpu_node("n", 2, 16))
    with pytest.raises(PluginError, match="no GPU is assigned to default/new"):
        asked.annotations(case.pod, "n")


@each_plugin
def test_a_card_that_was_lost_meanwhile_is_not_reserved(case: Case) -> None:
    asked = Assuming(case.plugin, gpu_node("n", 1, unhealthy="0"))
    answer = asked.reserve(case.pod, "n")
    assert answer == Unschedulable("GPUs of node n are not free any more")


@each_plugin
def test_attempts_count_the_cards_of_all_nodes_one_after_the_other(case: Case) -> None:
    enabled = {"multiPoint": {"enabled": [{"name": case.plugin.name}]}}
    nodes = [gpu_node(f"n{i}", 2, 16) for i in range(5)]
    deciding = Deciding(*nodes, plugins=enabled, most_per_attempt=1)
    assert isinstance(deciding.outcome(pod("plain")), ScheduleResult)
    for _ in range(4):
        with pytest.raises(PluginFailed, match="counting the GPUs of the nodes takes longer"):
            deciding.outcome(case.pod)
    assert isinstance(deciding.outcome(case.pod), ScheduleResult)


@each_plugin
def test_a_pod_is_queued_when_cards_may_be_free_or_a_node_changed(case: Case) -> None:
    asked, waiting = PluginAnswers(case.plugin, gpu_node("n")), case.pod
    assert asked.queueing_hint(waiting, before=share_pod("gone", node="n"))
    assert asked.queueing_hint(waiting, before=whole_pod("gone", node="n"))
    assert not asked.queueing_hint(waiting, before=pod("gone", node="n"))
    assert asked.queueing_hint(waiting, after=gpu_node("n"))
    assert asked.queueing_hint(waiting, before=gpu_node("n", unhealthy="0"), after=gpu_node("n"))
    assert not asked.queueing_hint(
        waiting, before=gpu_node("n"), after=gpu_node("n", conditions={"MemoryPressure": "True"})
    )
    moved = share_pod("other", node="n", card=1)
    assert asked.queueing_hint(waiting, before=share_pod("other", node="n", card=0), after=moved)
    assert not asked.queueing_hint(waiting, before=moved, after=moved)


@each_plugin
def test_a_pod_whose_request_cannot_be_read_frees_no_cards(case: Case) -> None:
    wrong = whole_pod(
        "gone", node="n", annotations={"scheduling.mooring.dev/gpu-link-required": "fast"}
    )
    asked = PluginAnswers(case.plugin, gpu_node("n"))
    assert not asked.queueing_hint(case.pod, before=wrong)
