"""The command `mooring explain`: says why pods run where they run, or why they wait."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn
from urllib.parse import urlencode

import click

from mooring.cli.console import (
    NO,
    mistakes_reported,
    output_option,
    print_json,
    print_prose,
    print_table,
    print_yaml,
    printable,
)
from mooring.cli.explanation_text import (
    claim_lines,
    duration,
    explanation,
    member_lines,
    nomination_lines,
    path_rows,
    pod_group_lines,
    remedy_lines,
    score_table,
    time_lines,
    zero_scores,
)
from mooring.cli.kueue import is_gated_by_kueue, kueue_lines, kueue_workload
from mooring.cli.leader import Following, Leader, answer_of, leader_options
from mooring.cli.name_lookup import POD_GROUP_WORDS, complete_namespaces, complete_pods, why_unknown
from mooring.cli.pending import examples_by_cause, pending_lines, workload_lines
from mooring.kube.config import default_namespace
from mooring.kube.errors import KubeError
from mooring.kube.errors import explain as explain_error
from mooring.model.wording import plural
from mooring.runtime.queued_pod import PodState
from mooring.simulate.chosen_pods import TypeAndName, type_and_name
from mooring.simulate.manifests import InputError

_STATES: Final[Mapping[str, str]] = {
    PodState.ACTIVE: "in the active queue",
    PodState.BACKOFF: "backing off",
    PodState.IN_FLIGHT: "being decided",
}
"""The words that users read for some states of pods; other states are shown by their name."""

_WATCH_SECONDS: Final = 2.0


@click.command(
    epilog="""\b
