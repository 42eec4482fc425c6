"""One workload on one control plane, drained by one scheduler at a time.

Drain mode: all pods exist before the scheduler starts, so that their creation is not in the figure.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import replica
from bench import objects
from bench.audit import faults
from bench.figures import Run
from bench.loader import create
from bench.observer import Binds, first_change, watched_binds
from bench.requests import requests_so_far, writes
from bench.schedulers import Scheduler
from bench.usage import IDLE_SHARE, Usage, usage_of, wait_until_idle
from bench.workloads import WORKLOADS, Workload
from controlplane import Access, ControlPlane
from controlplane.health import wait_until_healthy
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.processes import ProcessGroup, free_ports
from controlplane.releases import chosen_release

__all__ = ["bench_server", "load_nodes", "run_once"]

SERVER_FLAGS = [
    "--max-requests-inflight=1500",
    "--max-mutating-requests-inflight=750",
    "--delete-collection-workers=16",  # for clearing up between runs
]
STALL_SECONDS = 30.0
"""Without a binding and without work for so long, the rest of the pods is given up."""
DRAIN_SECONDS = 900.0
"""A scheduler that is still busy then is given up too."""
IDLE_SECONDS = 15.0
"""How long a scheduler may go on with its events and status patches after the last binding."""
EXTENDER_SECONDS = 30.0
"""How long an extender may take to start."""
REFUSALS = {"409", "429"}


@contextmanager
def bench_server(*, pod_groups: bool = False) -> Iterator[ControlPlane]:
    """Yield a control plane for all workloads, with their priority classes and Mooring's manifests.

    With `pod_groups` the API server has Kubernetes' own PodGroups, and kube-scheduler its gates on.
    """
    gates = chosen_release().pod_group_flags() if pod_groups else {}
    flags = {**gates, "kube-apiserver": [*SERVER_FLAGS, *gates.get("kube-apiserver", ())]}
    with ControlPlane(flags=flags) as control_plane:
        replica.apply_manifests(control_plane.access)
        create(control_plane.access, objects.priority_classes(WORKLOADS.values()))
        create(control_plane.access, objects.profiles("mooring"))
        yield control_plane


def load_nodes(access: Access, workload: Workload) -> None:
    """Make the workload's nodes."""
    create(access, objects.nodes(workload))


def run_once(control_plane: ControlPlane, workload: Workload, scheduler: Scheduler) -> Run:
    """Let the scheduler drain the pods in a new namespace, then delete it; return the figures."""
    access = control_plane.access
    namespace = create_namespace(access, "bench")
    try:
        create(access, objects.existing_pods(workload, namespace))
        create(access, objects.hopeless_pods(workload, namespace, scheduler.scheduler_name))
        create(access, objects.pod_groups(workload, namespace))
        pods = list(objects.measured_pods(workload, namespace, scheduler.scheduler_name))
        create(access, pods)
        names = [pod["metadata"]["name"] for _, pod in pods]
        others = names[::2] if workload.second_kind else []  # as `measured_pods` deals them out
        with _extenders(access, workload, scheduler) as extenders:
            drain = _Drain(control_plane, workload, scheduler, namespace, extenders)
            return drain.run(names, others)
    finally:
        delete_namespace(access, namespace)


@contextmanager
def _extenders(
    access: Access, workload: Workload, scheduler: Scheduler
) -> Iterator[Sequence[dict[str, Any]]]:
    """Run the workload's extender inside, with a profile for Mooring; yield its configuration."""
    if not workload.extender_seconds:
        yield ()
        return
    (port,) = free_ports(1)
    delay = f"--delay={workload.extender_seconds}"
    command = [sys.executable, "-m", "deterministic_extender", f"--port={port}", delay]
    environment = {**replica.environment(), "PYTHONPATH": str(replica.ROOT / "tests")}
    collection, profile = objects.extended_profile(scheduler.scheduler_name, port)
    with ProcessGroup() as group, TemporaryDirectory() as folder, access.client() as client:
        log = Path(folder) / "extender.log"
        program = group.spawn("extender", command, log=log, env=environment)
        wait_until_healthy(program, f"http://127.0.0.1:{port}/healthz", EXTENDER_SECONDS)
        client.post(collection, profile)
        try:
            yield (objects.extender(port),)
        finally:
            client.delete(f"{collection}/{profile['metadata']['name']}")


