"""Mistakes put into Mooring on purpose; the simulation must find each of them.

    python -m simulation.mutations              every mistake, 1,000 seeds at most
    python -m simulation.mutations late-read    one of them

A mistake is a change of the source, from mutations.yaml. Each is made in a copy of the sources
below a temporary folder, which a separate process imports.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from simulation.actors import ACTORS
from simulation.scenario import draw
from simulation.world import run

_OPERATOR: Final = Path(__file__).parents[2] / "operator"
_MOST_SEEDS: Final = 1_000


@dataclass(frozen=True)
class Mutation:
    """One mistake: a file, the old text and the new text."""

    name: str
    about: str
    file: str
    """Below operator/mooring/."""
    old: str
    new: str


MUTATIONS: Final = tuple(
    Mutation(name, **fields)
    for name, fields in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
)


def mutated(mutation: Mutation) -> str:
    """Return the text of the file with the mistake.

    Raises:
        ValueError: The old text is not exactly once in the file.
    """
    text = (_OPERATOR / "mooring" / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.file} has it {text.count(mutation.old)}x")
    return text.replace(mutation.old, mutation.new)


@contextmanager
def _sources_with(mutation: Mutation) -> Iterator[Path]:
    """Yield a source root that contains the mistake."""
    text = mutated(mutation)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "operator"
        shutil.copytree(_OPERATOR, root)
        (root / "mooring" / mutation.file).write_text(text)
        yield root


def found_by(mutation: Mutation, first: int, count: int) -> tuple[int, str] | None:
    """Return the first of these seeds that finds the mistake, and its error; None if none does."""
    tests = Path(__file__).parents[1]
    with _sources_with(mutation) as root:
        looked = subprocess.run(
            [sys.executable, "-m", "simulation.mutations", "--look", str(first), str(count)],
            env={**os.environ, "PYTHONPATH": f"{root}:{tests}:{tests / 'tools'}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if looked.returncode:
        raise RuntimeError(looked.stderr)
    seed, _, broken = looked.stdout.strip().partition(" ")
    return (int(seed), broken) if broken else None


def _look(first: int, count: int) -> None:
    """Print the first of these seeds that breaks an invariant, and the invariant."""
    for seed in range(first, first + count):
        try:
            broken = run(draw(seed, [actor() for actor in ACTORS])).broken
        except Exception as error:  # noqa: BLE001 - the mistake may break the simulation itself
            broken = f"the run ends with {error!r}"
        if broken:
            sys.stdout.write(f"{seed} {broken}\n".replace("\n", " "))
            return


def main() -> int:
    """Try each mistake; return 1 if one is not found, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="mistakes, by default all")
    parser.add_argument("--count", type=int, default=_MOST_SEEDS, help="seeds at most")
    parser.add_argument("--look", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look:
        _look(*args.look)
        return 0
    missed = 0
    for mutation in MUTATIONS:
        if args.name and mutation.name not in args.name:
            continue
        found = found_by(mutation, 0, args.count)
        missed += found is None
        said = f"seed {found[0]}: {found[1]}" if found else f"not found by {args.count} seeds"
        sys.stdout.write(f"{mutation.name:<24} {said}\n")
        sys.stdout.flush()
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
