from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra.asking import ask
from dra.families import drawn
from dra.objects import Case
from dra.oracle import VERSIONS, Answer
from dra.small_selectors import compile_small
from mooring.claims.plugin import device_search as search
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.pruning import enough_devices

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


@pytest.mark.deep
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


def test_a_device_that_suits_two_requests_is_given_to_the_one_that_has_no_other() -> None:
    assert enough_devices([1, 1], {0b01: 1, 0b11: 1})
    assert enough_devices([1, 1], {0b11: 1, 0b01: 1})
    assert enough_devices([1, 1, 1], {0b011: 1, 0b110: 1, 0b001: 1})
    assert enough_devices([2, 1, 1], {0b011: 2, 0b110: 1, 0b101: 1})


def test_too_few_devices_for_two_requests_together_are_not_enough() -> None:
    assert not enough_devices([1, 1], {0b11: 1})
    assert not enough_devices([1, 1], {0b01: 5})


def test_requests_for_nothing_need_nothing() -> None:
    assert enough_devices([], {})
    assert enough_devices([0, 0], {})


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.dictionaries(st.integers(0, 15), st.integers(1, 3), max_size=5),
)
def test_there_are_enough_exactly_where_halls_theorem_says_so(
    counts: list[int], devices: dict[int, int]
) -> None:
    by_hall = all(
        sum(count for bit, count in enumerate(counts) if some >> bit & 1)
        <= sum(number for mask, number in devices.items() if mask & some)
        for some in range(2 ** len(counts))
    )
    assert enough_devices(counts, devices) == by_hall
