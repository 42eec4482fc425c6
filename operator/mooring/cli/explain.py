"""`mooring explain`."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import click

from mooring.cli.console import NO, mistakes_reported, output_option, print_json, print_table
from mooring.cli.explanation import (
    duration,
    explanation,
    member_lines,
    path_rows,
    pod_group_lines,
    remedy_lines,
    score_table,
    time_lines,
)
from mooring.cli.leader import Leader, answer_of, leader_options
from mooring.framework.queued_pod import PodState
from mooring.simulate.manifests import InputError
from mooring.simulate.selection import type_and_name

__all__ = ["explain"]

_STATES: Final[Mapping[str, str]] = {
    PodState.ACTIVE: "in the active queue",
    PodState.BACKOFF: "backing off",
    PodState.IN_FLIGHT: "being decided",
}
"""What users read for a state whose name in the metric pending_pods says little alone."""

_POD_GROUP: Final = ("podgroup", "podgroups", "pg")
"""What stands before the slash in front of a group's name, as for kubectl."""


@click.command(
    epilog="""\b
Examples:
  mooring explain web-5d8f -n team-a
  mooring explain team-a/web-5d8f -o json
  mooring explain podgroup/train -n team-a
  mooring explain web-5d8f --server https://scheduler.example:10259"""
)
@click.argument("pod", metavar="POD | podgroup/NAME")
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="The pod's namespace."
)
@leader_options
@output_option("text", "json")
def explain(pod: str, namespace: str, output: str, **options: Any) -> None:
    """Explain why a pod runs on its node, or what it waits for.

    Shows where the pod is now; for an unschedulable one, the changes that would make it fit, each
    tried by the scheduler itself; its path since the scheduler saw it, attempts with the same cause
    in one line; and the latest decisions about it. The leading replica of a running scheduler keeps
    them.

    A member of a pod group is explained as its group is. Of podgroup/NAME (or pg/NAME) it shows the
    members, how many are missing, what would make the group fit, and the topology domains that were
    tried; this needs the right to get the pods of the namespace.

    The credentials are those of the kubeconfig. The user must be allowed to get the pod and
    /debug/decisions (ClusterRole mooring-explain), and to reach the leading replica (Role
    mooring-explain). Exits with 0 if the pod is known, 1 if it is not, 2 if the leading replica
    cannot be reached or does not show them.
    """
    kind, slash, group = pod.partition("/")
    if slash and kind in _POD_GROUP:
        _explain_pod_groups(Leader(**options), f"{namespace}/{group}", output)
        return
    with mistakes_reported():
        named = type_and_name(pod)
        if named is not None and named.kind != "Pod":
            raise InputError(
                f"{pod!r} is no pod; decisions are about pods: write pod/NAME or podgroup/NAME"
            )
        name = f"{namespace}/{named.name if named else pod}" if named or "/" not in pod else pod
        if name.count("/") != 1 or not all(name.split("/")):
            raise InputError(f"{pod!r} is no pod; write NAME, pod/NAME or NAMESPACE/NAME")
        target = f"/debug/decisions?{urlencode({'pod': name})}"
        answer = answer_of(Leader(**options), target, "decisions", "no recent decision")
    if answer is None:
        click.echo(
            f"no recent decision about pod {name} is kept by this replica; "
            "only the leading replica decides",
            err=True,
        )
        sys.exit(NO)
    if output == "json":
        print_json(answer)
        return
    path = answer.get("path")
    for line in _report(name, answer.get("pod"), path):
        click.echo(line)
    if path is not None:
        print_table(("AFTER", "STEP"), path_rows(path), prose=("STEP",))
        click.echo()
    for decision in answer["decisions"]:
        _show(decision)


def _explain_pod_groups(leader: Leader, name: str, output: str) -> None:
    with mistakes_reported():
        if name.count("/") != 1 or not all(name.split("/")):
            raise InputError("write podgroup/NAME, and -n NAMESPACE")
        target = f"/debug/decisions?{urlencode({'podgroup': name})}"
        answer = answer_of(leader, target, "podGroups", "no pod group")
    if answer is None:
        click.echo(f"no pod group {name} is known to this replica", err=True)
        sys.exit(NO)
    if output == "json":
        print_json(answer)
        return
    for group in answer["podGroups"]:
        for line in pod_group_lines(group):
            click.echo(line)
        pods = group["pods"]
        if pods:
            rows = [[pod["pod"], pod["state"], pod["node"] or "-"] for pod in pods]
            print_table(("POD", "STATE", "NODE"), rows, ())
            for line in member_lines(pods):
                click.echo(line)
        click.echo()


def _report(
    pod: str, report: Mapping[str, Any] | None, path: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield where the pod is, what keeps it there, what would make it fit, and how long it took."""
    if report is None:
        yield f"pod {pod}: {(path and path['state']) or 'not known any more'}"
    else:
        yield f"pod {pod}: {', '.join(_facts(report))}"
        yield from _remedies(report)
    if path is not None:
        yield from time_lines(path)
    yield ""


def _remedies(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what keeps the pod where it is, and what would make it fit."""
    for plugin, seconds in report.get("waitsFor", {}).items():
        yield f"  waits for plugin {plugin}, at most {duration(seconds)} more"
    if report["state"] == PodState.GATED:
        by, why = ", ".join(report["plugins"] or ()), report.get("heldBack")
        if by or why:
            yield f"  held back{by and f' by {by}'}{f': {why}' if why else ''}"
    group = report.get("group")
    if group is not None:
        namespace, _, name = group["podGroup"].partition("/")
        yield f"  a member of pod group {name}: mooring explain podgroup/{name} -n {namespace}"
    waiting = report["state"] not in (PodState.BOUND, PodState.BINDING, PodState.PERMIT)
    if group is not None and waiting:
        if group["message"] and group["message"] != report.get("heldBack"):
            yield f"  {group['message']}"
        yield from remedy_lines({**report, "remedy": group.get("remedy")})
    else:
        yield from remedy_lines(report)


def _facts(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the state with its node and duration, the attempts, and what comes next."""
    state = _STATES.get(report["state"], report["state"])
    if report.get("node"):
        state += f" on {report['node']}"
    if "pendingSeconds" not in report:
        yield state
        return
    yield f"{state}, pending for {duration(report['pendingSeconds'])}"
    yield f"{report['attempts']} attempt{'' if report['attempts'] == 1 else 's'}"
    if "backoffSeconds" in report:
        yield f"tried again in {duration(report['backoffSeconds'])}"
    if "ahead" in report:
        yield f"{report['ahead']} pods ahead of it"


def _show(decision: Mapping[str, Any]) -> None:
    place = f"on {decision['node']}" if decision["node"] else "not scheduled"
    profile = f"profile {decision['profile']}"
    if generation := decision.get("profileGeneration"):
        profile += f", generation {generation}"
    click.echo(f"{decision['time']}  {place}  ({profile})")
    for line in explanation(decision):
        click.echo(f"  {line}")
    if decision["scores"]:
        print_table(*score_table(decision["scores"]))
    click.echo()
