import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cel.regular_expressions import PatternError, compile_pattern
from mooring.cel.values import EvaluationCrash, work

SIMPLE = st.recursive(
    st.sampled_from(("a", "b", "[ab]", "[^a]", ".", r"\d", "^", "$", r"\b")),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(("*", "+", "?", "{2}", "{0,2}", "*?", "+?"))).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(SIMPLE, st.text("ab1\n", max_size=8))
def test_matches_are_those_of_pythons_own_engine(pattern: str, text: str) -> None:
    work.begin()
    theirs = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)
    ours = compile_pattern(pattern)
    assert ours.matches(text) == (theirs is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a|ab", "ab", "a"),
        ("(?i)H1", "xh1", "h1"),
        ("a{2,3}", "aaaa", "aaa"),
        ("a+?", "aaa", "a"),
        (r"\pL+", "1日本", "日本"),
        ("[[:alpha:]]+", "1ab", "ab"),
        (r"\Qa.b\E", "a.b", "a.b"),
        ("(?s)a.b", "a\nb", "a\nb"),
        ("(?m)^b$", "a\nb", "b"),
        (r"\x41\x{42}", "AB", "AB"),
        (r"\p{Greek}+", "abβδ", "βδ"),
        (r"\P{Han}+", "日本ab", "ab"),
        (r"(?i)\p{Lu}+", "Ab", "Ab"),
        (r"\Q\C\E|\\C", r"a\C", r"\C"),
    ],
)
def test_the_first_match_is_found(pattern: str, text: str, found: str) -> None:
    work.begin()
    assert compile_pattern(pattern).find(text) == found


def test_empty_matches_do_not_follow_a_match() -> None:
    work.begin()
    assert [*compile_pattern("a*").find_all("baac", -1)] == ["", "aa", ""]
    assert [*compile_pattern("a").find_all("aaa", 2)] == ["a", "a"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("((((a{10}){10}){10}){10})", "invalid repeat count: `{10}`"),
        (r"(\pL{1,50}|b{1,50})" * 200, "expression too large"),
        (r"\pL{60}", "expression too large"),
        ("a" * 4_097, "expression too large"),
        (r"\\\C", r"invalid escape sequence: `\C`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_message_of_go(pattern: str, message: str) -> None:
    work.begin()
    with pytest.raises(PatternError) as error:
        compile_pattern(pattern)
    assert f"error parsing regexp: {message}" in str(error.value)


def test_patterns_that_are_used_are_none_too_large() -> None:
    work.begin()
    for pattern in (
        r"^[\w-]{1,253}$",
        r"^[\pL\pN_-]{1,40}$",
        "|".join(f"node-{n}" for n in range(400)),
    ):
        assert compile_pattern(pattern).size


def test_patterns_that_are_too_large_take_work() -> None:
    """Both patterns of `a.matches(p) || b.matches(q)` are compiled."""
    work.begin(500_000)

    def refused(number: int) -> bool:
        with suppress(PatternError):
            compile_pattern(r"(\pL{1,50}|b{1,50})" * 200 + str(number))
        return True

    with pytest.raises(EvaluationCrash):
        all(map(refused, range(100)))


def test_a_search_ends_when_its_work_does() -> None:
    work.begin()
    with pytest.raises(EvaluationCrash):
        compile_pattern("(a{1,500})+b").matches("a" * 10**6)


def test_searches_that_read_the_whole_rest_for_each_match_end_when_their_work_does() -> None:
    """After each "a", the next search reads to the end of the text, because it looks for a "b"."""
    work.begin()
    found = compile_pattern("a+b|a").find_all("a" * 200_000, -1)
    with pytest.raises(EvaluationCrash):
        sum(1 for _ in found)


def test_every_match_takes_work() -> None:
    work.begin()
    with pytest.raises(EvaluationCrash):
        [*compile_pattern("").find_all("a" * 10**6, -1)]
