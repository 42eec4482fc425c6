"""How much memory is allocated, and when garbage is collected."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many bytes have been allocated inside and are in use.

    A cache of the whole process that other tests have filled may have to grow inside: its table
    is then allocated anew, which can be a megabyte. Where that matters, compare what is in use
    before and after the value is dropped, or take the least of several values.
    """
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@contextmanager
def collections_of_garbage() -> Iterator[list[int]]:
    """Yield the generations that are collected inside; of itself, Python collects none there."""
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
