from hypothesis import given
from hypothesis import strategies as st

from mooring.plugins.dynamic_resources.matching import enough_devices


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
