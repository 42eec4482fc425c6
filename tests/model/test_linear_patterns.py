import pytest

from mooring.model.linear_patterns import LinearPatternError, compile_linear

KIB = 2**10


def test_a_pattern_that_makes_python_go_back_takes_linear_time() -> None:
    assert compile_linear("(a+)+$", 64 * KIB).search("a" * 100_000 + "b") is None


def test_a_mistake_is_told_with_its_place() -> None:
    with pytest.raises(LinearPatternError) as caught:
        compile_linear("a(b", 64 * KIB)
    assert (caught.value.what, caught.value.where) == ("missing )", "a(b")


def test_a_pattern_that_takes_more_memory_is_refused() -> None:
    with pytest.raises(LinearPatternError) as caught:
        compile_linear("(a{100}){10}", KIB)
    assert caught.value.what.startswith("pattern too large")


def test_text_that_is_no_unicode_is_told_as_that() -> None:
    with pytest.raises(UnicodeEncodeError):
        compile_linear("\ud800", 64 * KIB)
