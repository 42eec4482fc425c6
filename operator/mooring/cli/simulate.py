"""The command `mooring simulate`: shows where pods would run, and changes nothing."""

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlencode

import click
from click.core import ParameterSource

from mooring.cli.comparison_table import print_comparison
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
from mooring.cli.decision_tables import Summary, print_attempts, write_json
from mooring.cli.inputs import files_and_cluster
from mooring.cli.leader import SERVER_VARIABLE, Leader, answer_of, replica_options
from mooring.cli.name_lookup import complete_namespaces, complete_profiles
from mooring.cli.progress import Progress
from mooring.cli.what_if import ask_what_if
from mooring.framework.registry import Registry
from mooring.observe.records import MOST_SUMMARIES
from mooring.plugins import SHIPPED
from mooring.quota.model.queue import Queue
from mooring.simulate.chosen_pods import ChosenPods, TypeAndName, take_off, type_and_name
from mooring.simulate.compare import arrival_order, compare, recorded_order
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.live import save
from mooring.simulate.load_profiles import (
    LoadedProfile,
    load_policy,
    load_profiles,
    profile_objects,
)
from mooring.simulate.manifests import STDIN, InputError, Manifest
from mooring.simulate.simulation import Simulation

_WIDE_NODES: Final = 3
_LIVE: Final = "(live)"
"""The value of --replay that means the running scheduler instead of a file."""
_USUALLY_REPLAYED: Final = 1_000
_WITH_SERVER: Final = frozenset(
    {
        "words",
        "filenames",
        "as_profile",
        "output",
        *("kubeconfig", "context", "lease_namespace", "lease_name", "secure_port", "server"),
        *("certificate_authority", "tls_server_name", "insecure_skip_tls_verify"),
    }
)
"""The parameters that a question to the running scheduler accepts."""


