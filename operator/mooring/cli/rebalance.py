"""The command `mooring rebalance`: plans moves of running pods, and changes nothing."""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import click

from mooring.cli.console import (
    DONE,
    NO,
    connection_options,
    kubernetes_option,
    mistakes_reported,
    note,
    note_ignored,
    output_option,
    print_notes,
)
from mooring.cli.inputs import files_and_cluster
from mooring.cli.moves import print_plans, print_plans_as_json, print_wanted
from mooring.cli.name_lookup import (
    POD_GROUP_WORDS,
    complete_namespaces,
    complete_pods_with_type,
    complete_profiles,
)
from mooring.cli.progress import Progress
from mooring.framework.registry import Registry
from mooring.pausing import Work
from mooring.plugins import SHIPPED
from mooring.policy.rebalancing import Goal
from mooring.process.time_slices import TimeSlices
from mooring.rebalancing.report import plan_report, with_nodes
from mooring.simulate.before_and_after import write_before_and_after
from mooring.simulate.chosen_pods import type_and_name
from mooring.simulate.inputs import inputs_of
from mooring.simulate.load_profiles import load_profiles, profile_objects
from mooring.simulate.offline_plan import PlannedProfile, Rebalance, Wanted, WantedPlan

_Result = TypeVar("_Result")

_PROGRESS_SECONDS: Final = 0.2
"""The time in seconds between two checks of a plan's progress."""


@click.command(
    short_help="Plan which running pods to move, and what each move gains.",
    epilog="""\b
Examples:
  mooring rebalance
  mooring rebalance --goal Pack --plot before-and-after.svg
  mooring rebalance --for pod/trainer-0 -n ml
  mooring rebalance --for podgroup/train -n ml -o json
  mooring rebalance --profile packed.yaml --as packed -o wide
  mooring rebalance cluster.jsonl --goal Violations --goal MakeRoom""",
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path())
@click.option("--cluster", is_flag=True, help="Read the live cluster too, beside the FILEs.")
@connection_options
@click.option(
    "--profile",
    metavar="FILE",
    type=click.Path(),
    help="Use the profiles of this file (SchedulingProfile or KubeSchedulerConfiguration).",
)
@click.option(
    "--as",
    "as_profile",
    metavar="PROFILE",
    shell_complete=complete_profiles,
    help="Plan for all pods with this profile, whatever their schedulerName.",
)
@click.option(
    "--goal",
    "goals",
    multiple=True,
    type=click.Choice([goal.value for goal in Goal]),
    help="In place of the goals of the profiles; may be given several times. Without it, and "
    "without a profile that has goals: Violations and Spread.",
)
@click.option(
    "--for",
    "wanted",
    metavar="TYPE/NAME",
    shell_complete=complete_pods_with_type,
    help="Plan only the fewest moves that make this pod/NAME or podgroup/NAME fit.",
)
@click.option(
    "-n",
    "--namespace",
    shell_complete=complete_namespaces,
    help="With --for: the namespace. Without it: the only one that has such a name.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Chooses among nodes of equal score; the same seed gives the same choice.",
)
@click.option(
    "--plot",
    type=click.Path(),
    metavar="FILE",
    help="Draw the nodes before and after, as .svg or .png.",
)
@kubernetes_option("that of the cluster that is read or was saved, else the newest")
@output_option("table", "wide", "json")
def rebalance(
    files: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    profile: str | None,
    as_profile: str | None,
    goals: tuple[str, ...],
    wanted: str | None,
    namespace: str | None,
    seed: int,
    plot: str | None,
    kubernetes: str | None,
    output: str,
    *,
    cluster: bool,
) -> None:
    """Plan which running pods to move, and what each move gains, without changing anything.

    Reads Kubernetes objects from FILEs (YAML or JSON; - is standard input). Without FILEs, it lists
    the objects in the cluster of the kubeconfig; Mooring need not be installed there. Plans for the
    profiles that have a section rebalancing. If no profile has this section, it plans for all
    profiles; if there is no profile, it uses kube-scheduler's defaults. A pod is only moved to the
    node that its profile would choose today; a pod that fits on no other node stays where it is.

    The steps that gain most for each moved pod come first, and each step is possible after the
    steps before it. With --for, the answer is a sentence and the fewest moves that make the pod or
    pod group fit without preempting any pod.

    Exits with 0 if there is a plan, even without moves; with 1 if the pod or group of --for does
    not fit after any plan that was found; with 2 for bad input.
    """
    if namespace and not wanted:
        raise click.UsageError("--namespace goes with --for")
    if {Goal.SPREAD, Goal.PACK} <= {*goals}:
        raise click.UsageError("--goal Spread and --goal Pack undo each other: give one of them")
    target = _wanted(wanted, namespace) if wanted else None
    with mistakes_reported(), Progress() as progress:
        registry = Registry(SHIPPED)
        profiles = () if profile is None else load_profiles(profile_objects(profile), registry)
        print_notes(profile or "", (said for loaded in profiles for said in loaded.notes))
        manifests = files_and_cluster(files, kubeconfig, context, progress, cluster=cluster)
        inputs = inputs_of(
            progress.counting(manifests, "reading objects"),
            registry,
            profiles,
            kubernetes=kubernetes,
        )
        note_ignored(inputs.ignored, notes=inputs.notes)
        planning = Rebalance(
            inputs,
            registry,
            goals=tuple(Goal(goal) for goal in dict.fromkeys(goals)),
            profile=as_profile,
            now=time.time(),
            seed=seed,
        )
        code = _answered(planning, target, output, plot, progress)
    sys.exit(code)


