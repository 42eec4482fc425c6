"""Cases with the answers of the allocators, kept so that tests compare without Go."""

import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from dra.objects import Case
from dra.oracle import VERSIONS, Answer, answers

DATA: Final = Path(__file__).parent / "data" / "cases.jsonl.xz"


class Recorded(NamedTuple):
    """A case, and by version of Kubernetes the answer for each of its nodes."""

    case: Case
    answers: Mapping[str, Sequence[Answer]]


def read(path: Path = DATA) -> Iterator[Recorded]:
    with lzma.open(path) as lines:
        for line in lines:
            case = orjson.loads(line)
            yield Recorded(case, case.pop("answers"))


def record(cases: Iterable[Case], path: Path) -> int:
    """Write the cases with their answers, and return their number.

    Left out is what has no answer: what depends on the order of a map, takes kube-scheduler
    seconds, or ends its process.
    """
    listed = list(cases)
    by_version = {minor: answers(minor, listed) for minor in VERSIONS}
    written = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wb", preset=9) as lines:
        for index, case in enumerate(listed):
            found = {minor: all_answers[index] for minor, all_answers in by_version.items()}
            if not all(_decided(each) for each in found.values()):
                continue
            single = {minor: [each[0] for each in nodes] for minor, nodes in found.items()}
            lines.write(orjson.dumps({**case, "answers": single}) + b"\n")
            written += 1
    return written


def _decided(nodes: Sequence[Sequence[Answer]]) -> bool:
    return all(
        len(distinct) == 1 and not distinct[0].keys() & {"timedOut", "panic"} for distinct in nodes
    )
