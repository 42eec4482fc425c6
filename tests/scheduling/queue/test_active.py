"""The order of pods in the active queue, and failures of a QueueSort plugin."""

import logging
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import pytest

from mooring.framework.plugin import QueuedPodInfo
from mooring.framework.plugin_failures import PluginFailures
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.active import ActivePods
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline, queued_pod

DEFAULT = pipeline()


class One:
    """A QueueSort plugin that sorts by a pod's label `key`."""

    name: ClassVar[str] = "One"
    depends_on_node_only: ClassVar[bool] = True

    def sort_key(self, queued: QueuedPodInfo) -> tuple[Any, ...]:
        key = queued.pod.labels["key"]
        if key == "fail":
            raise ValueError("no key")
        odd: dict[str, Any] = {"wrong": ([key],), "nan": (float("nan"),), "endless": count()}
        if key in odd:
            answer: tuple[Any, ...] = odd[key]
            return answer
        return (int(key) if key.isdigit() else key,)


class Two(One):
    """A second QueueSort plugin."""

    name = "Two"


SORTED = {
    plugin.name: replace(DEFAULT, queue_sort=plugin(), distributions={plugin.name: "acme"})
    for plugin in (One, Two)
}


def queued(name: str, ticket: int = 0, *, by: str = "", key: str = "", **fields: Any) -> QueuedPod:
    """Return a queued pod; its profile sorts with the plugin `by`, or with the default plugin."""
    timestamp = fields.pop("timestamp", 7.0)
    raw = pod(name, labels={"key": key}, **fields)
    return queued_pod(raw, SORTED.get(by, DEFAULT), timestamp=timestamp, ticket=ticket)


def popped(*pods: QueuedPod) -> list[str]:
    """Return the names of the pods in the order in which they are popped."""
    active = ActivePods()
    for entry in pods:
        active.add(entry)
    names = []
    while (first := active.pop(0.0)) is not None:
        names.append(first.pod.name)
    return names


def test_pods_of_one_plugin_come_in_its_order() -> None:
    pods = [queued(f"p{key}", by="One", key=key, priority=int(key)) for key in ("3", "1", "2")]
    assert popped(*pods) == ["p1", "p2", "p3"]


def test_the_default_is_priority_then_time() -> None:
    assert popped(
        queued("low"),
        queued("late", priority=1, timestamp=9.0),
        queued("early", priority=1, timestamp=8.0),
    ) == ["early", "late", "low"]


def test_pods_with_equal_keys_come_as_they_were_added() -> None:
    pods = [queued(name, ticket) for ticket, name in enumerate(("c", "a", "b"))]
    assert popped(*pods) == ["c", "a", "b"]


def test_pods_of_different_plugins_take_turns_by_priority_then_time() -> None:
    assert popped(
        queued("a1", by="One", key="1", priority=5, timestamp=3.0),
        queued("a2", by="One", key="2", priority=9),
        queued("b1", by="Two", key="1", priority=5, timestamp=2.0),
        queued("b2", by="Two", key="2", priority=1),
    ) == ["b1", "a1", "a2", "b2"]


def test_a_pod_whose_ticket_changed_is_not_popped() -> None:
    active = ActivePods()
    gone, stays = queued("gone", 1), queued("stays", 2, priority=-1)
    active.add(gone)
    active.add(stays)
    gone.ticket = 3
    assert active.pop(0.0) is stays
    assert active.pop(0.0) is None


def test_numbers_come_before_texts() -> None:
    pods = [queued(key, by="One", key=key) for key in ("a", "10", "9")]
    assert popped(*pods) == ["9", "10", "a"]


_EXPECTED = "it must return a tuple of numbers and texts"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("fail", "failed at QueueSort: ValueError: no key"),
        ("wrong", f"sort_key returned tuple; {_EXPECTED}"),
        ("nan", f"sort_key returned tuple; {_EXPECTED}"),
        ("endless", f"sort_key returned count; {_EXPECTED}"),
    ],
)
def test_a_plugin_that_cannot_sort_is_logged_once_and_priority_decides(
    key: str,
    problem: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SORTED, "One", replace(SORTED["One"], failures=PluginFailures()))
    with caplog.at_level(logging.ERROR):
        assert popped(
            queued("low", by="One", key=key), queued("high", by="One", key=key, priority=3)
        ) == ["high", "low"]
    (message,) = caplog.messages
    assert message.partition(" (test_active.py:")[0] == f"plugin One of acme: {problem}"
