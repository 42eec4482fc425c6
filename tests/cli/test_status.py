"""The command `mooring status` shows whether Mooring is installed, its leader, and problems."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cli.running import Running, ask, kubeconfig_of, serving
from kube.api_server import ApiServer, Objects
from mooring import __version__
from mooring.cli.explain import explain
from mooring.cli.status import status

READY = {"type": "Ready", "status": "True", "reason": "InForce", "message": "in force"}


def profile(name: str, *conditions: dict[str, str], in_force: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "generation": 2},
        "status": {"inForceGeneration": in_force, "conditions": list(conditions)},
    }


def lease(holder: str = "mooring-0_x", *, renewed_before: float = 1.0) -> dict[str, Any]:
    renewed = datetime.now(UTC) - timedelta(seconds=renewed_before)
    acquired = renewed - timedelta(hours=3)
    times = {"acquireTime": acquired.isoformat(), "renewTime": renewed.isoformat()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, **times}
    return {"metadata": {"name": "mooring", "uid": "lease"}, "spec": spec}


def cluster(
    *profiles: dict[str, Any], held: dict[str, Any] | None = None, installed: bool = True
) -> Objects:
    """Return the API server of a cluster with these profiles and the Lease `held`."""
    lists = {"/schedulingprofiles": [*profiles]} if installed else {}
    return Objects({**lists, "/leases/mooring": held})


@asynccontextmanager
async def beside(folder: Path, answer: Objects) -> AsyncIterator[tuple[Running, list[str]]]:
    """Serve a leader and the API server `answer`; yield the leader, and options that name both."""
    async with serving(folder) as running, ApiServer(answer) as server:
        yield (
            running,
            [
                f"--server={running.url}",
                f"--certificate-authority={running.ca}",
                f"--kubeconfig={running.kubeconfig(server.url)}",
            ],
        )


async def test_where_nothing_is_wrong_it_says_who_leads_and_what_waits(tmp_path: Path) -> None:
    async with beside(tmp_path, cluster(profile("default", READY), held=lease())) as (_, options):
        result = await ask(status, *options)
        document = json.loads((await ask(status, *options, "-o", "json")).stdout)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "KUBERNETES  1.37",
        "PROFILES    1 of 1 in force",
        "LEADER      mooring-0, for 3h0m",
        f"VERSION     {__version__}; this command {__version__}",
        "QUEUE       active 0   backoff 0   unschedulable 0   gated 0",
        "nothing is wrong",
    ]
    assert document["leader"]["name"] == "mooring-0"
    assert document["problems"] == []


async def test_a_cluster_without_profiles_has_no_mooring(tmp_path: Path) -> None:
    async with ApiServer(cluster(installed=False)) as server:
        result = await ask(status, f"--kubeconfig={kubeconfig_of(tmp_path, server.url)}")
    assert result.exit_code == 1
    assert "Mooring is not installed in this cluster" in result.stdout


async def test_what_is_wrong_is_listed_with_its_profile(tmp_path: Path) -> None:
    invalid = {"type": "Ready", "status": "False", "reason": "Invalid", "message": "spec.x: no"}
    conflict = {"type": "Conflicted", "status": "True", "reason": "SamePods", "message": "b"}
    profiles = profile("a", invalid), profile("b", READY, conflict), profile("c", in_force=0)
    async with beside(tmp_path, cluster(*profiles, held=lease())) as (_, options):
        result = await ask(status, *options)
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line.startswith("WRONG")] == [
        "WRONG       profile a: Invalid: spec.x: no",
        "WRONG       profile b: SamePods: b",
        "WRONG       profile c: no replica has read it yet",
    ]
    assert "2 of 3 in force" in result.stdout


async def test_a_lease_that_nobody_holds_or_renews_is_wrong(tmp_path: Path) -> None:
    texts = {
        "nobody holds the Lease mooring-system/mooring": lease(""),
        "mooring-0 has not renewed the Lease": lease(renewed_before=60),
        "there is no Lease mooring-system/mooring": None,
    }
    for text, held in texts.items():
        async with ApiServer(cluster(profile("a", READY), held=held)) as server:
            result = await ask(status, f"--kubeconfig={kubeconfig_of(tmp_path, server.url)}")
        assert result.exit_code == 1
        assert text in result.stdout


async def test_an_api_server_that_is_not_reached_is_one_line(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    server = f"http://127.0.0.1:{unused_tcp_port}"
    result = await ask(status, f"--kubeconfig={kubeconfig_of(tmp_path, server)}")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


async def test_other_commands_say_that_mooring_is_not_installed(tmp_path: Path) -> None:
    async with ApiServer(cluster(installed=False)) as server:
        result = await ask(explain, "web", f"--kubeconfig={kubeconfig_of(tmp_path, server.url)}")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: Mooring is not installed in this cluster; ")
