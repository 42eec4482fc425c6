"""docs/first-minutes.md says what its commands print."""

import pytest

from demo.session import PAGE, differences

pytestmark = pytest.mark.server


def test_the_commands_of_the_first_minutes_print_what_the_page_says() -> None:
    assert list(differences(PAGE.read_text())) == []