def _wanted(word: str, namespace: str | None) -> Wanted:
    kind, slash, name = word.partition("/")
    if slash and name and "/" not in name and kind in POD_GROUP_WORDS:
        return Wanted(name, namespace, is_group=True)
    named = type_and_name(word)
    if named is None or named.kind != "Pod":
        raise click.BadParameter(
            f"{word!r} is neither pod/NAME nor podgroup/NAME", param_hint="'--for'"
        )
    return Wanted(named.name, namespace)


def _answered(
    planning: Rebalance, wanted: Wanted | None, output: str, plot: str | None, progress: Progress
) -> int:
    """Make, print and draw the plans; return the exit code."""
    for _ in progress.counting(planning.place_pending(), "placing pending pods"):
        pass
    found: WantedPlan | None = None
    planned = list[PlannedProfile]()
    if wanted is not None:
        found = _planned(partial(planning.plan_for, wanted), progress)
        planned += [found.planned] if found.planned is not None else []
    else:
        profiles = planning.profiles()
        planned += [_planned(partial(planning.plan, *each), progress) for each in profiles]
    progress.clear()
    if planning.placed and found is None:
        fit = "pod fits" if planning.placed == 1 else "pods fit"
        are = "is" if planning.placed == 1 else "are"
        note(f"{planning.placed:,} pending {fit} without any move, and {are} taken to be there")
    cluster = planning.cluster
    reports = [
        with_nodes(plan_report(each.profile, each.section, each.plan), cluster) for each in planned
    ]
    if plot is not None:
        write_before_and_after(cluster, [each.plan for each in planned], plot)
    if output == "json":
        print_plans_as_json(reports, found)
    else:
        if found is not None:
            print_wanted(found)
            reports = [report for report in reports if report.steps]
            if reports:
                click.echo()
        print_plans(reports, output)
    return DONE if found is None or found.fits else NO


def _planned(call: Callable[[], _Result], progress: Progress) -> _Result:
    began, slices = time.monotonic(), TimeSlices(_PROGRESS_SECONDS)
    with Work(call, slices) as work:
        while not work.advance():
            progress.say(f"planning moves: {time.monotonic() - began:.0f} s")
            slices.begin()
        return work.result()
