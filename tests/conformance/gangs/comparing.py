"""Gives the same gangs to kube-scheduler and Mooring on one API server; compares the results."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TypeVar

import replica
from conformance.gangs.cases import Gang, random_gang, wrong_placement
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import delete_nodes
from controlplane.processes import ProcessGroup, free_ports
from controlplane.releases import chosen_release

SCHEDULERS: Final = ("default-scheduler", "mooring")
TOGETHER: Final = 10
"""So many gangs, or other scenes, are there at once, each twice, on nodes of its own."""
LOOK_AGAIN: Final = 0.2
QUIET_SECONDS: Final = 2.0
"""A gang whose members have all been unschedulable for so long is not placed."""
PATIENCE_SECONDS: Final = 30.0
"""How long a gang may be undecided, or unschedulable for Mooring if kube-scheduler placed it."""

Raw = dict[str, Any]
_Result = TypeVar("_Result")


class Verdict(NamedTuple):
    """Which schedulers placed a gang; `wrong` is the mistake in Mooring's placement, or ""."""

    number: int
    kube_scheduler: bool
    mooring: bool
    wrong: str


@contextmanager
def both_schedulers() -> Iterator[Access]:
    """Run kube-scheduler (with its gates on) and Mooring on one control plane; yield its access."""
    with (
        ControlPlane({"kube-scheduler"}, flags=chosen_release().pod_group_flags()) as plane,
        TemporaryDirectory() as folder,
        ProcessGroup() as group,
    ):
        replica.apply_manifests(plane.access)
        kubeconfig = plane.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        (port,) = free_ports(1)
        command = replica.command(kubeconfig, port, "--no-leader-elect")
        log = Path(folder) / "mooring.log"
        program = group.spawn("mooring", command, log=log, env=replica.environment())
        replica.wait_until_ready(program, port)
        yield plane.access


def verdicts(access: Access, seed: int, numbers: Sequence[int]) -> Iterator[Verdict]:
    """Yield a verdict on each gang; the cluster must have no nodes before."""
    return in_batches(access, "gangs", numbers, partial(_together, seed))


def in_batches(
    access: Access,
    prefix: str,
    numbers: Sequence[int],
    results: Callable[[Client, str, Sequence[int]], Iterator[_Result]],
) -> Iterator[_Result]:
    """Yield the results of `numbers`, a few numbers at a time, in one namespace per batch.

    After each batch, its namespace and all nodes are deleted.
    """
    with access.client() as client:
        for first in range(0, len(numbers), TOGETHER):
            namespace = create_namespace(access, prefix)
            try:
                yield from results(client, namespace, numbers[first : first + TOGETHER])
            finally:
                delete_namespace(access, namespace)
                delete_nodes(access)


def _together(
    seed: int, client: Client, namespace: str, numbers: Sequence[int]
) -> Iterator[Verdict]:
    pairs = [[random_gang(seed, n, name, namespace) for name in SCHEDULERS] for n in numbers]
    gangs = [gang for pair in pairs for gang in pair]
    release = chosen_release()
    for gang in gangs:
        _create(client, namespace, gang)
    # Last of all, so that a scheduler knows all members when it may begin.
    for gang in gangs:
        client.post(release.pod_groups(namespace), release.versioned(gang.group))
    found = _settled(client, namespace, pairs)
    for number, (theirs, ours) in zip(numbers, pairs, strict=True):
        wrong = wrong_placement(ours, found.node_of(ours))
        yield Verdict(number, found.is_placed(theirs), found.is_placed(ours), wrong)


def _create(client: Client, namespace: str, gang: Gang) -> None:
    for raw in gang.nodes:
        client.post("/api/v1/nodes", raw)
    for raw in (*gang.running, *gang.members):
        client.post(_pods(namespace), raw)


class _Found:
    """The pods of a namespace as the API server has them now."""

    def __init__(self, client: Client, namespace: str) -> None:
        found = client.get(_pods(namespace))["items"]
        self._pods = {raw["metadata"]["name"]: raw for raw in found}

    def node_of(self, gang: Gang) -> dict[str, str]:
        """Return the nodes of the bound members, by name."""
        names = [raw["metadata"]["name"] for raw in gang.members]
        nodes = {name: self._pods[name]["spec"].get("nodeName") for name in names}
        return {name: node for name, node in nodes.items() if node}

    def is_placed(self, gang: Gang) -> bool:
        """Return whether the minimum of the gang's members is bound."""
        return len(self.node_of(gang)) >= gang.minimum

    def is_unschedulable(self, gang: Gang) -> bool:
        """Return whether all members have the condition PodScheduled=False."""
        pods = (self._pods[raw["metadata"]["name"]] for raw in gang.members)
        return all(
            any(
                condition["type"] == "PodScheduled" and condition["status"] == "False"
                for condition in pod["status"].get("conditions", ())
            )
            for pod in pods
        )


def _settled(client: Client, namespace: str, pairs: Sequence[Sequence[Gang]]) -> _Found:
    """Wait until every gang is placed, or unschedulable for long enough; return the last state."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    since: dict[str, float] = {}
    while True:
        found, now = _Found(client, namespace), time.monotonic()
        for gang in (gang for pair in pairs for gang in pair):
            if not found.is_unschedulable(gang):
                since[gang.name] = now
            since.setdefault(gang.name, now)
        if now > deadline or all(_is_settled(pair, found, since, now) for pair in pairs):
            return found
        time.sleep(LOOK_AGAIN)


def _is_settled(
    pair: Sequence[Gang], found: _Found, since: Mapping[str, float], now: float
) -> bool:
    """Return whether both are decided; wait for Mooring if kube-scheduler has placed its gang."""
    theirs, ours = (
        found.is_placed(gang) or now - since[gang.name] > QUIET_SECONDS for gang in pair
    )
    return theirs and ours and found.is_placed(pair[0]) <= found.is_placed(pair[1])


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
