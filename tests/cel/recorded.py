"""Expressions with recorded answers of kube-scheduler's selectors, for tests without Go."""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import orjson

from cel.expressions import Case
from cel.oracle import VERSIONS, Answers, answers

DATA: Final = Path(__file__).parent / "data" / "selectors.jsonl.xz"


def read() -> Iterator[tuple[Case, dict[str, Answers]]]:
    """Yield each recorded case, and its answers by Kubernetes version."""
    with lzma.open(DATA) as lines:
        for line in lines:
            case = orjson.loads(line)
            yield case, case.pop("answers")


def record(cases: Iterable[Case]) -> int:
    """Write the cases with their answers, and return the number of written cases.

    A case is left out if kube-scheduler's compiler panics, or if its answer depends on Go's random
    order of maps.
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
