"""The read-only page that the operator serves below /ui/: the scheduler's state and decisions."""

from typing import Final

MOST_BYTES: Final = 1024 * 1024
"""The most bytes in the body of a request; a larger request gets HTTP 413."""
