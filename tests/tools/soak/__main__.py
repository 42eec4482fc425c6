"""The command `python -m soak`."""

import random
import signal
import sys
import time
from pathlib import Path

import click

import replica
from controlplane import ControlPlaneError
from soak.run import soak


@click.command()
@click.option("--minutes", type=click.FloatRange(1), default=30, show_default=True)
@click.option("--pods", type=click.IntRange(50), default=2000, show_default=True)
@click.option("--seed", type=int, help="Of churn and faults.  [default: a new one]")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=replica.ROOT / "build" / "soak",
    help="Folder for logs and journals; a run has a folder in it.  [default: build/soak]",
)
def main(minutes: float, pods: int, seed: int | None, output: Path) -> None:
    """Run two replicas under random changes and random faults, with an auditor beside them.

    First comes a drain of --pods pods with preemption, then changes and faults to the end. Exits
    with 0 if no pod was lost, bound twice or evicted for nothing, no node was overcommitted, no
    write came without the lease, all counts agree, and neither memory nor tasks grew; else with 1.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    folder = output / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    click.echo(f"seed {seed}, {pods} pods, {minutes:g} minutes; logs in {folder}")
    try:
        result = soak(minutes, seed=seed, pods=pods, say=click.echo, folder=folder)
    except ControlPlaneError as error:
        raise click.ClickException(str(error)) from error
    click.echo()
    for line in result.table:
        click.echo(line)
    acts = {name.strip("_"): number for name, number in result.acts.items()}
    strict = {f"answered {status}": number for status, number in result.strict.items()}
    for what, counts in (("acts", acts), ("bound", result.kinds), ("strict evictions", strict)):
        counted = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
        click.echo(f"\n{what}: {counted}")
    click.echo(f"{result.bound} bound, {result.evicted} evicted, {result.episodes} faults")
    for fault in result.faults:
        click.echo(f"WRONG: {fault}")
    click.echo("not clean" if result.faults else "clean")
    sys.exit(bool(result.faults))


if __name__ == "__main__":
    main(prog_name="python -m soak")
