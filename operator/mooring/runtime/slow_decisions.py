"""Finds the plugins that make decisions slow, without timing each call in ordinary attempts.

Timing each call of a plugin would cost two readings of the clock, and a dry run of preemption makes
thousands of calls. So only whole decisions are timed. After a decision that took too long, the next
`TIMED_ATTEMPTS` attempts of its profile run with a copy of the pipeline that times every deciding
method. The copy has no cached results, so node-only plugins run for all nodes and are timed as
well.

The times of all calls at one extension point are added up over an attempt, without the time of
other plugins that a plugin calls. A sum beyond the limit is a failure of kind `slow`.

If no other slow decision follows, the slow plugin stays unknown. To run the decision again at once
would double the delay of all other pods.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from mooring.framework.plugin import Plugin
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.runtime.pipeline import Pipeline

__all__ = ["TIMED_ATTEMPTS", "SlowDecisions"]

logger = logging.getLogger(__name__)

TIMED_ATTEMPTS: Final = 16
_MOST_PIPELINES: Final = 64

_POINTS: Final = {
    "pre_filter": ExtensionPoint.PRE_FILTER,
    "filter": ExtensionPoint.FILTER,
    "explain": ExtensionPoint.FILTER,
    "devices_version": ExtensionPoint.FILTER,
    "filter_key": ExtensionPoint.FILTER,
    "resource_requests": ExtensionPoint.FILTER,
    "post_filter": ExtensionPoint.POST_FILTER,
    "pre_score": ExtensionPoint.PRE_SCORE,
    "score": ExtensionPoint.SCORE,
    "score_key": ExtensionPoint.SCORE,
}
"""The extension point for which the time of each deciding method counts."""


class SlowDecisions:
    """Chooses the ordinary or the timed pipeline, depending on earlier decisions."""

    def __init__(self) -> None:
        self._timed: dict[Pipeline, _TimedPipeline] = {}

    def pipeline_for(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline, or after a slow decision its timed copy, with all times reset."""
        if not self._timed:
            return pipeline
        timed = self._timed.get(pipeline)
        return timed.begin() if timed is not None else pipeline

    def decided(self, pipeline: Pipeline, pod: str, seconds: float) -> None:
        """Time plugins in the next attempts if this decision was slow; record slow plugins.

        `pipeline` is the argument with which `pipeline_for` was called before the decision.
        """
        slow = seconds > pipeline.failures.slow_seconds
        if not self._timed and not slow:
            return
        timed = self._timed.get(pipeline)
        if timed is None:
            if slow:
                text = "deciding about pod %s took %.3g s: plugins of profile %s are timed now"
                logger.warning(text, pod, seconds, pipeline.profile)
                if len(self._timed) >= _MOST_PIPELINES:
                    self._timed.clear()
                self._timed[pipeline] = _TimedPipeline(pipeline)
            return
        timed.record()
        timed.remaining = TIMED_ATTEMPTS if slow else timed.remaining - 1
        if not timed.remaining:
            del self._timed[pipeline]


class _TimedPipeline:
    """A copy of a pipeline that adds up its plugins' times in one attempt."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.remaining = TIMED_ATTEMPTS
        self._failures = pipeline.failures
        self._clock = pipeline.failures.clock
        self._seconds: dict[tuple[str, ExtensionPoint], float] = {}
        self._others = 0.0
        self._pipeline = replace(
            pipeline,
            pre_filter=self._all(pipeline.pre_filter),
            filters=self._all(pipeline.filters),
            post_filter=self._all(pipeline.post_filter),
            pre_score=self._all(pipeline.pre_score),
            scores=tuple(replace(s, plugin=self._of(s.plugin)) for s in pipeline.scores),
            resource_filters={
                name: self._of(plugin) for name, plugin in pipeline.resource_filters.items()
            },
            keyed_filters={name: self._of(p) for name, p in pipeline.keyed_filters.items()},
            keyed_scores={name: self._of(p) for name, p in pipeline.keyed_scores.items()},
            device_reading={
                name: self._of(plugin) for name, plugin in pipeline.device_reading.items()
            },
        )

    def begin(self) -> Pipeline:
        self._seconds.clear()
        self._others = 0.0
        return self._pipeline

    def record(self) -> None:
        for (plugin, point), seconds in self._seconds.items():
            if seconds > self._failures.slow_seconds:
                self._failures.slow(self._pipeline.blamed(plugin, point), seconds)
        self._seconds.clear()

    def run(self, key: tuple[str, ExtensionPoint], method: Callable[..., Any], *args: Any) -> Any:
        """Call the method and add its time, without the time of other plugins that it calls."""
        outer, self._others = self._others, 0.0
        began = self._clock()
        try:
            return method(*args)
        finally:
            took = self._clock() - began
            self._seconds[key] = self._seconds.get(key, 0.0) + took - self._others
            self._others = outer + took

    def _all(self, plugins: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._of(plugin) for plugin in plugins)

    def _of(self, plugin: Plugin) -> Any:
        return _Timed(plugin, self)


class _Timed:
    """A plugin whose deciding methods are timed; its other attributes are unchanged."""

    def __init__(self, plugin: Plugin, pipeline: _TimedPipeline) -> None:
        self._plugin = plugin
        self._pipeline = pipeline

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._plugin, attribute)
        if attribute not in _POINTS:
            return found
        key = (self._plugin.name, _POINTS[attribute])

        def timed(*args: Any) -> Any:
            return self._pipeline.run(key, found, *args)

        return timed
