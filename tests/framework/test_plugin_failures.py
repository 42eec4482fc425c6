"""Each message about a plugin is logged once an hour, and the number of messages is limited."""

import json

import pytest

from mooring.framework.plugin_failures import Blamed, ExtensionPoint, PluginFailures, text_of
from mooring.framework.verdicts import ObjectError, PluginError

FILTER = Blamed("RackAware", "acme", ExtensionPoint.FILTER)


class Recorded:
    """A PluginFailures with a clock that the test moves; records what it counts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counted: list[tuple[str, str, str]] = []
        self.failures = PluginFailures(
            count=lambda *labels: self.counted.append(labels), clock=lambda: self.now
        )


def test_a_message_is_logged_again_after_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    for recorded.now in (0.0, 3600.0, 3601.0):
        recorded.failures.error(FILTER, ValueError("broken"))
    message = "plugin RackAware of acme: failed at Filter: ValueError: broken"
    assert caplog.messages == [message, message]
    assert recorded.counted == [("RackAware", "Filter", "error")] * 3


def test_a_plugin_that_fails_in_too_many_ways_is_only_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorded = Recorded()
    for i in range(1000):
        recorded.failures.error(FILTER, ValueError(f"pod {i}"))
    assert len(caplog.messages) == 33
    assert caplog.messages[-1].endswith("more are not logged for an hour, only counted")
    assert len(recorded.counted) == 1000


def test_only_an_unexpected_exception_has_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    recorded.failures.error(FILTER, ValueError("broken"))
    recorded.failures.error(FILTER, PluginError("the catalogue is empty"))
    traces = [getattr(record, "traceback", None) for record in caplog.records]
    assert traces[0] is not None
    assert traces[1] is None


def test_the_line_of_the_plugin_that_raised_is_named_and_not_that_of_a_library(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("{")
    failed = Recorded().failures.error(FILTER, raised.value)
    place = f"(test_plugin_failures.py:{raised.tb.tb_lineno})"
    assert str(failed).endswith(place)
    assert caplog.messages[0].endswith(place)


def test_what_an_object_says_is_no_failure_of_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    failed = recorded.failures.error(FILTER, ObjectError("selector: division by zero"))
    assert str(failed) == 'running "RackAware" filter plugin: selector: division by zero'
    assert recorded.counted == []
    assert caplog.messages == []


def test_keyboard_interrupt_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        Recorded().failures.error(FILTER, KeyboardInterrupt())


def test_a_failure_of_another_plugin_that_was_called_is_not_blamed_on_this_one() -> None:
    recorded = Recorded()
    inner = recorded.failures.invalid(FILTER, "filter returned None")
    with pytest.raises(type(inner), match="plugin RackAware of acme: filter returned None"):
        recorded.failures.error(Blamed("Outer", "acme", ExtensionPoint.POST_FILTER), inner)
    assert recorded.counted == [("RackAware", "Filter", "invalid")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\nlines"), "two lines"),
        (ValueError("\ud800"), "?"),
        (ValueError("x" * 5000), "x" * 1024),
        (ValueError(), "ValueError"),
    ],
)
def test_the_text_of_an_exception_is_one_short_line(error: Exception, text: str) -> None:
    assert text_of(error) == text
