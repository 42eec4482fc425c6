"""Samples the stack of a module: `python -m bench.sampling OUTPUT MODULE ARGUMENT...`.

The kernel interrupts the program after each slice of CPU time, and the sampler counts the stack at
that moment. Unlike tracing, this hardly slows the program, so the shares are right.
"""

import json
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

INTERVAL = 0.001
"""Seconds of CPU between two samples; kernels round it up to their tick."""

Stack = tuple[str, ...]
"""`module:function` of each frame, the innermost first."""


def main() -> None:
    """Run the module as the main program, and write the samples when it ends."""
    output, module, *arguments = sys.argv[1:]
    samples = Counter[Stack]()

    def take(_signum: int, frame: FrameType | None) -> None:
        samples[tuple(_frames(frame))] += 1

    signal.signal(signal.SIGPROF, take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(output).write_text(json.dumps([[*item] for item in samples.items()]))


def read_samples(path: Path) -> Counter[Stack]:
    """Return the samples that `main` wrote."""
    return Counter({tuple(stack): count for stack, count in json.loads(path.read_text())})


def _frames(frame: FrameType | None) -> Iterator[str]:
    while frame:
        yield f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        frame = frame.f_back


if __name__ == "__main__":
    main()
