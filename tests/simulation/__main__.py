"""Run seeds of the simulated world.

    python -m simulation 42                  replay a seed; if it fails, show its shortest history
    python -m simulation 42 --log            with every request and change
    python -m simulation 0 --count 10000     many seeds, on all processors, and their situations
    python -m simulation 42 --keep 'TEXT'    add its shortest history to the regressions

The exit code is 1 if an invariant does not hold, or if 1,000 seeds or more leave a situation out.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Final

from simulation.actors import ACTORS
from simulation.coverage import Coverage
from simulation.regressions import keep
from simulation.scenario import Scenario, draw
from simulation.shrinking import shrunk
from simulation.world import Outcome, run

MEET_ALL: Final = 1_000
"""So many seeds and more fail if there is a situation that none has met."""
_BLOCK = 25
"""Seeds that a process runs before it tells how they ended."""
_COLLECT: Final = (50_000, 20, 100)
"""New objects after which the collector looks at them; a run leaves 100,000 or so."""


def scenario_of(seed: int) -> Scenario:
    return draw(seed, [kind() for kind in ACTORS])


def failures(seeds: Sequence[int], coverage: Coverage | None = None) -> list[Outcome]:
    """Run these seeds; return the outcomes in which an invariant is broken."""
    with _calm_collector():
        outcomes = (_outcome(seed, coverage) for seed in seeds)
        return [outcome for outcome in outcomes if outcome.broken]


def _outcome(seed: int, coverage: Coverage | None) -> Outcome:
    try:
        return run(scenario_of(seed), coverage=coverage)
    except Exception as error:
        error.add_note(_repeating(seed))
        raise


def _repeating(seed: int) -> str:
    return f"repeat it: .venv/bin/python -m simulation {seed}"


def report(outcome: Outcome, *, shrink: bool = False) -> str:
    """Return the error and the command that repeats it; `shrink`: also the shortest history."""
    seed = outcome.scenario.seed
    lines = [f"seed {seed}: {outcome.broken}", _repeating(seed)]
    if shrink:
        found = shrunk(outcome)
        before = len(outcome.scenario.steps)
        lines.append(f"shortest history, {len(found.scenario.steps)} of {before} steps:")
        lines += [f"  {step}" for step in found.scenario.steps]
        lines.append(f"  then {found.broken}")
    return "\n".join(lines)


@contextmanager
def _calm_collector() -> Iterator[None]:
    """Exclude existing objects from garbage collection, and make collections rare."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _block(seeds: Sequence[int]) -> tuple[list[Outcome], Coverage]:
    coverage = Coverage()
    return failures(seeds, coverage), coverage


def _many(first: int, count: int) -> int:
    """Run seeds on all processors; print failures and situations; return the exit code."""
    seeds = iter(range(first, first + count))
    blocks = list(iter(lambda: tuple(islice(seeds, _BLOCK)), ()))
    coverage, failed, done = Coverage(), 0, 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for block, (found, met) in zip(blocks, pool.map(_block, blocks), strict=True):
            coverage.met.update(met.met)
            done += len(block)
            failed += len(found)
            for outcome in found:
                _say(report(outcome, shrink=failed <= 3))
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{done} of {count} seeds, {failed} failed ")
    _say(coverage.table())
    verdict, code = concluded(coverage, done, failed)
    _say(verdict)
    return code


def concluded(coverage: Coverage, seeds: int, failed: int) -> tuple[str, int]:
    """Return a summary of `seeds` runs with `failed` failures, and the exit code."""
    never = coverage.never_met()
    verdict = f"{seeds} seeds, {failed} failed; never met: {len(never)} situations"
    misses = bool(never) and seeds >= MEET_ALL
    if misses:
        verdict += "\nso many seeds have to meet all: " + "; ".join(map(": ".join, never))
    return verdict, int(failed > 0 or misses)


def _one(seed: int, *, log: bool, about: str) -> int:
    """Replay a seed, and print its outcome; return the exit code."""
    outcome = run(scenario_of(seed), keep_log=log)
    if log:
        _say("\n".join(outcome.log))
    said = f"{outcome.bound} pods bound in {outcome.seconds:.0f} s, trace {outcome.trace}"
    if not outcome.broken:
        _say(f"seed {seed}: all invariants hold; {said}")
        return 0
    _say(f"{report(outcome, shrink=True)}\n{said}")
    if about:
        keep(about, shrunk(outcome).scenario)
    return 1


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--log", action="store_true", help="show every request and change")
    parser.add_argument("--keep", default="", metavar="TEXT", help="keep it as a regression")
    chosen = parser.parse_args(arguments)
    if chosen.count > 1:
        return _many(chosen.seed, chosen.count)
    return _one(chosen.seed, log=chosen.log, about=chosen.keep)


if __name__ == "__main__":
    sys.exit(main())
