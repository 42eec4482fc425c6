"""The command `mooring shadow report`: shows the decisions of profiles in mode Shadow."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import click

from mooring.cli.console import (
    mistakes_reported,
    note,
    output_option,
    print_json,
    print_prose,
    print_table,
)
from mooring.cli.leader import Leader, answer_of, leader_options
from mooring.cli.name_lookup import complete_namespaces, complete_profiles
from mooring.model.wording import plural
from mooring.policy.profile_status import COMPARED
from mooring.simulate.manifests import InputError

_HEAD: Final = ("POD", "RESULT", "BOUND TO", "ITS SCORE", "SHADOW NODE", "SCORE", "WHY")
_AGREEING: Final = ("same", "tied")


@click.group(
    epilog="""\b
Example:
  mooring shadow report"""
)
def shadow() -> None:
    """Compare profiles in mode Shadow with what was bound."""


@shadow.command(
    epilog="""\b
Examples:
  mooring shadow report
  mooring shadow report --profile packed -n shop --all"""
)
@click.option(
    "-n",
    "--namespace",
    default="",
    shell_complete=complete_namespaces,
    help="Only pods of this namespace.",
)
@click.option("--profile", shell_complete=complete_profiles, help="Only this profile.")
@click.option("--all", "every", is_flag=True, help="Also pods whose node is as good.")
@leader_options
@output_option("table", "json")
def report(
    namespace: str, profile: str | None, *, every: bool, output: str, **options: Any
) -> None:
    """Show which nodes profiles in mode Shadow would have chosen.

    Prints for each profile how many pods were compared, how full and how evenly used their nodes
    are, and the last pods for which it would have chosen another node, with its scores of both
    nodes. The leading replica of a running scheduler keeps these results for the last 1,000 pods.
    The user must be allowed to get /debug/shadow, and pods in the namespace.

    Exits with 0, or with 2 if there is no such profile or the leading replica cannot be reached.
    """
    target = f"/debug/shadow?{urlencode({'namespace': namespace})}"
    with mistakes_reported():
        answer = answer_of(Leader(**options), target, "pods")
        found = _chosen(answer or {"profiles": {}, "pods": []}, profile, every=every)
    if output == "json":
        print_json(found)
        return
    if not found["profiles"]:
        note("no profile with mode Shadow is in force")
    for name, status in found["profiles"].items():
        print_prose(f"{name}: {_summary(status)}")
    if found["pods"]:
        print_table(_HEAD, map(_row, found["pods"]), numbers=("ITS SCORE", "SCORE"))


def _chosen(answer: Mapping[str, Any], profile: str | None, *, every: bool) -> dict[str, Any]:
    profiles = answer["profiles"]
    if profile is not None:
        if profile not in profiles:
            names = ", ".join(profiles) or "none"
            raise InputError(f"--profile: {profile} is not in force in mode Shadow; is: {names}")
        profiles = {profile: profiles[profile]}
    pods = [
        pod
        for pod in answer["pods"]
        if profile in (None, pod["profile"]) and (every or pod["result"] not in _AGREEING)
    ]
    return {"profiles": profiles, "pods": pods}


def _summary(status: Mapping[str, Any]) -> str:
    results = ", ".join(f"{status[name]} {name}" for name in COMPARED if status[name])
    text = f"{plural(status['compared'], 'pod')} compared since {status['since']}"
    text += f": {results}" if results else ""
    if status["notCompared"]:
        text += f"; {status['notCompared']} not compared"
    if status["compared"]:
        for what in ("utilization", "balance"):
            bound, own = (status[f"{who}{what.title()}Percent"] for who in ("bound", "shadow"))
            text += f"; {what} of nodes {bound} % as bound, {own} % by this profile"
    return text


def _row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    bound, node, scores = pod["boundNode"], pod["node"], pod["scores"]
    why = pod["message"] or ("not bound for long" if pod["result"] == "pending" else "")
    shown = (str(scores[name]["total"]) if name in scores else "-" for name in (bound, node))
    its_score, score = shown
    return pod["pod"], pod["result"], bound or "-", its_score, node or "-", score, why
