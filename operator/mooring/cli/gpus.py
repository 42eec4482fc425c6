"""The command `mooring gpus`: shows GPU cards and devices, and the pods that hold them."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click

from mooring.claims.device_view import NodeDevice
from mooring.cli.console import (
    DONE,
    NO,
    connection_options,
    mistakes_reported,
    note,
    output_option,
    print_json,
    print_table,
    printable,
)
from mooring.cli.inputs import live_manifests
from mooring.cli.progress import Progress
from mooring.framework.registry import Registry
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.card_view import Card, NodeGPUs, node_gpus, shared_devices
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.scheduling.profiles_in_force import ActiveProfile, Profiles
from mooring.simulate.gpu_moves import CardPlan, picture, plans
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.load_profiles import is_profile
from mooring.simulate.manifests import read_manifests
from mooring.simulate.offline import offline_handle

_HEAD = ("  CARD", "FREE", "CORES FREE", "PODS")
_NUMBERS = ("  CARD", "FREE", "CORES FREE")
_UNITS = {1: "MiB", 1024: "GiB"}
"""The name of each unit of memory, by its size in MiB."""


@click.command(
    short_help="Show the GPU cards and devices of every node and who has them.",
    epilog="""\b
Examples:
  mooring gpus
  mooring gpus --plan
  kubectl get nodes,pods -A -o json | mooring gpus -
  mooring gpus cluster.json --preset hami -o svg > gpus.svg""",
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path())
@connection_options
@click.option(
    "--preset",
    type=click.Choice([*PRESETS]),
    default="gpushare",
    show_default=True,
    help="Whose resources and annotations nodes and pods have.",
)
@click.option("--plan", is_flag=True, help="Which few pods to move for those that pend.")
@output_option("table", "json", "svg")
def gpus(
    files: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    preset: str,
    output: str,
    *,
    plan: bool,
) -> None:
    """Show the GPU cards and devices of every node, which pods have them, and what would still fit.

    Cards are counted by extended resources and annotations; --preset says by which. Devices of
    ResourceSlices are shown by driver and pool, with the claims and pods that hold them.

    Reads nodes and pods from FILEs (YAML or JSON; - is standard input). Without FILEs, it lists the
    objects in the cluster of the kubeconfig. With --plan it looks for the fewest pods, at most
    three, that must move to other nodes so that a pending pod gets its cards. It looks at one
    pending pod at a time, and moves nothing.

    Exits with 0; with 1 if there is no plan for some pending pod (--plan); with 2 for bad input.
    """
    form, registry = PRESETS[preset], Registry(SHIPPED)
    if plan and output == "svg":
        raise click.UsageError("--plan prints a table or json")
    if files and (kubeconfig or context):
        raise click.UsageError("--kubeconfig and --context go without FILEs")
    with mistakes_reported(), Progress() as progress:
        live = not files
        found = live_manifests(kubeconfig, context, progress) if live else read_manifests(files)
        # Profiles say nothing about cards, and may have plugins that are not installed here.
        objects = (each for each in found if not is_profile(each))
        inputs = inputs_of(progress.counting(objects, "reading objects"), registry)
    if plan:
        planned = [*plans(inputs, in_force(inputs, registry, preset), form)]
        _print_plans(planned, output)
        sys.exit(DONE if all(each.node for each in planned) else NO)
    nodes, unit = [*node_gpus(inputs.state, form)], _UNITS[form.mib_per_unit]
    shared = shared_devices(inputs.state)
    if output == "svg":
        click.echo(picture(nodes, unit), nl=False)
    elif output == "json":
        print_json(
            {
                "memoryUnit": unit,
                "nodes": [node.document() for node in nodes],
                "devicesOfSeveralNodes": [device.document() for device in shared],
            }
        )
    else:
        _print_nodes(nodes, unit)
        if shared:
            click.echo("\n" * bool(nodes) + "devices that several nodes can use")
            _print_devices(shared)
        if not nodes and not shared:
            note("no node has GPUs or devices; is --preset the right one?")


def in_force(inputs: Inputs, registry: Registry, preset: str) -> ActiveProfile:
    """Return the default policy with the plugins that assign cards of the preset.

    NodeResourcesFit ignores the resources for shares of cards, because some nodes do not publish
    them.
    """
    names, form = ("GPUShare", "GPUTopology"), PRESETS[preset]
    shares = (form.memory_resource, form.memory_percent_resource, form.cores_resource)
    ignored = {"ignoredResources": [resource for resource in shares if resource]}
    document = {
        "plugins": {"multiPoint": {"enabled": [{"name": name} for name in names]}},
        "pluginConfig": [
            *({"name": name, "args": {"preset": preset}} for name in names),
            {"name": "NodeResourcesFit", "args": ignored},
        ],
    }
    spec = read(SchedulingProfileSpec, document, "spec")
    profiles = Profiles(registry, offline_handle(inputs.state))
    effective = resolve(spec, registry, inputs.state.kubernetes)
    return profiles.build(SchedulingProfile("gpus", spec), effective)


def _print_nodes(nodes: Sequence[NodeGPUs], unit: str) -> None:
    for number, node in enumerate(nodes):
        if number:
            click.echo()
        click.echo(printable(node.node))
        if node.cards:
            _print_cards(node, unit)
        _print_devices(node.devices, node.node)


def _print_cards(node: NodeGPUs, unit: str) -> None:
    click.echo(f"  {printable(_kinds(node))}; still fits: {_fits(node, unit)}")
    rows = []
    for card in node.cards:
        owners = (f"{key}?" if key in card.guessed else key for key in card.owners)
        pods = ", ".join(owners) or "-"
        states = {"overcommitted": card.overcommitted, "not usable": not card.usable}
        notes = "".join(f" ({state})" for state, holds in states.items() if holds)
        rows.append((str(card.number), _free(card, unit), f"{card.free_cores}%", pods + notes))
    print_table(_HEAD, rows, numbers=_NUMBERS, prose=("PODS",))


def _print_devices(devices: Iterable[NodeDevice], node: str = "") -> None:
    pools = dict[tuple[str, str], list[NodeDevice]]()
    for device in devices:
        pools.setdefault((device.id.driver, device.id.pool), []).append(device)
    for (driver, pool), found in pools.items():
        click.echo(f"  {printable(driver)}")
        if pool != node:
            click.echo(f"  pool {printable(pool)}")
        states = Counter(device.state for device in found)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        click.echo(f"  {len(found)} device{'s' * (len(found) > 1)}: {counts}")
        for name in sorted({name for device in found for name in device.classes}):
            count = sum(name in device.classes for device in found)
            of_them = f": {count} of them" if count < len(found) else ""
            click.echo(f"  class {printable(name)}{of_them}")
        rows = [(f"  {d.id.device}", d.state, ", ".join(_holders(d)) or "-") for d in found]
        print_table(("  DEVICE", "STATE", "HELD BY"), rows, prose=("HELD BY",))


def _holders(device: NodeDevice) -> Iterator[str]:
    for holder in device.holders:
        names = ", ".join(pod.partition("/")[2] for pod in holder.pods)  # of the claim's namespace
        pods = f" (pod{'s' * (len(holder.pods) > 1)} {names})"
        admin = " with admin access" * holder.admin_access
        yield f"claim {holder.claim}{pods if holder.pods else ''}{admin}"
    for name, (value, consumed) in device.capacity.items():
        if consumed is not None:
            yield f"{consumed} of {value} {name}"
    for taint in device.taints:
        yield f"taint {taint}"


def _kinds(node: NodeGPUs) -> str:
    kinds = Counter(card.product or "cards of unknown type" for card in node.cards)
    return ", ".join(f"{count} x {product}" for product, count in kinds.items())


def _fits(node: NodeGPUs, unit: str) -> str:
    cards = f"{node.free_cards} whole card{'s' * (node.free_cards > 1)}"
    found = [f"a share of {node.largest_share} {unit}"] * (node.largest_share > 0)
    found += [cards] * (node.free_cards > 0)
    return ", or ".join(found) or "nothing"


def _free(card: Card, unit: str) -> str:
    if card.memory:
        return f"{card.free}/{card.memory} {unit}"
    return "no" if card.owners or not card.usable else "yes"


def _print_plans(found: Iterable[CardPlan], output: str) -> None:
    if output == "json":
        print_json({"plans": [plan.document() for plan in found]})
        return
    rows = []
    for plan in found:
        moves = ", ".join(f"{move.pod} to {move.to}" for move in plan.moves)
        how = "fits" if plan.fits else f"move {moves}" if plan.node else "no few pods would do"
        rows.append((plan.pod, plan.node or "-", how))
    if rows:
        print_table(("POD", "NODE", "PLAN"), rows, prose=("PLAN",))
    else:
        note("no pending pod requests GPUs")
