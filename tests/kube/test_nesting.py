"""Values that are nested too deeply are replaced; the rest of the JSON stays unchanged."""

import json
import sys
from types import FrameType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.kube.nesting import DEEPEST, cut_nesting

VALUES = st.recursive(
    st.none() | st.integers() | st.text('ab{}[]\\"'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("k{["), inner),
    max_leaves=200,
)


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"1" + b"]}" * (levels // 2)


def depth(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(inner, list) else 0


@pytest.mark.parametrize("levels", [DEEPEST + 2, 1_000, 10_000])
def test_what_is_too_deep_becomes_a_string(levels: int) -> None:
    text = b'{"first":%b,"last":{"x":1}}' % nested(levels)
    cut = orjson.loads(cut_nesting(text))
    assert cut == json.loads(cut_nesting(text))
    assert depth(cut) == DEEPEST
    assert cut["last"] == {"x": 1}
    assert b"(nested too deeply)" in cut_nesting(text)


@pytest.mark.parametrize("text", ["{}", "[]", "{}[]"])
def test_text_that_looks_like_empty_objects_does_not_hide_the_depth(text: str) -> None:
    value: object = "x"
    for _ in range(DEEPEST + 1):
        value = {text: value}
    cut = json.loads(cut_nesting(json.dumps(value).encode()))
    assert depth(cut) == DEEPEST


def test_an_empty_object_at_the_deepest_level_is_kept_and_below_it_is_cut() -> None:
    kept = b"[" * (DEEPEST - 1) + b"{}" + b"]" * (DEEPEST - 1)
    assert cut_nesting(kept) == kept
    assert depth(json.loads(cut_nesting(b"[%b]" % kept))) == DEEPEST


def test_the_deepest_level_is_kept() -> None:
    text = nested(DEEPEST)
    assert cut_nesting(text) == text


@given(value=VALUES)
def test_what_is_not_too_deep_stays_as_it_is(value: object) -> None:
    text = json.dumps([value] * (DEEPEST + 1)).encode()
    assert cut_nesting(text) == text


@given(
    keys=st.lists(st.text('{}[]\\"', max_size=4), min_size=DEEPEST - 2, max_size=DEEPEST + 2),
    inner=VALUES,
)
def test_braces_and_quotes_in_keys_hide_no_level(keys: list[str], inner: object) -> None:
    value = inner
    for number, key in enumerate(keys):
        value = {key: value, key[::-1] + "{}": number} if number % 2 else [value]
    text = json.dumps(value).encode()
    cut = cut_nesting(text)
    assert depth(json.loads(cut)) == min(depth(value), DEEPEST)
    assert (cut == text) == (depth(value) <= DEEPEST)


def test_many_values_that_are_too_deep_take_no_more_steps_of_python_than_few() -> None:
    """A loop in Python would need 300,000 steps for a megabyte of such values, for each event."""

    def lines(siblings: int) -> int:
        number = 0

        def count(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal number
            number += event == "line"
            return count

        text = b"[" * DEEPEST + b",".join([b"[]"] * siblings) + b"]" * DEEPEST
        before = sys.gettrace()
        sys.settrace(count)
        try:
            cut = cut_nesting(text)
        finally:
            sys.settrace(before)
        assert cut.count(b"(nested too deeply)") == siblings
        return number

    assert lines(1_000) == lines(10)
