"""The pauses between tries."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mooring.kube.backoff import Backoff


@given(st.integers(), st.integers(1, 40))
def test_pauses_double_up_to_the_longest_and_lose_at_most_half(seed: int, tries: int) -> None:
    random = Random(seed)  # noqa: S311 - reproducible jitter
    backoff = Backoff(random, first=1.0, longest=30.0)
    for attempt in range(tries):
        whole = min(30.0, 2.0**attempt)
        assert whole / 2 <= backoff.pause() <= whole


def test_after_a_success_pauses_begin_anew() -> None:
    backoff = Backoff(Random(1), first=1.0)  # noqa: S311 - reproducible jitter
    for _ in range(5):
        backoff.pause()
    backoff.reset()
    assert backoff.pause() <= 1.0
