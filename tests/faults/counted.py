"""`python -m faults.counted FILE MODULE ARGUMENT...`: the module, its asyncio tasks counted.

Mooring does not say how many tasks it has, and a leak of tasks is a leak. A thread writes their
number to the file every second; nothing else is different.
"""

import asyncio
import gc
import runpy
import sys
import threading
import time
from pathlib import Path

__all__: list[str] = []

EVERY_SECONDS = 1.0


def main() -> None:
    """Runs the module as if it had been run alone."""
    output, module, *arguments = sys.argv[1:]
    threading.Thread(target=_count, args=(Path(output),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _count(output: Path) -> None:
    loop: asyncio.AbstractEventLoop | None = None
    while True:
        time.sleep(EVERY_SECONDS)
        loop = loop or _loop()
        if loop is not None:
            partial = output.with_suffix(".partial")
            partial.write_text(str(len(asyncio.all_tasks(loop))))
            partial.rename(output)


def _loop() -> asyncio.AbstractEventLoop | None:
    """The process's event loop; it has one."""
    found = (each for each in gc.get_objects() if issubclass(type(each), asyncio.AbstractEventLoop))
    return next(found, None)


if __name__ == "__main__":
    main()