@click.command(
    epilog="""\b
Examples:
  mooring simulate
  mooring simulate deployment/web -n shop --profile packed.yaml
  mooring simulate -f web.yaml --cluster
  mooring simulate -f web.yaml --server
  mooring simulate -n shop --all-pods --profile packed.yaml --as packed
  mooring simulate --save cluster.jsonl
  mooring simulate cluster.jsonl --kubernetes 1.37
  mooring simulate cluster.jsonl --compare old.yaml new.yaml --plot moves.svg
  mooring simulate --compare old.yaml new.yaml --replay --last 200
  mooring simulate cluster.jsonl pods.yaml -o json --top 3"""
)
@click.argument("words", nargs=-1, metavar="[FILE | TYPE/NAME]...", type=click.Path())
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="The same as FILE.",
)
@click.option("--cluster", is_flag=True, help="Read the live cluster too, beside the FILEs.")
@connection_options
@click.option(
    "--save",
    "dump",
    metavar="DUMP",
    type=click.Path(),
    help="Write all objects that were read to this file, one per line; it can be a FILE later.",
)
@click.option(
    "--profile",
    metavar="FILE",
    type=click.Path(),
    help="Use the profiles of this file (SchedulingProfile or KubeSchedulerConfiguration).",
)
@click.option(
    "-n",
    "--namespace",
    shell_complete=complete_namespaces,
    help="Schedule only pods of this namespace.",
)
@click.option(
    "--as",
    "as_profile",
    metavar="PROFILE",
    shell_complete=complete_profiles,
    help="Schedule all pods with this profile, whatever their schedulerName.",
)
@click.option(
    "--all-pods", is_flag=True, help="Schedule running pods too, as if none had a node yet."
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Chooses among nodes of equal score; the same seed gives the same choice.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="With -o json or yaml: show only the N best nodes, and N rejected nodes per plugin.",
)
@click.option(
    "--extenders",
    is_flag=True,
    help="Call the extenders of the profiles to filter, score and preempt; they never bind.",
)
@click.option(
    "--compare",
    "policies",
    nargs=2,
    type=click.Path(),
    metavar="OLD NEW",
    help="Place all pods from scratch with the profiles and Queues of two files, and compare.",
)
@click.option(
    "--replay",
    type=click.Path(),
    is_flag=False,
    flag_value=_LIVE,
    metavar="[RECORDS]",
    help="With --compare: place the pods of these decision records, in the order of arrival. "
    "Without RECORDS: the last pods that the running scheduler decided.",
)
@click.option(
    "--last",
    type=click.IntRange(1, MOST_SUMMARIES),
    metavar="N",
    help=f"With --replay and no RECORDS: how many pods.  [default: {_USUALLY_REPLAYED}]",
)
@click.option(
    "--plot", type=click.Path(), metavar="FILE", help="With --compare: draw it, as .svg or .png."
)
@click.option("--pool-label", metavar="KEY", help="With --compare: the label of a node's pool.")
@kubernetes_option("that of the cluster that is read or was saved, else the newest")
@partial(
    replica_options,
    server=click.option(
        "--server",
        is_flag=False,
        flag_value="",
        metavar="[URL]",
        envvar=SERVER_VARIABLE,
        show_envvar=True,
        help="Have the running scheduler decide about the pods of the FILEs, on its present state. "
        "URL: the leading replica's endpoints, https://HOST:PORT. Without it: what the Lease says.",
    ),
)
@output_option("table", "wide", "json", "yaml")
def simulate(
    words: tuple[str, ...],
    filenames: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    dump: str | None,
    profile: str | None,
    namespace: str | None,
    as_profile: str | None,
    seed: int,
    top: int | None,
    policies: tuple[str, str] | None,
    replay: str | None,
    plot: str | None,
    pool_label: str | None,
    last: int | None,
    kubernetes: str | None,
    output: str,
    *,
    cluster: bool,
    all_pods: bool,
    extenders: bool,
    **replica: Any,
) -> None:
    """Show where pods would run, and why, without changing anything.

    Reads Kubernetes objects from FILEs (YAML or JSON; - is standard input). Without FILEs, it lists
    the objects in the cluster of the kubeconfig. Schedules every pod that has no node, in queue
    order; with TYPE/NAME, only the pods of these objects. Each scheduled pod uses resources of its
    node, so later pods find fewer free resources. It first makes the pods of new Deployments,
    StatefulSets, DaemonSets, Jobs, CronJobs and ReplicaSets. SchedulingProfiles among the objects
    apply; without any, kube-scheduler's defaults apply.

    With --server, the leading replica of the running scheduler decides about the pods of the FILEs,
    each pod group as a whole, and says what would make other pods fit. The user must be allowed to
    post to /api/v1/what-if, and to get the pods of their namespaces.

    --compare schedules with the profiles of OLD and of NEW. It shows which pods would move or lose
    their place, and how full each pool of nodes would be. With --replay it places the pods of
    decision records in the order of their arrival. Without RECORDS it gets the last decisions from
    the leading replica, which it finds by its Lease as mooring explain does; the user must be
    allowed to get /debug/decisions and pods.

    Exits with 0 if every pod gets a node, 1 if some pod gets none (or loses its place), 2 for bad
    input or if there is no pod to schedule.
    """
    if policies is None and (replay or plot or pool_label or last):
        raise click.UsageError("--replay, --last, --plot and --pool-label need --compare")
    if policies is not None and (profile or extenders):
        raise click.UsageError("--compare goes without --profile and --extenders")
    leader = _leader(kubeconfig=kubeconfig, context=context, **replica)
    registry = Registry(SHIPPED)
    with mistakes_reported(), _collecting_rarely(), Progress() as progress:
        files, targets = _files_and_targets(words, filenames)
        if policies is None and _is_given("server"):
            _ask(leader, files, targets, as_profile, output)
        manifests = files_and_cluster(
            files, kubeconfig, context, progress, cluster=cluster, asked_elsewhere=replay == _LIVE
        )
        profiles = () if profile is None else load_profiles(profile_objects(profile), registry)
        kept = progress.counting(_saved(manifests, dump, files), "reading objects")
        inputs = inputs_of(kept, registry, profiles, keep_raw=extenders, kubernetes=kubernetes)
        note_ignored(inputs.ignored, notes=inputs.notes)
        selection = ChosenPods(namespace, targets).checked(inputs)
        if policies is not None:
            comparison = compare(
                inputs,
                registry,
                *_loaded(policies, registry),
                selection=selection,
                as_profile=as_profile,
                order=_replayed(replay, leader, namespace or "", last),
                pool_label=pool_label,
                seed=seed,
                progress=lambda each, total: progress.counting(each, "placing pods", total),
            )
            sys.exit(print_comparison(comparison, output, plot, top))
        nodes = {"table": 1, "wide": _WIDE_NODES}.get(output, top)
        simulation = Simulation(inputs, registry, seed=seed, nodes=nodes, profile=as_profile)
        chosen = selection.applied(inputs)
        if all_pods:
            chosen = take_off(chosen, lambda p: selection.takes(p, inputs) and simulation.takes(p))
        _print_notes(profile or "", profiles, inputs, extenders=extenders)
        if not chosen.pending and not chosen.rejected:
            _nothing_to_schedule(chosen, selection)
        _exit(_printed(simulation, chosen, output, progress, extenders=extenders))


