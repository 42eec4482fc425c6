"""Measures extension points and plugins as kube-scheduler does (framework/runtime/framework.go).

Equal pods share results (`mooring.scheduling.result_cache`), and a plugin runs once for many nodes.
So there are three numbers:

- the duration of an extension point, once per decision, even if all results were shared;
- the duration of a plugin's calls, in one attempt in ten, because reading the clock takes long;
- the evaluations of a plugin: the decisions that used its results, new or shared.

Only attempts of the scheduling loop are measured. Filters that preemption runs count as PostFilter.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, Protocol, Self

from mooring.framework.plugin_failures import ExtensionPoint
from mooring.model.events import ClusterEvent
from mooring.pausing import Interrupted

__all__ = [
    "FILTER",
    "PRE_FILTER",
    "PRE_SCORE",
    "SCORE",
    "EvaluationCounter",
    "PluginMetrics",
    "Recorder",
    "Status",
]

_SAMPLED_ONE_IN: Final = 10


class Status(StrEnum):
    """The result of a call: the values of the label `status`, as in kube-scheduler."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"


# Used in every decision: in Python 3.11, looking up the member of an enum takes as long as a call.
PRE_FILTER: Final = ExtensionPoint.PRE_FILTER
FILTER: Final = ExtensionPoint.FILTER
PRE_SCORE: Final = ExtensionPoint.PRE_SCORE
SCORE: Final = ExtensionPoint.SCORE
_SUCCESS: Final = Status.SUCCESS


class EvaluationCounter(Protocol):
    """Counts the evaluations of one plugin at one extension point."""

    value: int


