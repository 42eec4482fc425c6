"""The command `python -m dra`."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from controlplane import ControlPlaneError
from dra.asking import ask
from dra.comparing import differences
from dra.families import FAMILIES, drawn
from dra.objects import Case
from dra.oracle import VERSIONS, answers
from dra.recorded import DATA, record

EPILOG = """examples:
  python -m dra --count 2200 --seed 7 --kubernetes 1.36
  python -m dra counters taints --count 500 --failures /tmp/failures
  python -m dra --count 1150 --seed recorded --record
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all cases are equal, 1 if some are not or nothing is built."""
    chosen = _parser().parse_args(arguments)
    unknown = set(chosen.families) - set(FAMILIES)
    if unknown:
        sys.stderr.write(f"error: {min(unknown)}: choose from {', '.join(FAMILIES)}\n")
        return 2
    cases = list(drawn(chosen.count, chosen.seed, chosen.families))
    try:
        if chosen.record:
            written = record(cases, DATA)
            sys.stdout.write(f"{written} of {len(cases)} cases were written to {DATA}\n")
            return 0
        differing = list(_differing(cases, chosen.kubernetes))
    except ControlPlaneError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    _report(chosen, cases, differing)
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dra",
        description="Draws cases of claims and devices, and compares what Mooring's allocator "
        "decides with what kube-scheduler's does, device for device on every node.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all in turn")
    parser.add_argument("--count", type=int, default=2200, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", default="1", metavar="S", help="default: %(default)s")
    parser.add_argument("--kubernetes", choices=VERSIONS, default=VERSIONS[-1])
    parser.add_argument("--show", type=int, default=3, metavar="N", help="differences to print")
    parser.add_argument(
        "--failures", type=Path, metavar="DIR", help="write the smallest cases that differ here"
    )
    parser.add_argument(
        "--record", action="store_true", help=f"write cases with both answers to {DATA.name}"
    )
    return parser


def _differing(cases: Sequence[Case], minor: str) -> Iterator[tuple[Case, list[str]]]:
    for case, expected in zip(cases, answers(minor, cases), strict=True):
        if found := differences(case, expected, ask(case, minor)):
            yield case, found


def _report(
    chosen: argparse.Namespace, cases: Sequence[Case], differing: list[tuple[Case, list[str]]]
) -> None:
    """Print differences and how many cases of each family are equal; write those that are not."""
    differing.sort(key=lambda each: len(json.dumps(each[0])))
    for case, lines in differing[: chosen.show]:
        sys.stdout.write("\n    ".join([case["id"], *lines]) + "\n")
    drawn_cases = Counter(case["family"] for case in cases)
    unequal = Counter(case["family"] for case, _ in differing)
    for family, number in drawn_cases.items():
        sys.stdout.write(f"{family:<26}{number - unequal[family]:>6} of {number:>6} equal\n")
    total = len(cases) - len(differing)
    sys.stdout.write(f"{chosen.kubernetes} in all{total:>21} of {len(cases):>6} equal\n")
    for family in unequal if chosen.failures else ():
        chosen.failures.mkdir(parents=True, exist_ok=True)
        path = chosen.failures / f"{chosen.kubernetes}-{family}.txt"
        shown = [(case, lines) for case, lines in differing if case["family"] == family][:10]
        path.write_text("".join(f"{chr(10).join(n)}\n{json.dumps(c)}\n\n" for c, n in shown))


if __name__ == "__main__":
    sys.exit(main())
