"""Writes one line per log record, as JSON or text, for the loggers of Mooring and its libraries.

Code uses the standard library. A message is constant; `extra` has the variable values:

    logger.info("pod bound", extra={"pod": key, "node": node})

A call below the current level costs only a dictionary and a cached lookup.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from mooring.observe.printable import printable

FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")

LIBRARIES = ("aiohttp", "asyncio", "kopf", "kubernetes_asyncio")
"""Loggers of libraries; they show records below WARNING only with --log-level debug."""

KOPF_PLUMBING = frozenset({"k8s_ref", "k8s_skip", "settings"})
"""Attributes that kopf adds to its records; only `k8s_ref` is shown, as `object`."""

STANDARD_ATTRIBUTES = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", *KOPF_PLUMBING}
)
"""Attributes of every record; all other attributes come from `extra` and are shown as fields."""


def configure(
    *,
    log_format: str,
    level: str,
    mistakes: tuple[type[BaseException], ...] = (),
    stream: TextIO | None = None,
) -> None:
    """Write each log record of this process as a line to `stream` (default: standard error).

    Args:
        log_format: One of `FORMATS`.
        level: One of `LEVELS`; less severe records are dropped.
        mistakes: Exceptions whose text tells a user what to do; their traceback is left out.
        stream: Where lines are written.
    """
    formatter = _JsonFormatter(mistakes) if log_format == "json" else _TextFormatter(mistakes)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for name in LIBRARIES:
        quiet = threshold if threshold == logging.DEBUG else max(threshold, logging.WARNING)
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(capture=True)


class _LineFormatter(logging.Formatter):
    """Writes a record as one line: time, level, logger, message and fields."""

    def __init__(self, mistakes: tuple[type[BaseException], ...]) -> None:
        super().__init__()
        self._mistakes = mistakes

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields = {
            name: value for name, value in vars(record).items() if name not in STANDARD_ATTRIBUTES
        }
        reference = getattr(record, "k8s_ref", None)
        if isinstance(reference, Mapping):
            fields["object"] = _object_name(reference)
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, self._mistakes):
            fields["error"] = str(error)
        elif error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"
            fields["traceback"] = "".join(traceback.format_exception(error))
        return fields


class _JsonFormatter(_LineFormatter):
    def format(self, record: logging.LogRecord) -> str:
        fixed = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # The second `fixed` keeps a field named like one of its keys from replacing it.
        return json.dumps(fixed | self._fields(record) | fixed, default=str, skipkeys=True)


class _TextFormatter(_LineFormatter):
    def format(self, record: logging.LogRecord) -> str:
        start = f"{_timestamp(record)} {record.levelname:<7} {record.name}"
        fields = (f"{name}={_plain(value)}" for name, value in self._fields(record).items())
        return "  ".join([start, printable(record.getMessage()), *fields])


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _object_name(reference: Mapping[str, Any]) -> str:
    parts = (reference.get("kind"), reference.get("namespace"), reference.get("name"))
    return "/".join(part for part in parts if part)


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, skipkeys=True)
    if isinstance(value, str) and (not text or not text.isprintable() or set(text) & set(' "=')):
        return json.dumps(text, ensure_ascii=not text.isprintable())
    return text