Examples:
  mooring explain web-5d8f -n team-a
  mooring explain deploy/web -n team-a --watch
  mooring explain podgroup/train -n team-a
  mooring explain -A                  # everything that is pending, by cause
  mooring explain team-a/web-5d8f -o yaml
  mooring explain web-5d8f --server https://scheduler.example:10259"""
)
@click.argument("what", metavar="[POD | TYPE/NAME]", default="", shell_complete=complete_pods)
@click.option(
    "-n",
    "--namespace",
    shell_complete=complete_namespaces,
    help="Where to look. Without it: the namespace of the kubeconfig's context.",
)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Without a POD: of all.")
@click.option("-w", "--watch", is_flag=True, help="Explain again whenever something changes.")
@leader_options
@output_option("text", "json", "yaml")
def explain(
    what: str, namespace: str | None, output: str, *, everywhere: bool, watch: bool, **options: Any
) -> None:
    """Explain why a pod runs on its node, or what it waits for.

    Shows where the pod is now, its path since the scheduler first saw it, and the latest decisions
    about it. For an unschedulable pod it also shows changes that would make the pod fit; the
    scheduler itself has tried each change. The leading replica of a running scheduler keeps this
    information.

    For a member of a pod group, it explains the group. For podgroup/NAME (or pg/NAME) it shows the
    members, how many are missing, what would make the group fit, and the topology domains that were
    tried. The user must be allowed to get the pods of the namespace. For deploy/NAME, sts/NAME,
    job/NAME and other workloads it counts the pods, and explains one pod for each of the most
    frequent causes. Without a POD it counts all pending pods of the namespace by cause.

    Uses the credentials of the kubeconfig. The user must be allowed to get the pod and
    /debug/decisions or /debug/pending (ClusterRole mooring-explain), and to reach the leading
    replica (Role mooring-explain). Exits with 0 if the pod is known, 1 if it is not, 2 if the
    leading replica cannot be reached or does not answer.
    """
    with mistakes_reported(), suppress(KeyboardInterrupt):
        leader = Leader(**options)
        if everywhere and what:
            raise InputError(f"--all-namespaces goes without {what!r}")
        question = _of_all(leader, "") if everywhere else _question(what, namespace, leader)
        if watch:
            _watch(question, output)
        answer = question.ask()
        if answer is None:
            click.echo(question.unknown(), err=True)
            sys.exit(NO)
        _print(question, answer, output)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the leading replica."""

    ask: Callable[[], dict[str, Any] | None]  # None if the pod or group does not exist
    show: Callable[[dict[str, Any]], None]  # prints the answer for people
    unknown: Callable[[], str]  # the line to print if `ask` returns None


def _question(what: str, given: str | None, leader: Leader) -> _Question:
    """Return the question about a named pod, pod group or workload; `given` is --namespace."""
    first, slash, second = what.partition("/")
    named = type_and_name(what)
    is_group = first in POD_GROUP_WORDS and bool(slash)
    if slash and not (named or is_group):
        if not (first and second) or "/" in second:
            raise InputError(
                f"{what!r} is neither a pod nor a workload; write NAME, TYPE/NAME (pod, deploy, "
                "sts, job, podgroup, ...) or NAMESPACE/NAME"
            )
        if given not in (None, first):
            raise InputError(f"--namespace {given} contradicts the namespace of {what!r}")
        return _of_pod(leader, what)
    namespace = given or _default_namespace(leader)
    if not what:
        return _of_all(leader, namespace)
    if is_group:
        return _of_pod_group(leader, namespace, second)
    if named is not None and named.kind != "Pod":
        return _of_workload(leader, namespace, named)
    return _of_pod(leader, f"{namespace}/{named.name if named else what}")


def _default_namespace(leader: Leader) -> str:
    try:
        return default_namespace(leader.kubeconfig, leader.context)
    except KubeError as error:
        raise InputError(explain_error(error)) from None


def _print(question: _Question, answer: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(answer)
    elif output == "yaml":
        print_yaml(answer)
    else:
        question.show(printable(answer))


def _watch(question: _Question, output: str) -> NoReturn:
    before: object = ()
    following = Following()
    is_screen = output == "text" and sys.stdout.isatty()
    while True:
        answer = following.ask(question.ask)
        now = _without_times(answer)
        if is_screen:
            click.clear()
        # Outside a terminal, an answer is left out if only its durations have changed.
        if is_screen or now != before:
            if output == "yaml":
                click.echo("---")
            if answer is None:
                click.echo(question.unknown(), err=not is_screen)
            else:
                _print(question, answer, output)
        before = now
        time.sleep(_WATCH_SECONDS)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not key.lower().endswith("seconds")}
        return {key: _without_times(item) for key, item in kept.items()}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _of_all(leader: Leader, namespace: str) -> _Question:
    query = f"?{urlencode({'namespace': namespace})}" if namespace else ""

    def show(answer: dict[str, Any]) -> None:
        for line in pending_lines(answer, namespace):
            print_prose(line)

    ask = partial(answer_of, leader, f"/debug/pending{query}", "causes")
    return _Question(ask, show, unknown=str)


def _of_workload(leader: Leader, namespace: str, named: TypeAndName) -> _Question:
    query = urlencode({"namespace": namespace, "workload": f"{named.kind}/{named.name}"})

    def ask() -> dict[str, Any] | None:
        answer = answer_of(leader, f"/debug/pending?{query}", "pods")
        if answer is None or not (answer["placed"] or answer["total"]):
            return None
        # one pod for each frequent cause
        examples = {key: _of_pod(leader, key).ask() for key in examples_by_cause(answer)}
        return {**answer, "explained": {key: found for key, found in examples.items() if found}}

    def show(answer: dict[str, Any]) -> None:
        for line in workload_lines(str(named), answer):
            print_prose(line)
        for key, found in answer["explained"].items():
            for line in _report(key, found.get("pod"), found.get("path")):
                print_prose(line)

    def unknown() -> str:
        return (
            f"this replica knows no pod of {named} in namespace {namespace}; "
            f"does it exist? kubectl get {named} -n {namespace}"
        )

    return _Question(ask, show, unknown)


def _of_pod(leader: Leader, key: str) -> _Question:
    target = f"/debug/decisions?{urlencode({'pod': key})}"

    def show(answer: dict[str, Any]) -> None:
        path = answer.get("path")
        for line in _report(key, answer.get("pod"), path):
            print_prose(line)
        if path is not None:
            print_table(("AFTER", "STEP"), path_rows(path), prose=("STEP",))
            click.echo()
        for decision in answer["decisions"]:
            _show(decision)

    def ask() -> dict[str, Any] | None:
        answer = answer_of(leader, target, "decisions", "no recent decision")
        report = answer and answer.get("pod")
        if report and is_gated_by_kueue(report):
            report["kueueWorkload"] = kueue_workload(leader.kubeconfig, leader.context, key)
        return answer

    return _Question(ask, show, partial(why_unknown, leader.kubeconfig, leader.context, key))


def _of_pod_group(leader: Leader, namespace: str, name: str) -> _Question:
    if not name or "/" in name:
        raise InputError("write podgroup/NAME, and -n NAMESPACE")
    target = f"/debug/decisions?{urlencode({'podgroup': f'{namespace}/{name}'})}"
    ask = partial(answer_of, leader, target, "podGroups", "no pod group")
    unknown = f"no pod group {namespace}/{name} is known to this replica"
    return _Question(ask, _show_pod_groups, lambda: unknown)


def _show_pod_groups(answer: dict[str, Any]) -> None:
    for group in answer["podGroups"]:
        for line in pod_group_lines(group):
            print_prose(line)
        pods = group["pods"]
        if pods:
            rows = [[pod["pod"], pod["state"], pod["node"] or "-"] for pod in pods]
            print_table(("POD", "STATE", "NODE"), rows, ())
            for line in member_lines(pods):
                print_prose(line)
        click.echo()


def _report(
    pod: str, report: Mapping[str, Any] | None, path: Mapping[str, Any] | None
) -> Iterator[str]:
    if report is None:
        yield f"pod {pod}: {(path and path['state']) or 'not known any more'}"
    else:
        yield f"pod {pod}: {', '.join(_facts(report))}"
        yield from _remedies(report)
    if path is not None:
        yield from time_lines(path)
    yield ""


def _remedies(report: Mapping[str, Any]) -> Iterator[str]:
    for plugin, seconds in report.get("waitsFor", {}).items():
        yield f"  waits for plugin {plugin}, at most {duration(seconds)} more"
    if report["state"] == PodState.GATED:
        by, why = ", ".join(report["plugins"] or ()), report.get("heldBack")
        if by or why:
            yield f"  held back{by and f' by {by}'}{f': {why}' if why else ''}"
        yield from kueue_lines(report.get("kueueWorkload"))
    if report["state"] == PodState.NO_PROFILE and (why := report.get("heldBack")):
        yield f"  {why}"
    if missing := report.get("notServed"):
        yield "  its volumes need kinds that the API server does not serve:"
        yield f"    {', '.join(missing)}"
    if claims := report.get("claims"):
        yield from claim_lines(claims, report.get("heldBack"))
    group = report.get("group")
    if group is not None:
        namespace, _, name = group["podGroup"].partition("/")
        yield f"  a member of pod group {name}: mooring explain podgroup/{name} -n {namespace}"
    yield from nomination_lines(report)
    waiting = report["state"] not in (PodState.BOUND, PodState.BINDING, PodState.PERMIT)
    if group is not None and waiting:
        if group["message"] and group["message"] != report.get("heldBack"):
            yield f"  {group['message']}"
        yield from remedy_lines({**report, "remedy": group.get("remedy")})
    else:
        yield from remedy_lines(report)


def _facts(report: Mapping[str, Any]) -> Iterator[str]:
    state = _STATES.get(report["state"], report["state"])
    if report.get("node"):
        state += f" on {report['node']}"
    if "pendingSeconds" not in report:
        yield state
        return
    yield f"{state}, pending for {duration(report['pendingSeconds'])}"
    yield plural(report["attempts"], "attempt")
    if "backoffSeconds" in report:
        yield f"tried again in {duration(report['backoffSeconds'])}"
    if "ahead" in report:
        yield f"{plural(report['ahead'], 'pod')} ahead of it"


def _show(decision: Mapping[str, Any]) -> None:
    place = f"on {decision['node']}" if decision["node"] else "not scheduled"
    profile = f"profile {decision['profile']}"
    if generation := decision.get("profileGeneration"):
        profile += f", generation {generation}"
    if version := decision.get("kubernetesVersion"):
        profile += f", Kubernetes {version}"
    # A line of its own: a node's name may be as long as the first one.
    click.echo(f"{decision['time']}  {place}\n  {profile}")
    for line in explanation(decision):
        print_prose(f"  {line}")
    if decision["scores"]:
        print_table(*score_table(decision["scores"]))
        for line in zero_scores(decision["scores"]):
            print_prose(line)
    click.echo()
