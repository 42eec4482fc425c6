import io
import json
import logging
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kopf import OperatorSettings

from mooring.observe.logs import FORMATS, LIBRARIES, configure

logger = logging.getLogger("mooring.scheduling.loop")


class UserError(Exception):
    """An error whose text is enough for users."""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Restore the global state of `logging` after each test."""
    names = ("", *LIBRARIES)
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.captureWarnings(capture=False)
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def configured(log_format: str = "json", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(log_format=log_format, level=level, mistakes=(UserError,), stream=stream)
    return stream


def only(stream: io.StringIO) -> Any:
    (line,) = stream.getvalue().splitlines()
    return json.loads(line)


def test_json_has_the_message_as_it_was_written_and_the_rest_as_fields() -> None:
    stream = configured()
    logger.info("pod bound", extra={"pod": "shop/cart-0", "attempts": 2, "nominated": None})
    entry = only(stream)
    assert datetime.fromisoformat(entry.pop("time")).utcoffset() is not None
    assert entry == {
        "level": "info",
        "logger": "mooring.scheduling.loop",
        "message": "pod bound",
        "pod": "shop/cart-0",
        "attempts": 2,
        "nominated": None,
    }


def test_text_quotes_only_what_would_not_be_one_word() -> None:
    stream = configured("text")
    logger.warning(
        "pod rejected",
        extra={"pod": "shop/cart-0", "why": 'no "fit"', "left": 0, "note": "", "ids": ["a", "b"]},
    )
    line = stream.getvalue()
    assert line.endswith(
        "Z WARNING mooring.scheduling.loop  pod rejected  pod=shop/cart-0"
        '  why="no \\"fit\\""  left=0  note=""  ids=["a", "b"]\n'
    )


@pytest.mark.parametrize("log_format", FORMATS)
@example(message="", field="\x85")  # a line break that JSON does not escape by itself
@given(message=st.text(), field=st.text() | st.integers() | st.binary() | st.lists(st.text()))
def test_a_record_is_one_line_whatever_is_in_it(log_format: str, message: str, field: Any) -> None:
    stream = configured(log_format)
    logger.info("%s", message, extra={"field": field})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()  # whoever reads it at a terminal
    if log_format == "json":
        assert json.loads(lines[0])["message"] == message


def test_readable_text_stays_readable_when_quoted() -> None:
    stream = configured("text")
    logger.info("profile rejected", extra={"why": "façade is no plugin"})
    assert stream.getvalue().endswith('  why="façade is no plugin"\n')


def test_an_unexpected_error_keeps_its_traceback_in_a_field() -> None:
    stream = configured()
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        logger.exception("cycle failed")
    entry = only(stream)
    assert entry["error"] == "ZeroDivisionError: integer division or modulo by zero"
    assert entry["traceback"].startswith("Traceback (most recent call last)")


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_users_mistake_is_shown_without_a_traceback(log_format: str) -> None:
    stream = configured(log_format)
    error = UserError("spec.plugins: no plugin is called Fitt")
    logger.error("profile rejected", exc_info=error)
    assert "no plugin is called Fitt" in stream.getvalue()
    assert "UserError" not in stream.getvalue()
    assert "traceback" not in stream.getvalue()


def test_a_field_cannot_disguise_the_level() -> None:
    stream = configured()
    logger.error("lease lost", extra={"level": "debug"})
    assert only(stream)["level"] == "error"


class Unprintable:
    def __str__(self) -> str:
        raise AssertionError("formatted although the level is off")


def test_below_the_level_nothing_is_formatted() -> None:
    stream = configured(level="info")
    logger.debug("%s", Unprintable(), extra={"field": Unprintable()})
    assert stream.getvalue() == ""


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_libraries_report_trouble_through_the_same_lines_and_progress_only_at_debug(
    library: str, level: str, shown: list[str]
) -> None:
    stream = configured(level=level)
    for severity in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(f"{library}.part"), severity)("something")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == shown


def test_kopf_records_name_their_object_and_hide_kopfs_plumbing() -> None:
    stream = configured()
    reference = {"kind": "SchedulingProfile", "name": "mooring", "uid": "u1"}
    logging.getLogger("kopf.objects").warning(
        "Patching failed",
        extra={"k8s_ref": reference, "k8s_skip": True, "settings": OperatorSettings()},
    )
    entry = only(stream)
    assert entry["object"] == "SchedulingProfile/mooring"
    assert not entry.keys() & {"k8s_ref", "k8s_skip", "settings"}


def test_a_warning_becomes_a_line_like_any_other() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    assert only(stream)["logger"] == "py.warnings"


def test_configuring_again_replaces_the_first_format() -> None:
    first = configured("text")
    second = configured("json")
    logger.info("started")
    assert first.getvalue() == ""
    assert only(second)["message"] == "started"
