"""The command `python -m exploration`."""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import click

from exploration.explorer import Explored, World, explore
from exploration.group_world import SCENARIOS, GroupWorld, exploring
from exploration.queue_world import QueueWorld

_EXAMPLE: Final = "Example: python -m exploration --world fits --events 2 --depth 8"
_QUEUES: Final = {"queue": 1, "full": 0}
"""The worlds of the queue, and how many pods fit on the first node."""


@click.command(epilog=_EXAMPLE)
@click.option("--pods", type=click.IntRange(1, 3), default=3, show_default=True)
@click.option("--nodes", type=click.IntRange(1, 2), default=2, show_default=True)
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
    type=click.Choice((*_QUEUES, *SCENARIOS)),
    multiple=True,
    help="What to explore: the queue while a pod fits or none, or a gang.  [default: all]",
)
@click.option("--lagging", is_flag=True, help="Have both watches of pods tell late.")
def main(
    pods: int,
    nodes: int,
    events: int,
    depth: int | None,
    worlds: tuple[str, ...],
    *,
    lagging: bool,
) -> None:
    """Run the queue and the group cycle through every order of events in a small world.

    Exits with 1 if a rule is broken, and prints the shortest sequence of actions that breaks it.
    """
    broken = False
    with exploring():
        for name in worlds or (*_QUEUES, *SCENARIOS):
            new_world: Callable[[], World] = partial(GroupWorld, name, events, lagging=lagging)
            if name in _QUEUES:
                new_world = partial(QueueWorld, pods, nodes, events, cpu=_QUEUES[name])
            began = time.monotonic()
            explored = explore(new_world, depth=depth)
            broken |= _print(name, explored, time.monotonic() - began)
    click.echo("not clean" if broken else "clean")
    sys.exit(broken)


def _print(name: str, explored: Explored, seconds: float) -> bool:
    """Print what was seen; return whether a rule is broken."""
    click.echo(f"{name}: {explored}, {seconds:.0f} s")
    if explored.violation is not None:
        click.echo(explored.violation)
    return explored.violation is not None


if __name__ == "__main__":
    main(prog_name="python -m exploration")
