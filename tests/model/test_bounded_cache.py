from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from memory import traced_memory
from mooring.model.bounded_cache import BoundedCache, bytes_of, cached


def by_length(_key: str, value: str) -> int:
    return len(value)


@dataclass(frozen=True, slots=True)
class Slotted:
    text: str
    others: tuple[str, ...]


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text
        self.again = self


def texts(number: int) -> list[str]:
    return [f"value {n} of a list" for n in range(number)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 10_000,
        lambda: "ü" * 10_000,
        lambda: b"x" * 10_000,
        lambda: texts(1000),
        lambda: set(texts(1000)),
        lambda: frozenset(texts(1000)),
        lambda: {text: {text: [text]} for text in texts(500)},
        lambda: np.arange(10_000),
        lambda: Slotted("x" * 5000, tuple(texts(100))),
        lambda: Plain("x" * 10_000),
        lambda: [2**200 + n for n in range(1000)],
    ],
)
def test_the_size_of_a_value_is_about_what_it_takes(make: Any) -> None:
    with traced_memory() as taken_so_far:
        value = make()
        taken = taken_so_far()
    assert 0.9 * taken <= bytes_of(value) <= 1.5 * taken


def test_what_a_value_says_of_itself_counts() -> None:
    @dataclass
    class Known:
        memory: int
        text: str

    assert bytes_of(Known(7, "x" * 100), Known(5, "")) == 12


def test_the_parts_that_values_share_are_counted_once() -> None:
    shared = "x" * 10_000
    assert bytes_of((shared, shared), [shared]) < 11_000


def test_what_was_used_longest_ago_is_dropped_when_the_bytes_are_used_up() -> None:
    cache = BoundedCache[str, str](10_000, by_length)
    for number in range(100):
        cache.put(str(number), "x" * 1000)
        assert cache.get("0") is not None
        assert cache.bytes <= 10_000
    assert len(cache) == 7
    assert cache.get("98") is not None
    assert cache.get("50") is None


def test_a_value_larger_than_the_cache_is_not_kept_and_drops_nothing() -> None:
    cache = BoundedCache[str, str](10_000, by_length)
    cache.put("small", "x")
    cache.put("huge", "x" * 20_000)
    assert cache.get("huge") is None
    assert cache.get("small") == "x"


def test_a_value_that_is_replaced_or_removed_counts_no_more() -> None:
    cache = BoundedCache[str, str](10_000, by_length)
    cache.put("a", "x" * 5000)
    cache.put("a", "x")
    before = cache.bytes
    cache.put("b", "x" * 5000)
    assert cache.pop("b") == "x" * 5000
    assert cache.pop("b") is None
    assert cache.bytes == before
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)


def test_a_function_runs_once_for_the_same_arguments() -> None:
    calls: list[tuple[int, bool]] = []

    @cached(100_000)
    def function(number: int, *, hard: bool = False) -> None:
        calls.append((number, hard))

    for _ in range(2):
        function(1)
        function(1, hard=True)
        function(2)
    assert calls == [(1, False), (1, True), (2, False)]


def test_a_function_keeps_results_of_so_many_bytes() -> None:
    calls: list[int] = []

    @cached(100_000)
    def function(number: int) -> str:
        calls.append(number)
        return "x" * 10_000

    for _ in range(2):
        for number in range(20):
            function(number)
    assert len(calls) == 40
    function(19)
    assert len(calls) == 40


def test_an_exception_is_not_kept() -> None:
    calls: list[int] = []

    @cached(100_000)
    def function(number: int) -> None:
        calls.append(number)
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError, match=r"^$"):
            function(1)
    assert calls == [1, 1]
