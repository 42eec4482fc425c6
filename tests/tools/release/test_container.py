from dataclasses import replace
from typing import Any

import pytest

from release.container import PODS, Trial

GOOD = Trial(
    size=308_000_000,
    ready=1.94,
    bound=PODS,
    user="65532",
    read_only=True,
    privileges="0000000000000000",
    exit_code=0,
    stopped=0.2,
)


def test_a_run_that_did_everything_passes_and_is_told_in_a_line() -> None:
    assert GOOD.passed
    assert str(GOOD) == (
        "308 MB unpacked, ready after 1.9 s, user 65532 with capabilities 0 on a read-only root, "
        "20 of 20 pods bound, exit code 0 0.2 s after SIGTERM"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"bound": PODS - 1},
        {"user": "0"},
        {"read_only": False},
        {"privileges": "00000000a80425fb"},
        {"exit_code": 1},
        {"exit_code": None},
    ],
    ids=str,
)
def test_a_run_that_lacks_anything_does_not_pass(changed: dict[str, Any]) -> None:
    assert not replace(GOOD, **changed).passed
