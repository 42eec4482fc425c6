"""Records the failures of plugins: each message is logged once an hour, each failure is counted.

A failure is an exception, a result that the extension point does not allow, or a call that takes
too long. It ends one attempt of one pod, but never the scheduler: every exception is caught except
KeyboardInterrupt, with which a user ends `mooring simulate`. If a constructor fails, the profile
that names the plugin is invalid (`ProfileInvalid`).

A synchronous call cannot be interrupted: if it takes too long, it is logged and counted after it
has returned, and its result is used. Modules that decide must not import a clock, so it is an
argument.
"""

import importlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from mooring.framework.verdicts import ObjectError, PluginError
from mooring.model.bounded_cache import BoundedCache

__all__ = [
    "Blamed",
    "ExtensionPoint",
    "FailureKind",
    "PluginFailed",
    "PluginFailures",
    "one_line",
    "place_of",
    "text_of",
]

logger = logging.getLogger(__name__)

_MOORING: Final = str(Path(__file__).parents[1])
_IMPORTLIB: Final = str(Path(importlib.__file__).parent)
_MOST_MESSAGES: Final = 32
"""The maximum number of messages per plugin and extension point that are logged in an hour; further
messages are only counted."""
_FORGET_SECONDS: Final = 3600.0
"""For these seconds after a plugin's first message, equal messages of the plugin are not logged
again."""
_MOST_CHARACTERS: Final = 1024
"""The maximum number of characters of an exception's text; the rest is cut off."""
_MOST_BYTES: Final = 16 * 2**20
"""The maximum bytes of all remembered messages; the least recently used are forgotten. Each rule
counts as a plugin."""
_MOST_FRAMES: Final = 20
"""The maximum number of frames in a logged traceback; the last frames show the plugin's code."""
_MOST_TRACEBACK: Final = 16_384
"""The maximum number of characters of a logged traceback; its beginning is cut off."""


class ExtensionPoint(StrEnum):
    """The step in which a plugin is called: a value of the metrics' label `extension_point`.

    The values are kube-scheduler's, with Constructor and QueueingHint added. A failure of
    `explain`, `resource_requests` or `devices_version` counts for Filter.
    """

    CONSTRUCTOR = "Constructor"
    PRE_ENQUEUE = "PreEnqueue"
    QUEUE_SORT = "QueueSort"
    QUEUEING_HINT = "QueueingHint"
    PLACEMENT_GENERATE = "PlacementGenerate"
    PRE_FILTER = "PreFilter"
    FILTER = "Filter"
    POST_FILTER = "PostFilter"
    PRE_SCORE = "PreScore"
    SCORE = "Score"
    PLACEMENT_SCORE = "PlacementScore"
    RESERVE = "Reserve"
    UNRESERVE = "Unreserve"
    PERMIT = "Permit"
    PRE_BIND = "PreBind"
    BIND = "Bind"
    POST_BIND = "PostBind"


class FailureKind(StrEnum):
    """The kind of a failure: an exception, a result that is not allowed, or too much time."""

    ERROR = "error"
    INVALID = "invalid"
    SLOW = "slow"


class Blamed(NamedTuple):
    """A plugin, the distribution that it comes from, and the extension point at which it failed."""

    plugin: str
    distribution: str
    point: ExtensionPoint

    def __str__(self) -> str:
        return f"plugin {self.plugin} of {self.distribution}"


class PluginFailed(PluginError):  # noqa: N818 - says what happened, as BindingFailed
    """Raised after a plugin's failure was recorded; the text is one line for users."""


@dataclass(slots=True, eq=False)
class _Told:
    """Messages of a plugin at an extension point since `since` (in seconds)."""

    since: float
    messages: set[str] = field(default_factory=set)


def _most_bytes_of(_blamed: Blamed, _told: _Told) -> int:
    return (_MOST_MESSAGES + 2) * 2 * _MOST_CHARACTERS


