"""docs/first-minutes.md says what its commands print."""

import re

import pytest

from demo.session import PAGE, commands, play, printed

pytestmark = pytest.mark.server


def shape(output: str) -> list[str]:
    """Return what is the same in every run: the words of lines, without numbers and times."""
    text = re.sub(r" +\w+ 0\b", "", output)  # phases that no group has any more
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+]\d\d:\d\d)", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)?(ms|s|m|h)(\d+s)?\b", "N", text)
    text = re.sub(r"\d+", "N", text).replace("attempts", "attempt")
    return sorted({" ".join(sorted(line.split())) for line in text.splitlines()})


def test_the_commands_of_the_first_minutes_print_what_the_page_says() -> None:
    text = PAGE.read_text()
    typed = commands(text)
    assert len(typed) > 5
    for command, expected, found in zip(typed, printed(text), play(typed), strict=True):
        assert shape(found) == shape(expected), f"$ {command}\n{found}"
