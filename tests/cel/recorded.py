"""Expressions with the answers of kube-scheduler's selectors, which tests need no Go for."""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import orjson

from cel.expressions import Case
from cel.oracle import VERSIONS, Answers, answers

DATA: Final = Path(__file__).parent / "data" / "selectors.jsonl.xz"


def read() -> Iterator[tuple[Case, dict[str, Answers]]]:
    """Yield each recorded case with its answers by version of Kubernetes."""
    with lzma.open(DATA) as lines:
        for line in lines:
            case = orjson.loads(line)
            yield case, case.pop("answers")


def record(cases: Iterable[Case]) -> int:
    """Write the cases with their answers, and return their number.

    Left out is what has no answer, as the order of a map decides it, or the compiler panics.
    """
    listed = list(cases)
    by_version = {minor: answers(minor, listed) for minor in VERSIONS}
    written = 0
    DATA.parent.mkdir(exist_ok=True)
    with lzma.open(DATA, "wb", preset=9) as lines:
        for index, case in enumerate(listed):
            found = {minor: all_answers[index] for minor, all_answers in by_version.items()}
            if all(_decided(each) for each in found.values()):
                lines.write(orjson.dumps({**case, "answers": found}) + b"\n")
                written += 1
    return written


def _decided(found: Answers) -> bool:
    return "panic" not in found and all(len(each) == 1 for each in found.get("devices", ()))