@dataclass(eq=False, repr=False, kw_only=True)
class PluginFailures:
    """Logs and counts the failures of all plugins.

    Args:
        count: Is called for each failure with the plugin's name, the extension point and the kind.
        clock: Returns seconds since an arbitrary time, to measure calls.
        slow_seconds: A synchronous call that takes longer is slow.
        timeout_seconds: Seconds after which an asynchronous call is cancelled and counts as slow;
            calls of the shipped plugins have time-outs of their own.
    """

    count: Callable[[str, str, str], None] = lambda _plugin, _point, _kind: None
    clock: Callable[[], float] = lambda: 0.0
    slow_seconds: float = 1.0
    timeout_seconds: float = 900.0

    def __post_init__(self) -> None:
        self._told: BoundedCache[Blamed, _Told] = BoundedCache(_MOST_BYTES, _most_bytes_of)

    def error(self, blamed: Blamed, error: BaseException) -> PluginFailed:
        """Record an exception that a plugin raised; return the exception to raise instead.

        The log has a traceback unless the exception is a PluginError. An ObjectError is not
        recorded. KeyboardInterrupt and PluginFailed are raised again.
        """
        if isinstance(error, KeyboardInterrupt | PluginFailed):
            # Another plugin, which this plugin called, has raised PluginFailed: it is recorded
            # already.
            raise error
        text = text_of(error)
        if not isinstance(error, PluginError):
            text += place_of(error)
            problem = f"failed at {blamed.point}: {type(error).__name__}: {text}"
            self._record(blamed, FailureKind.ERROR, problem, error)
        elif not isinstance(error, ObjectError):
            self._record(blamed, FailureKind.ERROR, f"failed at {blamed.point}: {text}")
        # kube-scheduler words the errors of filters in another way than those of other points.
        what = (
            f'"{blamed.plugin}" filter plugin'
            if blamed.point == "Filter"
            else f'{blamed.point} plugin "{blamed.plugin}"'
        )
        return PluginFailed(f"running {what}: {text}")

    def invalid(self, blamed: Blamed, problem: str) -> PluginFailed:
        """Record a result that is not allowed; return the exception to raise.

        `problem` describes the result: "filter returned None; it must return ...".
        """
        self._record(blamed, FailureKind.INVALID, problem)
        return PluginFailed(f"{blamed}: {problem}")

    def slow(self, blamed: Blamed, seconds: float) -> None:
        """Record that a call, or all calls of one attempt, took longer than `slow_seconds`."""
        limit = f"took longer than {self.slow_seconds:g} s"
        self._record(blamed, FailureKind.SLOW, f"{limit} at {blamed.point}", seconds=seconds)

    def timed_out(self, blamed: Blamed) -> PluginFailed:
        """Record an asynchronous call that was cancelled; return the exception to raise."""
        problem = f"was cancelled at {blamed.point} after {self.timeout_seconds:g} s"
        self._record(blamed, FailureKind.SLOW, problem)
        return PluginFailed(f"{blamed}: {problem}")

    def _record(
        self,
        blamed: Blamed,
        kind: FailureKind,
        problem: str,
        error: BaseException | None = None,
        seconds: float | None = None,
    ) -> None:
        self.count(blamed.plugin, blamed.point, kind)
        if not self._is_new(blamed, f"{kind} {problem}"):
            return
        fields: dict[str, object] = {} if seconds is None else {"seconds": round(seconds, 3)}
        if error is not None:
            fields["traceback"] = _traceback(error)
        logger.error("%s: %s", blamed, problem, extra=fields)

    def _is_new(self, blamed: Blamed, message: str) -> bool:
        """Remember the message; return whether to log it."""
        now, told = self.clock(), self._told.get(blamed)
        if told is None or now - told.since > _FORGET_SECONDS:
            told = _Told(now)
            self._told.put(blamed, told)
        messages = told.messages
        if message in messages or len(messages) > _MOST_MESSAGES:
            return False
        messages.add(message)
        if len(messages) <= _MOST_MESSAGES:
            return True
        text = "%s has failed at %s in %d ways: more are not logged for an hour, only counted"
        logger.error(text, blamed, blamed.point, _MOST_MESSAGES)
        return False


def text_of(error: BaseException) -> str:
    """Return the exception's text in one line; the name of its type if it has no text."""
    return one_line(error) or type(error).__name__


def place_of(error: BaseException) -> str:
    """Return the line where a plugin raised an unexpected exception, as " (acme_spot.py:31)".

    Returns "" if only Mooring's own code was running.
    """
    lines = [
        (Path(frame.f_code.co_filename), number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_MOORING, _IMPORTLIB, "<"))
    ]
    # The last line in the plugin's own folder: lines of a library do not help the plugin's author.
    own = [line for line in lines if line[0].parent == lines[0][0].parent]
    return f" ({own[-1][0].name}:{own[-1][1]})" if own else ""


def one_line(found: object) -> str:
    """Return str(found) as one line of valid Unicode with at most 1,024 characters."""
    text = str(found)[:_MOST_CHARACTERS]
    return " ".join(text.encode(errors="replace").decode().split())


def _traceback(error: BaseException) -> str:
    lines = traceback.format_exception(error, limit=-_MOST_FRAMES)
    return "".join(lines)[-_MOST_TRACEBACK:].encode(errors="replace").decode()
