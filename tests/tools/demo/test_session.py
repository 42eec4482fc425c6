"""docs/quickstart.md has the output of the commands of its first part."""

import pytest

from demo.session import PAGE, differences

pytestmark = pytest.mark.server


def test_the_commands_of_the_session_print_what_the_page_says() -> None:
    assert list(differences(PAGE.read_text())) == []
