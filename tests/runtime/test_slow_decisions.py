"""After a slow decision the profile's plugins are timed until decisions are fast again."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from mooring.framework.plugin_failures import PluginFailures
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.slow_decisions import TIMED_ATTEMPTS, SlowDecisions
from mooring.testing.fakes import pipeline


class Sleepy:
    """A plugin whose filter takes three seconds."""

    name: ClassVar[str] = "Sleepy"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, timed: "Timed") -> None:
        self._timed = timed

    def filter(self) -> None:
        self._timed.now += 3.0


class Preemptor(Sleepy):
    """A plugin whose post_filter takes two seconds and calls the filter."""

    name = "Preemptor"

    def post_filter(self, inner: Any) -> None:
        self._timed.now += 2.0
        inner.filter()


class Timed:
    """A pipeline with both plugins, and the recorded failures."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counted: list[tuple[str, str, str]] = []
        plugins: Any = {"filters": (Sleepy(self),), "post_filter": (Preemptor(self),)}
        self.pipeline: Pipeline = replace(
            pipeline(),
            failures=PluginFailures(
                count=lambda *labels: self.counted.append(labels), clock=lambda: self.now
            ),
            distributions={"Sleepy": "acme", "Preemptor": "acme"},
            **plugins,
        )
        self.slow = SlowDecisions()

    def decide(self, *, fast: bool = False) -> Pipeline:
        """Make one decision; with `fast`, the slow plugins do not run."""
        used = self.slow.pipeline_for(self.pipeline)
        began = self.now
        if not fast:
            post_filter: Any = used.post_filter[0]
            post_filter.post_filter(used.filters[0])
        self.slow.decided(self.pipeline, "default/web", self.now - began)
        return used


def test_plugins_are_not_timed_while_decisions_are_fast() -> None:
    timed = Timed()
    assert timed.decide(fast=True) is timed.pipeline
    assert timed.decide(fast=True) is timed.pipeline


def test_each_slow_plugin_is_blamed_for_its_own_time(caplog: pytest.LogCaptureFixture) -> None:
    timed = Timed()
    timed.decide()
    assert timed.counted == []
    timed.decide()
    assert sorted(timed.counted) == [
        ("Preemptor", "PostFilter", "slow"),
        ("Sleepy", "Filter", "slow"),
    ]
    seconds = {getattr(record, "seconds", None) for record in caplog.records}
    assert seconds == {None, 2.0, 3.0}


def test_timing_ends_when_decisions_are_fast_again() -> None:
    timed = Timed()
    timed.decide()
    for _ in range(TIMED_ATTEMPTS):
        assert timed.decide(fast=True) is not timed.pipeline
    assert timed.decide(fast=True) is timed.pipeline
