"""The common part of commands that compare schedulers: options, order, progress and files."""

import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

import replica
from bench.schedulers import Scheduler
from controlplane import ControlPlaneError
from controlplane.progress import Progress
from controlplane.releases import chosen_release

_Command = TypeVar("_Command", bound=Callable[..., Any])

WIDTH = 132
"""The number of columns if the output is no terminal."""

progress = Progress()
console = Console() if sys.stdout.isatty() else Console(width=WIDTH)


def options(command: _Command) -> _Command:
    """Add the options `--rounds` and `--output` to a command."""
    output = click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=replica.ROOT / "build" / "bench",
        help="Folder for the figures and Mooring's log.  [default: build/bench]",
    )
    about = "How often to repeat A B B A."
    rounds = click.option("--rounds", type=click.IntRange(1), default=1, help=about)
    return rounds(output(command))


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Exit with a message of one line if the control plane fails, and clean up on SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except ControlPlaneError as error:
        raise click.ClickException(str(error)) from error


def a_b_b_a(
    ours: Scheduler, theirs: Scheduler, rounds: int, *between: Scheduler
) -> list[Scheduler]:
    """Return the order of the runs, in which slow changes of the machine's speed cancel out."""
    return [ours, theirs, *between, theirs, ours] * rounds


def interpreter() -> str:
    """Return Python's version and path; a build without PGO is slower by a quarter."""
    return f"Python {platform.python_version()} of {sys.base_prefix}"


def machine() -> str:
    """Return the machine, the system and the interpreter in one line."""
    text = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1] for line in text.splitlines() if "model name" in line), "")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"on {os.cpu_count()} CPUs ({model.strip()}) with {memory:.0f} GiB, load {load}; "
        f"Kubernetes {chosen_release().version}, {interpreter()}"
    )


def write(path: Path, document: dict[str, Any], **machine: object) -> Path:
    """Write the figures and a description of the machine to a file; return its path."""
    measured_on = {
        "kubernetes": chosen_release().version,
        "python": interpreter(),
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg(), **machine},
    }
    path.write_text(json.dumps({**measured_on, **document}, indent=2) + "\n")
    return path
