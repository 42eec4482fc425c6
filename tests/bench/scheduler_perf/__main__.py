"""The command `python -m bench.scheduler_perf`."""

import textwrap
from collections.abc import Iterator, Sequence

import click

from bench.scheduler_perf.reading import Workload, chosen, read_workloads
from bench.scheduler_perf.source import workloads_folder
from controlplane import ControlPlaneError
from controlplane.releases import chosen_release

WIDTH = 80


@click.command()
@click.argument("names", nargs=-1, metavar="[CASE | CASE/WORKLOAD]...")
@click.option("--label", default="", help="Labels that they have, such as performance,-short.")
def main(names: tuple[str, ...], label: str) -> None:
    """List Kubernetes' own performance workloads, and say which cannot be run here and why."""
    try:
        workloads = read_workloads(workloads_folder(chosen_release()))
    except ControlPlaneError as error:
        raise click.ClickException(str(error)) from error
    for line in listed(chosen(workloads, names, label)):
        click.echo(line)


def listed(workloads: Sequence[Workload]) -> Iterator[str]:
    """Yield lines with each workload, its labels and objects, or why it is left out."""
    case = ""
    for workload in workloads:
        of_case, _, name = workload.name.partition("/")
        if of_case != case:
            case = of_case
            yield case
        objects = "" if workload.obstacles else f"{workload.objects:,}"
        yield f"  {objects:>7}  {','.join(sorted(workload.labels)):<23} {name}"
        for obstacle in workload.obstacles:
            words = f"left out: {obstacle}"
            yield textwrap.fill(words, WIDTH, initial_indent=4 * " ", subsequent_indent=6 * " ")
    runnable = sum(not workload.obstacles for workload in workloads)
    yield f"{runnable} of {len(workloads)} can be run"


if __name__ == "__main__":
    main(prog_name="python -m bench.scheduler_perf")
