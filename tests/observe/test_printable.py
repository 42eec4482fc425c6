import pytest

from mooring.observe.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("façade 😀", "façade 😀"),
        ("a\x1b[31mb\x07", r"a\x1b[31mb\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\U000e0001", r"\U000e0001"),
        ("two\nlines\r\nand more\n", "two lines and more"),
    ],
)
def test_what_is_not_printable_is_escaped_and_all_is_one_line(text: str, shown: str) -> None:
    assert printable(text) == shown