class Recorder(Protocol):
    """Stores measurements; `mooring.observe.metrics.Metrics` implements it. Times are seconds."""

    def extension_point(
        self, point: ExtensionPoint, status: Status, profile: str
    ) -> Callable[[float], None]:
        """Return a function that records how long all plugins at this extension point took."""

    def preemption_evaluated(self, preemptor: str, status: Status, seconds: float) -> None:
        """Record the duration of the search for victims; `preemptor` is `pod` or `podgroup`."""

    def placements_generated(self, profile: str, count: int) -> None:
        """Count the placements that plugins proposed for a pod group."""

    def placement_evaluated(self, profile: str, *, feasible: bool, seconds: float) -> None:
        """Count a placement that was tried for a pod group; `feasible`: whether the group fits."""

    def plugin_ran(
        self, plugin: str, point: ExtensionPoint, status: Status, seconds: float
    ) -> None:
        """Count a call of a plugin, and record its duration in seconds."""

    def queueing_hint_ran(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """Count a run of a queueing hint for this event; `hint` is Queue, QueueSkip or Error."""

    def evaluations(self, plugin: str, point: ExtensionPoint, profile: str) -> EvaluationCounter:
        """Return the counter of the plugin's evaluations at this point; callers increase it."""

    def keep_profiles(self, profiles: Container[str]) -> None:
        """Forget the records of all profiles except `profiles`."""


class PluginMetrics:
    """Measures one attempt at a time; does nothing without a recorder.

    `clock` must stand still while the attempt pauses and other tasks run.
    """

    def __init__(
        self, recorder: Recorder | None = None, *, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._recorder = recorder
        self.clock = clock
        self.sampled = False
        """Whether the calls of plugins are measured now."""
        self.deciding = False
        """Whether a decision of the loop runs now, outside of its dry runs."""
        self._last = 0.0
        self._seconds: dict[ExtensionPoint, float] = {}
        self._statuses: dict[ExtensionPoint, Status] = {}
        self._notes: dict[tuple[ExtensionPoint, Status, str], Callable[[float], None]] = {}
        self._random = 1

    def begin_attempt(self) -> bool:
        """Choose whether to measure plugin calls; return the former choice, for `end_attempt`."""
        # PreEnqueue of other pods may begin and end inside an attempt.
        outer = self.sampled
        if self._recorder is not None:
            # Not every tenth: with pods of two kinds in turn, those would all be of one kind.
            self._random = (self._random * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
            self.sampled = not (self._random >> 16) % _SAMPLED_ONE_IN
        return outer

    def end_attempt(self, outer: bool) -> None:  # noqa: FBT001 - what begin_attempt returned
        """End an attempt: return to the choice `outer`, which `begin_attempt` has returned."""
        self.sampled = outer

    def begin_decision(self) -> None:
        """Begin to measure the extension points of a decision."""
        self.deciding = self._recorder is not None

    def mark(self) -> None:
        """Start the time that the next `lap` adds to its extension point."""
        if self.deciding:
            self._last = self.clock()

    def lap(self, point: ExtensionPoint) -> None:
        """Add the time since `mark`, or since the last `lap`, to this extension point."""
        if self.deciding:
            now = self.clock()
            self._seconds[point] = self._seconds.get(point, 0.0) + now - self._last
            self._last = now

    @contextmanager
    def all_at(self, point: ExtensionPoint) -> Iterator[None]:
        """Add the time inside this context to the extension point; `lap` does nothing meanwhile."""
        outer, began = self.deciding, self.clock()
        self.deciding = False
        try:
            yield
        except BaseException as error:
            self.deciding, self._last = outer, began
            self.lap(point)
            if not isinstance(error, Interrupted):
                self.ended_with(point, Status.ERROR)
            raise
        self.deciding, self._last = outer, began
        self.lap(point)

    def placements_generated(self, profile: str, count: int) -> None:
        """Count the placements that plugins proposed for the pod group of this decision."""
        if self._recorder is not None and self.deciding:
            self._recorder.placements_generated(profile, count)

    def placement_evaluated(self, profile: str, *, feasible: bool, began: float) -> None:
        """Count a placement that was tried for a pod group, and record how long this took.

        `began` is the time of `clock` before the placement was tried.
        """
        if self._recorder is not None and self.deciding:
            seconds = self.clock() - began
            self._recorder.placement_evaluated(profile, feasible=feasible, seconds=seconds)

    def ended_with(self, point: ExtensionPoint, status: Status) -> None:
        """Set the extension point's status in this decision; the default is Success."""
        if self.deciding:
            self._statuses[point] = status

    def failed(self, point: ExtensionPoint) -> None:
        """Add the time since the last `lap` to this point, and set its status to Error."""
        self.lap(point)
        self.ended_with(point, Status.ERROR)

    def end_decision(self, profile: str, *, of: str = "pod") -> None:
        """Record the duration of each extension point; `of` is `pod` or `podgroup`."""
        if self._recorder is None or not self.deciding:
            return
        self.deciding = False
        for point, seconds in self._seconds.items():
            self.ran(point, self._statuses.get(point, _SUCCESS), profile, seconds)
        searched = self._seconds.get(ExtensionPoint.POST_FILTER)
        if searched is not None:
            status = self._statuses.get(ExtensionPoint.POST_FILTER, _SUCCESS)
            self._recorder.preemption_evaluated(of, status, searched)
        self._seconds.clear()
        self._statuses.clear()

    def extension_point(self, point: ExtensionPoint, profile: str) -> "Measured":
        """Return a context that measures an extension point outside of decisions."""
        return Measured(self, point, profile)

    def ran(self, point: ExtensionPoint, status: Status, profile: str, seconds: float) -> None:
        """Record the duration of all plugins at an extension point."""
        key = (point, status, profile)
        note = self._notes.get(key)
        if note is None:
            if self._recorder is None:
                return
            note = self._notes[key] = self._recorder.extension_point(*key)
        note(seconds)

    def plugin_ran(
        self, plugin: str, point: ExtensionPoint, status: Status, seconds: float
    ) -> None:
        """Pass one call of a plugin to the recorder; do nothing without a recorder."""
        if self._recorder is not None:
            self._recorder.plugin_ran(plugin, point, status, seconds)

    def queueing_hint_ran(
        self, plugin: str, event: ClusterEvent, hint: str, seconds: float
    ) -> None:
        """Record one run of a queueing hint; as in kube-scheduler, every run is measured."""
        if self._recorder is not None:
            self._recorder.queueing_hint_ran(plugin, event.label, hint, seconds)

    def evaluations(
        self, plugins: Iterable[str], point: ExtensionPoint, profile: str
    ) -> tuple[EvaluationCounter, ...]:
        """Return one counter per plugin, to be passed to `evaluated`; () without a recorder."""
        if self._recorder is None:
            return ()
        return tuple(self._recorder.evaluations(name, point, profile) for name in plugins)

    def keep_profiles(self, profiles: Container[str]) -> None:
        """Forget the records of all profiles except `profiles`, the profiles in force."""
        self._notes = {key: note for key, note in self._notes.items() if key[2] in profiles}
        if self._recorder is not None:
            self._recorder.keep_profiles(profiles)

    def evaluated(self, counters: Iterable[EvaluationCounter]) -> None:
        """Count that the decision used a result of each of these plugins."""
        if self.deciding:
            for counter in counters:
                counter.value += 1


class Measured:
    """Measures one extension point; an exception sets the status Error if none was set."""

    __slots__ = ("_began", "_metrics", "_point", "_profile", "status")

    def __init__(self, metrics: PluginMetrics, point: ExtensionPoint, profile: str) -> None:
        self._metrics = metrics
        self._point = point
        self._profile = profile
        self._began = 0.0
        self.status = _SUCCESS

    def __enter__(self) -> Self:
        self._began = self._metrics.clock()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None and self.status is _SUCCESS:
            self.status = Status.ERROR
        seconds = self._metrics.clock() - self._began
        self._metrics.ran(self._point, self.status, self._profile, seconds)