def _loaded(
    paths: tuple[str, str], registry: Registry
) -> tuple[list[LoadedProfile], list[LoadedProfile], tuple[list[Queue], list[Queue]]]:
    (old, old_queues), (new, new_queues) = (load_policy(path, registry) for path in paths)
    return old, new, (old_queues, new_queues)


def _exit(summary: Summary) -> NoReturn:
    sys.exit(DONE if summary.placed == summary.pods else NO)


def _leader(*, server: str | None, **options: Any) -> Leader:
    return Leader(server=server or os.environ.get(SERVER_VARIABLE), **options)


def _is_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def _ask(
    leader: Leader,
    files: Sequence[str],
    targets: Sequence[TypeAndName],
    profile: str | None,
    output: str,
) -> NoReturn:
    for parameter in click.get_current_context().command.params:
        if _is_given(str(parameter.name)) and parameter.name not in _WITH_SERVER:
            raise click.UsageError(f"{parameter.opts[-1]} goes without --server")
    if targets or not files:
        raise click.UsageError("--server needs FILEs, and only these")
    _exit(ask_what_if(leader, files, profile, output))


def _printed(
    simulation: Simulation, chosen: Inputs, output: str, progress: Progress, *, extenders: bool
) -> Summary:
    attempts = simulation.attempts(chosen.pending, chosen.rejected, extenders=extenders)
    total = len(chosen.pending) + len(chosen.rejected)
    if not (output == "json" and sys.stdout.isatty()):
        attempts = progress.counting(attempts, "scheduling pods", total)
    if output == "json":
        return write_json(attempts, sys.stdout.buffer)
    return print_attempts(attempts, output)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    # The garbage collector finds little in a simulation.
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _files_and_targets(
    words: Sequence[str], filenames: Sequence[str]
) -> tuple[tuple[str, ...], tuple[TypeAndName, ...]]:
    files, targets = list[str](), list[TypeAndName]()
    for word in words:
        target = None if word == STDIN or Path(word).exists() else type_and_name(word)
        if target is None:
            files.append(word)
        else:
            targets.append(target)
    return (*files, *filenames), tuple(targets)


def _saved(
    manifests: Iterator[Manifest], dump: str | None, files: Sequence[str]
) -> Iterator[Manifest]:
    if dump is None:
        return manifests
    if any(
        Path(file).exists() and Path(dump).exists() and Path(file).samefile(dump) for file in files
    ):
        raise InputError(f"{dump}: is read and cannot be written meanwhile; give another --save")
    return save(manifests, dump)


def _replayed(
    replay: str | None, leader: Leader, namespace: str, last: int | None
) -> list[str] | None:
    """Return the keys of the pods to replay, in order of arrival; None without --replay."""
    if replay != _LIVE:
        if last is not None:
            raise InputError("--last goes with --replay, and that without RECORDS")
        return recorded_order(replay) if replay else None
    words = {"summary": "true", "limit": last or _USUALLY_REPLAYED, "namespace": namespace}
    answer = answer_of(leader, f"/debug/decisions?{urlencode(words)}", "decisions") or {}
    decided = [record for record in answer["decisions"] if record["time"] is not None]
    if not decided:
        raise InputError("the leading replica has decided no pod yet; there is nothing to replay")
    return arrival_order(decided)


def _nothing_to_schedule(inputs: Inputs, selection: ChosenPods) -> NoReturn:
    for name, reason in inputs.without_pods.items():
        note(f"{name}: {reason}")
    running = sum(selection.takes(placed.pod, inputs) for placed in inputs.state.pods)
    hint = f"; {running} running pods could be with --all-pods" if running else ""
    where = f" in namespace {selection.namespace}" if selection.namespace is not None else ""
    # A simulation that tried nothing must not look successful.
    raise InputError(f"there is no pod without a node to schedule{where}{hint}")


def _print_notes(
    file: str, profiles: Iterable[LoadedProfile], inputs: Inputs, *, extenders: bool
) -> None:
    print_notes(file, (said for loaded in profiles for said in loaded.notes))
    uncalled = ", ".join(p.profile.name for p in inputs.profiles if p.profile.spec.extenders)
    if uncalled and not extenders:
        note(f"extenders were not called (--extenders calls them): those of {uncalled}")
