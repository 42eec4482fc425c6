"""Replay seeds: `python -m simulation 42`, or many: `python -m simulation 0 --count 1000`."""

import argparse
import sys

from simulation.actors import ACTORS
from simulation.scenario import draw
from simulation.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--log", action="store_true")
    args = parser.parse_args()
    actors = tuple(kind() for kind in ACTORS)
    failed = 0
    for seed in range(args.seed, args.seed + args.count):
        outcome = run(draw(seed, actors), keep_log=args.log)
        if args.log:
            print("\n".join(outcome.log))
        if outcome.broken or args.count == 1:
            print(
                f"seed {seed}: {outcome.broken or 'all invariants hold'}; {outcome.bound} pods bound in {outcome.seconds:.0f} s, trace {outcome.trace}"
            )
        failed += bool(outcome.broken)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
