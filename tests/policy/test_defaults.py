from mooring.policy.defaults import ABSENT, DEFAULT_WEIGHTS, KNOWN_ELSEWHERE, REMOVED
from mooring.policy.points import Point


def test_what_is_absent_is_one_of_upstreams_defaults() -> None:
    assert ABSENT.keys() < DEFAULT_WEIGHTS.keys()


def test_what_is_absent_neither_sorts_the_queue_nor_binds() -> None:
    """So that leaving it out of an imported file cannot break what the file was checked for."""
    assert not any(points & {Point.QUEUE_SORT, Point.BIND} for points in ABSENT.values())


def test_what_was_removed_has_an_heir_that_still_is() -> None:
    assert {*REMOVED.values()} < DEFAULT_WEIGHTS.keys()
    assert not REMOVED.keys() & DEFAULT_WEIGHTS.keys()


def test_every_name_of_upstream_is_known() -> None:
    assert {*DEFAULT_WEIGHTS, *REMOVED, "GangScheduling"} < KNOWN_ELSEWHERE
