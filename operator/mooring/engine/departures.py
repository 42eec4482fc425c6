"""Remembers which objects were deleted while somebody read them from the API server."""

from collections.abc import Container, Iterator
from contextlib import contextmanager

__all__ = ["Departures"]


class Departures:
    """The uids of objects that have gone, for each reader since it began to read.

    An answer may be older than what a watch has told meanwhile. A uid never comes back, so an
    answer about one that has gone is of no use. Nothing is kept while nobody reads.
    """

    def __init__(self) -> None:
        self._readers: dict[object, set[str]] = {}

    def note(self, uid: str) -> None:
        """Note that the object of this uid has gone."""
        for gone in self._readers.values():
            gone.add(uid)

    @contextmanager
    def meanwhile(self) -> Iterator[Container[str]]:
        """Return the uids that go inside the block, as they go."""
        reader, gone = object(), set[str]()
        self._readers[reader] = gone
        try:
            yield gone
        finally:
            del self._readers[reader]