class _Drain:
    """The measured part of a run."""

    def __init__(
        self,
        control_plane: ControlPlane,
        workload: Workload,
        scheduler: Scheduler,
        namespace: str,
        extenders: Sequence[dict[str, Any]],
    ) -> None:
        self._control_plane = control_plane
        self._access: Access = control_plane.access
        self._workload = workload
        self._scheduler = scheduler
        self._namespace = namespace
        self._extenders = extenders
        self._first_sign: tuple[float, Usage] | None = None

    def run(self, names: Sequence[str], others: Sequence[str]) -> Run:
        """Return the figures, audited; `others` are the names of the second kind's pods."""
        requests = requests_so_far(self._access)
        servers = self._servers()
        with (
            watched_binds(self._access, self._namespace, names) as binds,
            first_change(self._access, self._namespace, self._on_first_sign),
        ):
            began = time.monotonic()
            try:
                self._scheduler.start(self._extenders)
                self._wait_for(binds)
                wait_until_idle(self._scheduler.pid, IDLE_SECONDS)
                used = usage_of(self._scheduler.pid)
                servers_now = self._servers()
                requests_now = requests_so_far(self._access)
            finally:
                self._scheduler.stop()
        bound = binds.times
        times = [*bound.values()] or [began]
        first_sign, at_first_sign = self._first_sign or (times[0], used)
        times_of_others = [bound[name] for name in others if name in bound]
        answered = requests_now - requests
        return Run(
            scheduler=self._scheduler.label,
            pods=len(names),
            bound=len(bound),
            seconds=times[-1] - first_sign,
            first_bind_seconds=times[0] - began,
            whole_seconds=times[-1] - began,
            cpu_seconds=used.cpu_seconds,
            drain_cpu_seconds=used.cpu_seconds - at_first_sign.cpu_seconds,
            peak_mib=used.peak_mib,
            apiserver_cpu_seconds=servers_now["kube-apiserver"] - servers["kube-apiserver"],
            etcd_cpu_seconds=servers_now["etcd"] - servers["etcd"],
            writes=dict(writes(answered)),
            refusals={key: n for key, n in answered.items() if key.split(" ")[-1] in REFUSALS},
            others=len(times_of_others),
            others_seconds=max(times_of_others, default=first_sign) - first_sign,
            **self._audit(names),
        )

    def _wait_for(self, binds: Binds) -> None:
        """Wait until all are bound, or nothing more happens: preempting takes its time."""
        deadline = time.monotonic() + DRAIN_SECONDS
        before = usage_of(self._scheduler.pid).cpu_seconds
        while not binds.wait(STALL_SECONDS) and time.monotonic() < deadline:
            now = usage_of(self._scheduler.pid).cpu_seconds
            if now - before < IDLE_SHARE * STALL_SECONDS:
                return
            before = now

    def _on_first_sign(self) -> None:
        self._first_sign = time.monotonic(), usage_of(self._scheduler.pid)

    def _servers(self) -> dict[str, float]:
        pids = self._control_plane.pids
        return {name: usage_of(pids[name]).cpu_seconds for name in ("kube-apiserver", "etcd")}

    def _audit(self, names: Sequence[str]) -> Mapping[str, Any]:
        with self._access.client() as client:
            nodes = client.get("/api/v1/nodes")["items"]
            pods = client.get(f"/api/v1/namespaces/{self._namespace}/pods")["items"]
        workload = self._workload
        existing = [
            name for pod in pods if (name := pod["metadata"]["name"]).startswith("existing")
        ]
        evicted = workload.existing - len(existing)
        found = faults(nodes, pods, [*existing, *names])
        if evicted and not workload.evicts:
            found.append(f"{evicted} pods were evicted")
        return {"evicted": evicted, "faults": tuple(found)}
