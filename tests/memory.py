"""Measures allocated memory, and records garbage collections."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes allocated inside this context and still in use.

    A cache of the whole process may have to grow inside the context, which can allocate a megabyte.
    If this matters, compare the bytes before and after the value is dropped, or take the smallest
    of several results.
    """
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@contextmanager
def collections_of_garbage() -> Iterator[list[int]]:
    """Yield a list of the generations collected inside; automatic collection is off there."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.disable()
    gc.callbacks.append(note)
    try:
        yield generations
    finally:
        gc.callbacks.remove(note)
        gc.enable()
