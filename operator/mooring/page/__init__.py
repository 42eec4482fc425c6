"""The page that the operator serves below /ui/: the scheduler's state and decisions, read-only."""

from typing import Final

MOST_BYTES: Final = 1024 * 1024
"""Limit for the body of a request."""
