"""What the queueSort plugins say, and what happens to those that say nothing sensible."""

import logging
from typing import Any, ClassVar

import pytest

from mooring.engine.order import QueueOrder
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.handle import Handle
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.registry import NoArgs, Registry
from mooring.model.pod import parse_pod
from mooring.plugins import SHIPPED
from mooring.queueing.active import Order
from mooring.testing.builders import pod
from scheduler_states import put_profile, scheduler_state


class ByLabel:
    """Sorts by a label, which should be a number."""

    name: ClassVar[str] = "ByLabel"
    row_local: ClassVar[bool] = True

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def sort_key(self, queued: QueuedPod) -> tuple[Any, ...]:
        order = queued.pod.labels["order"]
        return ([order],) if order == "odd" else (int(order),)


PLUGINS = Registry((*SHIPPED, ByLabel), {})
SORTED = {"queueSort": {"enabled": [{"name": "ByLabel"}], "disabled": [{"name": "*"}]}}


def waiting(name: str, order: str = "0", **fields: Any) -> QueuedPod:
    parsed = parse_pod(pod(name, labels={"order": order}, **fields))
    return QueuedPod(parsed, first_seen=0.0, since=7.0)


@pytest.fixture
def shared() -> SchedulerState:
    return scheduler_state(registry=PLUGINS)


def order(shared: SchedulerState) -> QueueOrder:
    return QueueOrder(shared.profiles, shared.cluster)


def test_the_plugin_of_the_pods_profile_sorts_it(shared: SchedulerState) -> None:
    put_profile(shared)
    put_profile(shared, "labelled", registry=PLUGINS, plugins=SORTED)
    place = order(shared).of
    assert place(waiting("a", "3", spec={"schedulerName": "labelled"})) < place(
        waiting("b", "20", spec={"schedulerName": "labelled"})
    )
    assert place(waiting("a", priority=2)) < place(waiting("b", priority=1))
    assert place(waiting("a")).sorter == "PrioritySort"


def test_a_pod_without_a_profile_is_sorted_by_priority(shared: SchedulerState) -> None:
    assert order(shared).of(waiting("a", priority=3)) == Order("", (-3, 7.0))


@pytest.mark.parametrize("given", ["no number", "odd"])
def test_a_plugin_that_cannot_sort_is_named_once_and_priority_decides(
    shared: SchedulerState, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    put_profile(shared, registry=PLUGINS, plugins=SORTED)
    place = order(shared).of
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert place(waiting("a", given, priority=3)) == Order("", (-3, 7.0))
    assert caplog.messages == ["plugin ByLabel cannot sort pod default/a: priority decides instead"]


def test_numbers_come_before_texts() -> None:
    class Mixed(ByLabel):
        def sort_key(self, queued: QueuedPod) -> tuple[Any, ...]:
            return (int(queued.pod.name) if queued.pod.name.isdigit() else queued.pod.name,)

    registry = Registry((*SHIPPED, Mixed), {})
    shared = scheduler_state(registry=registry)
    put_profile(shared, registry=registry, plugins=SORTED)
    place = order(shared).of
    assert place(waiting("9")) < place(waiting("10")) < place(waiting("a"))
