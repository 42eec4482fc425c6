"""`python -m conformance.check`: counts the recorded cases in which Mooring agrees."""

import argparse
import lzma
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from conformance.comparing import decided, differences

EPILOG = """examples:
  python -m conformance.check tests/conformance/data/*/*.jsonl.xz
  python -m conformance.check --show 3 /tmp/fresh/1.37/spread.jsonl.xz
"""

DEFAULT_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 all cases agree, 1 some do not, 2 wrong usage or no cases."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.check",
        description="Decides recorded cases with Mooring, by the rules of the version of "
        "Kubernetes that they are from, and says where kube-scheduler differed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="as record wrote it")
    parser.add_argument(
        "--show",
        type=int,
        default=DEFAULT_SHOWN,
        metavar="N",
        help="disagreements to explain (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    agreed, differed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    try:
        for case in (case for path in chosen.files for case in cases(path)):
            found = differences(case, decided(case))
            (differed if found else agreed)[case["kubernetes"], case["suite"]] += 1
            if found and differed.total() <= chosen.show:
                sys.stdout.write("\n    ".join([case["id"], *found]) + "\n")
    except BadFileError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for recorded in sorted(agreed | differed):
        _report(*recorded, agreed[recorded], differed[recorded])
    _report("all", "", agreed.total(), differed.total())
    return 1 if differed else 0


def _report(version: str, suite: str, agreed: int, differed: int) -> None:
    sys.stdout.write(f"{version:<9}{suite:<14}{agreed:>5} of {agreed + differed:>4} agree\n")


class BadFileError(Exception):
    """A file has no valid recorded cases; the text has the file and the reason."""


def cases(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file one by one; raise BadFileError if the file is malformed."""
    try:
        with lzma.open(path) as recorded:
            yield from map(orjson.loads, recorded)
    except orjson.JSONDecodeError as error:
        raise BadFileError(f"{path}: is not one JSON case a line: {error}") from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadFileError(f"{path}: cannot be read: {reason}") from error


if __name__ == "__main__":
    sys.exit(main())
