import pytest

from mooring.cel.literals import LiteralError, unquoted


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ('"a\\tb"', "a\tb"),
        ("'\\U0001F600'", "😀"),
        ("r'\\n'", "\\n"),
        ("'''a'b'''", "a'b"),
        ('"a\r\nb"', "a\nb"),
    ],
)
def test_escapes_are_read(token: str, value: str) -> None:
    assert unquoted(token, is_bytes=False) == value


def test_bytes_may_be_any() -> None:
    assert unquoted("b'\\xff\\377é'", is_bytes=True) == b"\xff\xff\xc3\xa9"
    assert unquoted("br'\\x'", is_bytes=True) == b"\\x"


@pytest.mark.parametrize("token", ["'\\q'", "'\\ud800'", "b'\\u0041'"])
def test_escapes_that_do_not_exist_are_refused(token: str) -> None:
    with pytest.raises(LiteralError):
        unquoted(token, is_bytes=token.startswith("b"))
