"""The command `mooring status`: shows whether Mooring is installed and works."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from mooring import __version__
from mooring.cli.console import (
    mistakes_reported,
    output_option,
    print_json,
    print_prose,
    printable,
)
from mooring.cli.explanation_text import duration
from mooring.cli.leader import Leader, leader_options, page_of
from mooring.cli.scrape import QUEUES, Reading
from mooring.kube.api_resources import LEASE, SCHEDULING_PROFILE
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import KubeError, NotFoundError, explain
from mooring.simulate.manifests import InputError


@click.command(
    epilog="""\b
Examples:
  mooring status
  mooring status -o json"""
)
@leader_options
@output_option("text", "json")
def status(output: str, **options: Any) -> None:
    """Show whether Mooring is installed and works, and what is wrong.

    Reads the SchedulingProfiles and the Lease from the API server, and version and queues from the
    metrics of the leading replica. The user must be allowed to list schedulingprofiles, to get the
    Lease and to reach the leading replica (Role mooring-explain), and to get /metrics (ClusterRole
    mooring-metrics).

    Exits with 0 if nothing is wrong, with 1 if something is wrong, and with 2 if the API server
    does not answer.
    """
    leader = Leader(**options)
    with mistakes_reported():
        found = _found(leader)
    if output == "json":
        print_json(found)
    else:
        for line in _lines(printable(found)):
            print_prose(line)
    click.get_current_context().exit(1 if found["problems"] else 0)


def _found(leader: Leader) -> dict[str, Any]:
    try:
        server, profiles, lease = asyncio.run(_read(leader))
    except KubeError as error:
        raise InputError(explain(error)) from None
    found: dict[str, Any] = {"kubernetes": server, "installed": profiles is not None}
    if profiles is None:
        return {**found, "problems": [_NOT_INSTALLED]}
    found["profiles"] = [_profile(profile) for profile in profiles]
    problems = [problem for profile in found["profiles"] for problem in profile["problems"]]
    if not profiles:
        problems.append("there is no SchedulingProfile, so no pod is scheduled; apply one")
    found["leader"], problem = _leader(leader, lease)
    if problem:
        problems.append(problem)
    else:
        found |= _replica(leader, problems)
    return {**found, "problems": problems}


_NOT_INSTALLED = (
    "Mooring is not installed in this cluster: it serves no SchedulingProfiles; "
    "docs/installing.md says how to install it"
)


async def _read(
    leader: Leader,
) -> tuple[str, list[dict[str, Any]] | None, dict[str, Any] | None]:
    """Return the API server's version, the profiles and the Lease; None for absent objects."""
    connection = await load_connection(
        leader.kubeconfig, leader.context, user_agent=f"mooring-status/{__version__}"
    )
    profiles: list[dict[str, Any]] | None = None
    lease: dict[str, Any] | None = None
    async with ApiClient(connection) as client:
        server = await client.server_version()
        try:
            profiles = (await client.list_all(SCHEDULING_PROFILE)).items
            lease = await client.get(LEASE, leader.lease_name, leader.lease_namespace)
        except NotFoundError:
            pass
    return server, profiles, lease


def _profile(raw: Mapping[str, Any]) -> dict[str, Any]:
    name, given = raw["metadata"]["name"], raw.get("status") or {}
    conditions = given.get("conditions") or []
    wrong = [
        f"profile {name}: {condition.get('reason')}: {condition.get('message')}"
        for condition in conditions
        if (condition.get("type") == "Ready") != (condition.get("status") == "True")
    ]
    if not conditions:
        wrong = [f"profile {name}: no replica has read it yet"]
    in_force = given.get("inForceGeneration") or 0
    return {
        "name": name,
        "generation": raw["metadata"].get("generation"),
        "inForceGeneration": in_force,
        "problems": wrong,
    }


def _leader(leader: Leader, lease: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
    """Return the leader's name and times, and a text that says why no replica leads."""
    name = f"{leader.lease_namespace}/{leader.lease_name}"
    if lease is None:
        return None, (
            f"no replica runs: there is no Lease {name}; if Mooring uses another one, name it with "
            "--lease-namespace and --lease-name"
        )
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return None, f"no replica leads: nobody holds the Lease {name}"
    found = {
        "name": spec["holderIdentity"].rpartition("_")[0] or spec["holderIdentity"],
        "since": spec.get("acquireTime"),
        "renewed": spec.get("renewTime"),
    }
    renewed = _time(spec.get("renewTime"))
    ends = renewed and renewed + timedelta(seconds=2 * (spec.get("leaseDurationSeconds") or 15))
    if ends and ends < datetime.now(UTC):
        return found, (
            f"no replica leads: {found['name']} has not renewed the Lease {name} since "
            f"{found['renewed']}, by the clock of this machine"
        )
    return found, ""


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _replica(leader: Leader, problems: list[str]) -> dict[str, Any]:
    try:
        metrics = Reading.of(page_of(leader, "/metrics"), time.monotonic())
    except InputError as mistake:
        problems.append(str(mistake))
        return {}
    try:
        page_of(leader, "/readyz")
    except InputError as mistake:
        problems.append(str(mistake))
    versions = [version for (version,), _ in metrics.by("mooring_build_info", "version")]
    queues = {name: int(metrics.total("scheduler_pending_pods", queue=name)) for name in QUEUES}
    return {"version": versions[0] if versions else None, "queues": queues}


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"KUBERNETES  {found['kubernetes']}"
    if found["installed"]:
        profiles = found["profiles"]
        ready = sum(profile["inForceGeneration"] > 0 for profile in profiles)
        yield f"PROFILES    {ready} of {len(profiles)} in force"
        if leader := found["leader"]:
            since = _time(leader["since"])
            held = since and duration((datetime.now(UTC) - since).total_seconds())
            yield f"LEADER      {leader['name']}" + (f", for {held}" if held else "")
        if "queues" in found:
            yield f"VERSION     {found['version']}; this command {__version__}"
            pending = "   ".join(f"{name} {found['queues'][name]:,}" for name in QUEUES)
            yield f"QUEUE       {pending}"
    for problem in found["problems"]:
        yield f"WRONG       {problem}"
    if not found["problems"]:
        yield "nothing is wrong"
