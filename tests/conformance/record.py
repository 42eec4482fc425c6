"""`python -m conformance.record`: records kube-scheduler's decisions about random cases."""

import argparse
import lzma
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from conformance.recording.errors import RecordingError
from conformance.recording.recorder import Recorder
from conformance.scenes.extenders import EXTENDERS
from conformance.scenes.suites import SUITES, random_scene, suites_of
from controlplane import ApiError, ControlPlaneError
from controlplane.progress import Progress
from controlplane.releases import chosen_release

EPILOG = """examples:
  the whole corpus anew, after a change of tests/tools/controlplane/versions/1.37/go.mod:
      make controlplane && python -m conformance.record --out tests/conformance/data
  what another release decides, once `make controlplane KUBERNETES=1.36` has built it:
      KUBERNETES=1.36 python -m conformance.record --out /tmp/older
  500 other cases, to see whether Mooring decides them alike:
      python -m conformance.record --cases 42 --seed 8 --out /tmp/fresh
      python -m conformance.check /tmp/fresh/*/*.jsonl.xz
  some of one suite:
      python -m conformance.record --suite spread --cases 5 --out /tmp/fresh
"""

SMALLEST = 6 | lzma.PRESET_EXTREME
"""Half of what gzip needs, because the objects of a suite are alike."""

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 all recorded, 1 failed, 2 wrong usage, 130 interrupted."""
    chosen = _parser().parse_args(arguments)
    try:
        folder = chosen.out / chosen_release().minor
        folder.mkdir(parents=True, exist_ok=True)
        _record(_suites(chosen.suite), chosen.cases, chosen.seed, folder)
    except (ControlPlaneError, RecordingError, ApiError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running; finished suites are there\n")
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.record",
        description="Puts random clusters, each with one pending pod, before the real "
        "kube-scheduler and writes what it decides to DIR/VERSION/SUITE.jsonl.xz, one JSON case a "
        "line.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--suite",
        action="append",
        choices=tuple(SUITES),
        metavar="SUITE",
        help=f"may be repeated; default: all of {', '.join(SUITES)}",
    )
    parser.add_argument(
        "--cases", type=_at_least_one, default=50, metavar="N", help="a suite; default: %(default)s"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=7,
        metavar="N",
        help="another seed, other cases; default: %(default)s",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="made if need be")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 1 on, is {text!r}")
    return int(text)


def _suites(chosen: Sequence[str] | None) -> Sequence[str]:
    """Return the suites to record: the chosen ones, or all that this version supports.

    Raises:
        RecordingError: A chosen suite needs a newer version.
    """
    version = chosen_release().version
    possible = suites_of(version)
    for suite in chosen or ():
        if suite not in possible:
            since = SUITES[suite].since
            raise RecordingError(f"suite {suite} needs Kubernetes {since} or newer, not {version}")
    return chosen or possible


def _record(suites: Sequence[str], count: int, seed: int, out: Path) -> None:
    progress = Progress()
    for extended, of_kind in groupby(sorted(suites, key=_is_extended), _is_extended):
        progress.begin("kube-scheduler: starting")
        with Recorder(EXTENDERS if extended else ()) as recorder:
            progress.end("running")
            _record_suites(progress, recorder, of_kind, count, seed, out)


def _is_extended(suite: str) -> bool:
    """Return whether the suite needs a kube-scheduler with extenders."""
    return bool(SUITES[suite].extenders)


def _record_suites(
    progress: Progress,
    recorder: Recorder,
    suites: Iterable[str],
    count: int,
    seed: int,
    out: Path,
) -> None:
    for suite in suites:
        started = time.monotonic()
        progress.begin(f"{suite}: recording {count} cases")
        path = out / f"{suite}.jsonl.xz"
        with _replaced(path) as partial, lzma.open(partial, "wb", preset=SMALLEST) as lines:
            for index in range(count):
                lines.write(_line(_case(recorder, suite, seed, index)))
                progress.tick()
        rate = count / (time.monotonic() - started)
        progress.end(f"done, {rate:.1f} a second,")


def _case(recorder: Recorder, suite: str, seed: int, index: int) -> dict[str, Any]:
    name = f"{suite}-{seed}-{index:03}"
    try:
        recorded = recorder.record(random_scene(suite, seed, index))
    except (ApiError, RecordingError) as error:
        raise RecordingError(f"case {name}: {error}") from error
    return {"id": name, "suite": suite, **recorded}


def _line(case: dict[str, Any]) -> bytes:
    return orjson.dumps(case, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Yield a new file; after success it replaces `path`, after an error it is removed."""
    partial = path.with_suffix(".partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
