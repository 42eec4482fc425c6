"""The command `python -m exploration`."""

import sys
import time
from functools import partial
from typing import Final

import click

from exploration.engine_world import SCENARIOS, EngineWorld, exploring
from exploration.explorer import Explored, explore

_EXAMPLE: Final = "Example: python -m exploration --world fits --events 2 --depth 8"


@click.command(epilog=_EXAMPLE)
@click.option(
    "--events",
    type=click.IntRange(0, 8),
    default=1,
    show_default=True,
    help="How many events there are in all; a pod, a node and the group have one each at most.",
)
@click.option(
    "--depth",
    type=click.IntRange(1),
    help="Leave out states that are more actions away.  [default: none is]",
)
@click.option(
    "--world",
    "worlds",
    type=click.Choice([*SCENARIOS]),
    multiple=True,
    help="What to explore: pods alone while one fits or none, or a gang.  [default: all]",
)
@click.option("--lagging", is_flag=True, help="Have both watches of pods tell late.")
def main(
    events: int,
    depth: int | None,
    worlds: tuple[str, ...],
    *,
    lagging: bool,
) -> None:
    """Run the engine through every order of events in a small world.

    Exits with 1 if a rule is broken, and prints the shortest sequence of actions that breaks it.
    """
    broken = False
    with exploring():
        for name in worlds or SCENARIOS:
            began = time.monotonic()
            explored = explore(partial(EngineWorld, name, events, lagging=lagging), depth=depth)
            broken |= _print(name, explored, time.monotonic() - began)
    click.echo("not clean" if broken else "clean")
    sys.exit(broken)


def _print(name: str, explored: Explored, seconds: float) -> bool:
    """Print the result of an exploration; return whether a rule is broken."""
    click.echo(f"{name}: {explored}, {seconds:.0f} s")
    if explored.violation is not None:
        click.echo(explored.violation)
    return explored.violation is not None


if __name__ == "__main__":
    main(prog_name="python -m exploration")
