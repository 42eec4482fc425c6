"""`mooring simulate`."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import BinaryIO, Final, NoReturn

import click
import orjson

from mooring.cli.console import (
    BAD_INPUT,
    DONE,
    NO,
    mistakes_reported,
    note,
    output_option,
    print_notes,
    print_table,
)
from mooring.framework.registry import Registry
from mooring.observe.records import to_json
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.manifests import read_manifests
from mooring.simulate.profiles import load_profiles
from mooring.simulate.simulation import Attempt
from mooring.simulate.simulation import simulate as attempts_of

__all__ = ["TABLE_HEAD", "simulate", "table_row", "write_json"]

TABLE_HEAD: Final = ("POD", "NODE", "SCORE", "WHY")
_MOST_VICTIMS: Final = 3


@click.command(
    epilog="""\b
Examples:
  mooring simulate nodes.yaml pods.yaml
  kubectl get nodes,pods,pv,pvc,sc,pdb -A -o json | mooring simulate -
  mooring simulate cluster.json --profile bin-packing.yaml -o json"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--profile",
    metavar="FILE",
    type=click.Path(),
    help="Use the profiles of this file (SchedulingProfile or KubeSchedulerConfiguration).",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Chooses among nodes of equal score; the same seed gives the same choice.",
)
@click.option(
    "--extenders",
    is_flag=True,
    help="Call the extenders of the profiles to filter, score and preempt; they never bind.",
)
@output_option("table", "json")
def simulate(
    files: tuple[str, ...], profile: str | None, seed: int, output: str, *, extenders: bool
) -> None:
    """Schedule the pods of manifests without a cluster.

    Reads Kubernetes objects from FILEs (YAML or JSON; - is standard input) and schedules every pod
    that has no node, in queue order. Pods that are scheduled count on their node for the next ones.
    Of Deployments, StatefulSets, DaemonSets, Jobs, CronJobs and ReplicaSets that no cluster has
    stored, the pods are made first. SchedulingProfiles among the objects apply; without any,
    kube-scheduler's defaults do.

    Exits with 0 if every pod gets a node, 1 if some pod gets none, 2 for bad input and if there is
    no pod to schedule.
    """
    registry = Registry(SHIPPED)
    with mistakes_reported():
        profiles = load_profiles(read_manifests([profile]), registry) if profile else ()
        inputs = inputs_of(read_manifests(files), registry, profiles, keep_raw=extenders)
        attempts = attempts_of(
            inputs, registry, seed=seed, every_node=output == "json", extenders=extenders
        )
    print_notes(profile or "", profiles)
    if not extenders and (uncalled := _with_extenders(inputs)):
        note(f"extenders were not called (--extenders calls them): those of {uncalled}")
    if inputs.ignored:
        note(_ignored(inputs.ignored))
    if not inputs.pending and not inputs.rejected:
        _nothing_to_schedule(inputs)
    scheduled = write_json(attempts, sys.stdout.buffer) if output == "json" else _print(attempts)
    sys.exit(DONE if scheduled else NO)


def _nothing_to_schedule(inputs: Inputs) -> NoReturn:
    """Exit with 2, because a dry run that tried nothing must not look like one that succeeded."""
    for name, reason in inputs.without_pods.items():
        note(f"{name}: {reason}")
    click.echo("error: there is no pod without a node to schedule", err=True)
    sys.exit(BAD_INPUT)


def _print(attempts: Iterable[Attempt]) -> bool:
    """Print the attempts as a table; return whether every pod has a node."""
    shown = [(table_row(attempt), attempt.decision.node is not None) for attempt in attempts]
    if shown:
        print_table(TABLE_HEAD, [row for row, _ in shown], numbers=("SCORE",))
    return all(scheduled for _, scheduled in shown)


def _with_extenders(inputs: Inputs) -> str:
    """The names of the profiles that have extenders."""
    return ", ".join(p.profile.name for p in inputs.profiles if p.profile.spec.extenders)


def _ignored(kinds: Counter[str]) -> str:
    counts = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    return f"ignored objects of kinds that no decision reads: {counts}"


def write_json(attempts: Iterable[Attempt], out: BinaryIO) -> bool:
    """Write `{"decisions": [...]}`, one decision per line; return whether every pod has a node.

    Each decision is written as soon as it is made: for thousands of pods and nodes, all of them
    together would not fit into memory.
    """
    scheduled = True
    out.write(b'{"decisions": [')
    separator = b"\n"
    for attempt in attempts:
        out.write(separator + orjson.dumps(to_json(attempt.decision)))
        separator = b",\n"
        scheduled &= attempt.decision.node is not None
    out.write(b"\n]}\n")
    return scheduled


def table_row(attempt: Attempt) -> tuple[str, str, str, str]:
    """The cells of one row, for the columns in `TABLE_HEAD`."""
    decision = attempt.decision
    if decision.node is None:
        return decision.pod, "-", "-", f"{decision.message}{_nomination(attempt)}"
    if decision.scores is None:
        return decision.pod, decision.node, "-", "the only node that fits"
    score = max(node.total for node in decision.scores.values())
    return decision.pod, decision.node, str(score), f"best of {attempt.feasible} nodes that fit"


def _nomination(attempt: Attempt) -> str:
    decision = attempt.decision
    if decision.nominated_node is None:
        return ""
    victims = ", ".join(decision.victims[:_MOST_VICTIMS])
    more = len(decision.victims) - _MOST_VICTIMS
    others = f" and {more} more" if more > 0 else ""
    return f" It can run on {decision.nominated_node} once {victims}{others} are gone."
