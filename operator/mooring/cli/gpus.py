"""`mooring gpus`."""

import sys
from collections.abc import Iterable

import click

from mooring.cli.console import (
    DONE,
    NO,
    mistakes_reported,
    note,
    output_option,
    print_json,
    print_table,
)
from mooring.engine.profiles import InForce, Profiles
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.device_args import PRESETS
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.simulate.gpus import NodeGPUs, Plan, node_gpus, picture, plans
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.manifests import read_manifests
from mooring.simulate.offline import offline_handle

__all__ = ["gpus", "in_force"]

_HEAD = ("NODE", "CARD", "TYPE", "MEMORY", "FREE", "CORES", "PODS")
_NUMBERS = ("CARD", "MEMORY", "FREE", "CORES")


@click.command(
    short_help="Show the GPU cards of every node and who has them.",
    epilog="""\b
Examples:
  kubectl get nodes,pods -A -o json | mooring gpus -
  mooring gpus cluster.json --preset hami -o svg > gpus.svg
  mooring gpus cluster.json --plan""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--preset",
    type=click.Choice([*PRESETS]),
    default="gpushare",
    show_default=True,
    help="Whose resources and annotations nodes and pods have.",
)
@click.option("--plan", is_flag=True, help="Which few pods to move for those that pend.")
@output_option("table", "json", "svg")
def gpus(files: tuple[str, ...], preset: str, output: str, *, plan: bool) -> None:
    """Show the GPU cards of every node, who has them, and what would still fit.

    Reads nodes and pods from FILEs (YAML or JSON; - is standard input). With --plan it looks for
    the fewest pods, at most three, that would have to move to other nodes so that a pending pod
    fits, each pending pod by itself; nothing is moved.

    Exits with 0, with --plan 1 if there is a pending pod without a plan, 2 for bad input.
    """
    form, registry = PRESETS[preset], Registry(SHIPPED)
    if plan and output == "svg":
        raise click.UsageError("--plan prints a table or json")
    with mistakes_reported():
        inputs = inputs_of(read_manifests(files), registry)
    if plan:
        found = [*plans(inputs, in_force(inputs, registry, preset), form)]
        _print_plans(found, output)
        sys.exit(DONE if all(each.node for each in found) else NO)
    nodes = [*node_gpus(inputs.state, form)]
    if output == "svg":
        click.echo(picture(nodes), nl=False)
    elif output == "json":
        print_json({"nodes": [node.document() for node in nodes]})
    else:
        _print_nodes(nodes)


def in_force(inputs: Inputs, registry: Registry, preset: str) -> InForce:
    """The default policy with the plugins that assign cards of the preset."""
    names = ("GPUShare", "GPUTopology")
    document = {
        "plugins": {"multiPoint": {"enabled": [{"name": name} for name in names]}},
        "pluginConfig": [{"name": name, "args": {"preset": preset}} for name in names],
    }
    spec = read(SchedulingProfileSpec, document, "spec")
    profiles = Profiles(registry, offline_handle(inputs.state))
    return profiles.build(SchedulingProfile("gpus", spec), resolve(spec, registry))


def _print_nodes(nodes: Iterable[NodeGPUs]) -> None:
    rows = []
    for node in nodes:
        for card in node.cards:
            state = "" if card.usable else " (not usable)"
            state += " (overcommitted)" if card.overcommitted else ""
            owners = (f"{key}?" if key in card.guessed else key for key in card.owners)
            rows.append(
                (
                    node.node,
                    str(card.number),
                    card.product or "-",
                    str(card.memory),
                    str(card.free),
                    f"{card.free_cores}%",
                    (", ".join(owners) or "-") + state,
                )
            )
        free = f"largest share {node.largest_share}, {node.free_cards} free cards"
        rows.append((node.node, "", "", "", "", "", free))
    if rows:
        print_table(_HEAD, rows, numbers=_NUMBERS, prose=("PODS",))
    else:
        note("no node has GPUs; is --preset the right one?")


def _print_plans(found: Iterable[Plan], output: str) -> None:
    if output == "json":
        print_json({"plans": [plan.document() for plan in found]})
        return
    rows = []
    for plan in found:
        moves = ", ".join(f"{move.pod} to {move.target}" for move in plan.moves)
        how = "fits" if plan.fits else f"move {moves}" if plan.node else "no few pods would do"
        rows.append((plan.pod, plan.node or "-", how))
    if rows:
        print_table(("POD", "NODE", "PLAN"), rows, prose=("PLAN",))
    else:
        note("no pending pod requests GPUs")
