from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from call_counts import calls_in
from mooring.volumes.state.assume_cache import AssumeCache


@dataclass(frozen=True, slots=True)
class Thing:
    """A value with a resource version, and a text that tells an assumed value from a shown one."""

    resource_version: str
    owner: str = ""


SHOWN = Thing("1")


def test_nothing_is_assumed_at_first() -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    assert overlay.get("a", SHOWN) is SHOWN
    assert overlay.get("b", None) is None


def test_an_assumed_value_is_returned_until_its_pod_restores_it() -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    overlay.assume("pod", "a", Thing("1", "claim"))
    assert overlay.get("a", SHOWN) == Thing("1", "claim")
    assert overlay.restore("pod") == ["a"]
    assert overlay.get("a", SHOWN) is SHOWN


def test_a_value_assumed_by_two_pods_stays_until_both_have_restored_it() -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    for holder in ("one", "two"):
        overlay.assume(holder, "a", Thing("1", "claim"))
    assert overlay.restore("one") == []
    assert overlay.get("a", SHOWN) == Thing("1", "claim")
    assert overlay.restore("two") == ["a"]


def test_restoring_what_another_assumed_changes_nothing() -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    overlay.assume("pod", "a", Thing("1", "claim"))
    assert overlay.restore("other") == []
    assert overlay.get("a", SHOWN) == Thing("1", "claim")


def steps(others: int) -> int:
    """Return the number of function calls for one pod beside `others` other pods."""
    overlay = AssumeCache[Thing]()
    for other in range(others):
        overlay.assume(f"other-{other}", f"of-other-{other}", SHOWN)

    def one() -> None:
        assert not overlay.holds("pod")
        overlay.assume("pod", "a", SHOWN)
        assert overlay.restore("pod") == ["a"]

    return calls_in(one)


def test_what_is_assumed_for_a_pod_is_found_without_a_look_at_others() -> None:
    """After a pause, all members of a gang, each with volumes, are put back on their nodes."""
    assert steps(200) == steps(2)


def test_a_newer_version_or_the_end_of_the_object_ends_the_assumption() -> None:
    for shown in (Thing("2"), None):
        overlay: AssumeCache[Thing] = AssumeCache()
        overlay.assume("pod", "a", Thing("1", "claim"))
        overlay.shown("a", shown)
        assert overlay.get("a", shown) is shown


def test_the_same_version_shown_again_does_not_end_the_assumption() -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    overlay.assume("pod", "a", Thing("1", "claim"))
    overlay.shown("a", SHOWN)
    assert overlay.get("a", SHOWN) == Thing("1", "claim")


HOLDERS = st.sampled_from(("one", "two", "three"))
KEYS = st.sampled_from(("a", "b"))


@settings(deadline=None)
@given(st.lists(st.tuples(HOLDERS, KEYS)))
def test_after_every_pod_has_restored_nothing_is_assumed(assumed: list[tuple[str, str]]) -> None:
    overlay: AssumeCache[Thing] = AssumeCache()
    for holder, key in assumed:
        overlay.assume(holder, key, Thing("1", key))
    restored = [key for holder in ("one", "two", "three") for key in overlay.restore(holder)]
    assert sorted(restored) == sorted({key for _, key in assumed})
    assert overlay.get("a", SHOWN) is overlay.get("b", SHOWN) is SHOWN
