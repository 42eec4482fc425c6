"""`python -m faults.counted FILE MODULE ARGUMENT...`: the module, its asyncio tasks counted.

Mooring does not say how many tasks it has, and a leak of tasks is a leak. Its event loop writes
their number to the file every second; nothing else is different.
"""

import asyncio
import runpy
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

EVERY_SECONDS = 1.0
T = TypeVar("T")


def main() -> None:
    """Run the module as if it had been run alone."""
    output, module, *arguments = sys.argv[1:]
    for library in (asyncio, uvloop):
        library.run = _counting(library.run, Path(output))  # type: ignore[attr-defined] # replaced
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _counting(run: Callable[..., T], output: Path) -> Callable[..., T]:
    """Return the library's `run`, with a timer on the loop that it makes."""

    def run_counted(awaited: Coroutine[Any, Any, T], **options: Any) -> T:
        async def counted() -> T:
            _count(output)
            return await awaited

        return run(counted(), **options)

    return run_counted


def _count(output: Path) -> None:
    loop = asyncio.get_running_loop()
    partial = output.with_suffix(".partial")
    partial.write_text(str(len(asyncio.all_tasks(loop))))
    partial.rename(output)
    loop.call_later(EVERY_SECONDS, _count, output)


if __name__ == "__main__":
    main()
