from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from dra.asking import ask
from dra.families import drawn
from dra.objects import Case
from dra.oracle import VERSIONS, Answer
from dra.small_selectors import compile_small
from mooring.plugins.dynamic_resources import search
from mooring.plugins.dynamic_resources.budget import Budget

FAMILIES: Final = (
    "backtracking",
    "match_attribute",
    "distinct_attribute",
    "first_of_several",
    "at_the_limit",
    "counters",
    "consumable_capacity",
    "shared_partitions",
    "all_devices",
    "admin_access",
    "mixed",
)


def answers(case: Case) -> Iterator[Sequence[Answer]]:
    for minor in VERSIONS:
        yield ask(case, minor, compile_small, Budget(30_000))


def out_of_budget(found: Sequence[Answer]) -> bool:
    return any("too many steps" in each.get("error", "") for each in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_branches_that_are_left_out_do_not_change_the_result(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = list(drawn(60, "pruning", [family]))
    pruned = [list(answers(case)) for case in cases]
    monkeypatch.setattr(search, "may_prune", lambda *_: False)
    compared = 0
    for case, found in zip(cases, pruned, strict=True):
        for one, other in zip(answers(case), found, strict=True):
            if not out_of_budget(one):
                assert one == other, case["id"]
                compared += 1
    assert compared > 90
