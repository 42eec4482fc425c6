"""`mooring simulate`."""

import sys
from collections import Counter
from collections.abc import Iterable

import click

from mooring.cli.console import (
    DONE,
    NO,
    mistakes_reported,
    note,
    notes_of,
    output_option,
    print_table,
)
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import read_manifests
from mooring.simulate.output import TABLE_HEAD, table_row, write_json
from mooring.simulate.policies import read_policies
from mooring.simulate.simulation import Attempt
from mooring.simulate.simulation import simulate as attempts_of

__all__ = ["simulate"]


@click.command(
    epilog="""\b
Examples:
  mooring simulate nodes.yaml pods.yaml
  kubectl get nodes,pods,pv,pvc,sc,pdb -A -o json | mooring simulate -
  mooring simulate cluster.json --profile bin-packing.yaml -o json"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--profile",
    metavar="FILE",
    help="Policy in place of the input's: SchedulingProfile or KubeSchedulerConfiguration.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Chooses among equally good nodes; the same seed, the same choice.",
)
@output_option("table", "json")
def simulate(files: tuple[str, ...], profile: str | None, seed: int, output: str) -> None:
    """Schedule manifests without a cluster.

    Reads Kubernetes objects from FILEs (YAML or JSON; - is standard input) and decides every pod
    that has no node, in queue order, each on top of the last. SchedulingProfiles among
    the objects decide; without any, kube-scheduler's defaults do.

    Exits with 0 if every pod has a node, 1 if some pod has none, 2 for bad input.
    """
    registry = Registry(SHIPPED)
    with mistakes_reported():
        policies = read_policies(read_manifests([profile]), registry) if profile else ()
        inputs = inputs_of(read_manifests(files), registry, policies)
        attempts = attempts_of(inputs, registry, seed=seed, every_node=output == "json")
    notes_of(profile or "", policies)
    if inputs.ignored:
        note(_ignored(inputs.ignored))
    if not inputs.pending:
        note("there is no pod without a node to schedule")
    placed = write_json(attempts, sys.stdout.buffer) if output == "json" else _print(attempts)
    sys.exit(DONE if placed else NO)


def _print(attempts: Iterable[Attempt]) -> bool:
    """The attempts as a table; True if every pod has a node."""
    shown = [(table_row(attempt), attempt.decision.node is not None) for attempt in attempts]
    if shown:
        print_table(TABLE_HEAD, [row for row, _ in shown], numbers=("SCORE",))
    return all(placed for _, placed in shown)


def _ignored(kinds: Counter[str]) -> str:
    counts = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    return f"ignored objects of kinds that no decision reads: {counts}"
