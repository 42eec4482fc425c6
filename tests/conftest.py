"""What every test may use."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A busy machine is no failure: nothing is timed in tests.
settings.register_profile("mooring", deadline=None)
settings.load_profile("mooring")

pytest_plugins = ["controlplane.fixtures"]


def pytest_collection_finish() -> None:
    """Take what exists before the first test out of the collector's work, which is then short."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_nothing_to_the_collector() -> Iterator[None]:
    """A test fails if it leaves a socket, a file, a transport or an event loop unclosed.

    Without this the warning would come while a later test runs, and fail that one.
    """
    yield
    gc.collect()
