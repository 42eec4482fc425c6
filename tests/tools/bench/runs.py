"""Runs one workload on one control plane, with one scheduler at a time.

Drain mode: all pods exist before the scheduler starts, so that their creation is not in the figure.
Steady mode: some pods exist; when one is bound, it is deleted and the next one created. As in every
cluster, the claim controller of kube-controller-manager creates and frees claims, beside either
scheduler. The claims of existing pods exist before the scheduler starts.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import replica
from bench import devices, objects
from bench.audit import device_faults, faults
from bench.figures import Run
from bench.loader import create, patch
from bench.observer import Binds, first_change, watched_binds
from bench.requests import requests_so_far, writes
from bench.schedulers import Scheduler
from bench.steady import Successors, successors
from bench.usage import IDLE_SHARE, Usage, usage_of, wait_until_idle
from bench.workloads import WORKLOADS, Devices, Workload
from controlplane import Access, ControlPlane, ControlPlaneError
from controlplane.cluster import NEEDS_CONTROLLER_MANAGER
from controlplane.health import wait_until_healthy
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import delete_nodes
from controlplane.processes import ProcessGroup, free_ports
from controlplane.releases import chosen_release

_Server = TypeVar("_Server")

SERVER_FLAGS = [
    "--max-requests-inflight=1500",
    "--max-mutating-requests-inflight=750",
    "--delete-collection-workers=16",  # for clearing up between runs
]
CONTROLLER = "kube-controller-manager"
CONTROLLER_FLAGS = [
    "--controllers=resourceclaim-controller,serviceaccount-controller",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
]
"""scheduler_perf runs the first controller, too; the second one gives it a service account."""
CLAIMS_SECONDS = 120.0
"""The most seconds for the claim controller to create the claims of the existing pods."""
LOOK_AGAIN = 0.5
STALL_SECONDS = 30.0
"""After so many seconds without a binding and without work, the other pods are given up."""
IDLE_SECONDS = 15.0
"""The most seconds for events and status patches after the last binding."""
EXTENDER_SECONDS = 30.0
"""The most seconds for the start of an extender."""
REFUSALS = {"409", "429"}


@contextmanager
def on_cores_of_its_own(server: AbstractContextManager[_Server]) -> Iterator[_Server]:
    """Enter a server's context on half of the cores; later programs run on the other cores.

    Raises:
        ControlPlaneError: if there is only one core, or the system cannot bind programs to cores.
    """
    if sys.platform != "linux":
        raise ControlPlaneError("only Linux can keep programs on cores of their own")
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if not half:
        raise ControlPlaneError("programs with cores of their own take at least two cores")
    try:
        os.sched_setaffinity(0, cores[:half])  # which the programs that it starts inherit
        with server as entered:
            os.sched_setaffinity(0, cores[half:])
            yield entered
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def bench_server(*, pod_groups: bool = False, claims: bool = False) -> Iterator[ControlPlane]:
    """Yield a control plane for all workloads, with their priority classes and Mooring's manifests.

    With `pod_groups` the API server has Kubernetes' own PodGroups, and kube-scheduler its gates on.
    With `claims` the claim controller runs.
    """
    gates = chosen_release().pod_group_flags() if pod_groups else {}
    flags = {
        **gates,
        "kube-apiserver": [*SERVER_FLAGS, *gates.get("kube-apiserver", ())],
        CONTROLLER: CONTROLLER_FLAGS,
    }
    with ControlPlane(
        {"kube-controller-manager"} if claims else (),
        flags=flags,
        admission_off=NEEDS_CONTROLLER_MANAGER,
    ) as control_plane:
        replica.apply_manifests(control_plane.access)
        create(control_plane.access, objects.priority_classes(WORKLOADS.values()))
        create(control_plane.access, objects.profiles("mooring"))
        yield control_plane


def load_nodes(access: Access, workload: Workload) -> None:
    """Create the workload's nodes and their devices, and allocate some of the devices."""
    create(access, objects.nodes(workload))
    create(access, objects.queues(workload))
    if workload.devices:
        create(access, devices.slices(workload.nodes, workload.devices))
        create(access, devices.classes(workload.devices))
        create(access, [("/api/v1/namespaces", {"metadata": {"name": devices.IN_USE}})])
        number = workload.claims_in_use
        create(access, devices.claims_in_use(number, workload.devices))
        patch(access, devices.allocations(number, workload.nodes, workload.devices))


def delete_stage(access: Access) -> None:
    """Delete the objects that `load_nodes` has created."""
    delete_nodes(access)
    with access.client() as client:
        namespaces = client.get("/api/v1/namespaces")["items"]
        for resource in ("resourceslices", "deviceclasses"):
            client.delete(f"{devices.RESOURCES}/{resource}")
        client.delete(objects.QUEUES)
    if any(item["metadata"]["name"] == devices.IN_USE for item in namespaces):
        delete_namespace(access, devices.IN_USE)


def run_once(control_plane: ControlPlane, workload: Workload, scheduler: Scheduler) -> Run:
    """Let the scheduler bind the pods in a new namespace, delete them, and return the figures."""
    access = control_plane.access
    namespace = create_namespace(access, "bench")
    try:
        create(access, objects.existing_pods(workload, namespace))
        create(access, objects.hopeless_pods(workload, namespace, scheduler.scheduler_name))
        create(access, objects.pod_groups(workload, namespace))
        pods = list(objects.measured_pods(workload, namespace, scheduler.scheduler_name))
        first = workload.at_once or len(pods)
        if workload.devices:
            create(access, [devices.template(workload.devices, namespace)])
        create(access, pods[:first])
        if workload.devices:
            _wait_for_claims(control_plane, workload.devices, namespace)
        names = [pod["metadata"]["name"] for _, pod in pods]
        others = names[::2] if workload.second_kind else []  # as `measured_pods` deals them out
        with (
            _extenders(access, workload, scheduler) as extenders,
            successors(access, pods[first:], workload.at_once) as next_pods,
        ):
            drain = _Drain(control_plane, workload, scheduler, namespace, extenders, next_pods)
            return drain.run(names, others)
    finally:
        delete_namespace(access, namespace)


def _wait_for_claims(control_plane: ControlPlane, claimed: Devices, namespace: str) -> None:
    """Wait until every pod has its claim, and the claim controller has no work left."""
    pid = control_plane.pids[CONTROLLER]
    deadline = time.monotonic() + CLAIMS_SECONDS
    with control_plane.access.client() as client:
        while not claimed.resources and not all(
            pod["status"].get("resourceClaimStatuses")
            for pod in client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        ):
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"pods without claims after {CLAIMS_SECONDS:.0f} s")
            time.sleep(LOOK_AGAIN)
    wait_until_idle(pid, CLAIMS_SECONDS)


@contextmanager
def _extenders(
    access: Access, workload: Workload, scheduler: Scheduler
) -> Iterator[Sequence[dict[str, Any]]]:
    """Run the workload's extender, with a profile for Mooring; yield its configuration."""
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
    """Lets a scheduler bind the pods of one run, and measures this."""

    def __init__(
        self,
        control_plane: ControlPlane,
        workload: Workload,
        scheduler: Scheduler,
        namespace: str,
        extenders: Sequence[dict[str, Any]],
        successors: Successors,
    ) -> None:
        self._control_plane = control_plane
        self._access: Access = control_plane.access
        self._workload = workload
        self._scheduler = scheduler
        self._namespace = namespace
        self._extenders = extenders
        self._successors = successors
        self._first_sign: tuple[float, Usage] | None = None

    def run(self, names: Sequence[str], others: Sequence[str]) -> Run:
        """Return the audited figures; `others` are the names of the second kind's pods."""
        requests, servers = requests_so_far(self._access), self._servers()
        then = self._successors.replace
        with (
            watched_binds(self._access, self._namespace, names, then=then) as binds,
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
            **{name: servers_now[name] - before for name, before in servers.items()},
            writes=dict(writes(answered)),
            refusals={key: n for key, n in answered.items() if key.split(" ")[-1] in REFUSALS},
            others=len(times_of_others),
            others_seconds=max(times_of_others, default=first_sign) - first_sign,
            **self._audit(names),
        )

    def _wait_for(self, binds: Binds) -> None:
        """Wait until all pods are bound, or nothing more happens; preemption may take long."""
        deadline = time.monotonic() + self._workload.seconds
        before = usage_of(self._scheduler.pid).cpu_seconds
        while not binds.wait(STALL_SECONDS) and time.monotonic() < deadline:
            now = usage_of(self._scheduler.pid).cpu_seconds
            if now - before < IDLE_SHARE * STALL_SECONDS:
                return
            before = now

    def _on_first_sign(self) -> None:
        self._first_sign = time.monotonic(), usage_of(self._scheduler.pid)

    def _servers(self) -> dict[str, Any]:
        """Return the CPU seconds of all programs but the scheduler, by the fields of `Run`."""
        used = {name: usage_of(pid).cpu_seconds for name, pid in self._control_plane.pids.items()}
        return {
            "apiserver_cpu_seconds": used["kube-apiserver"],
            "etcd_cpu_seconds": used["etcd"],
            "beside_cpu_seconds": used.get(CONTROLLER, 0.0) + time.process_time(),
        }

    def _audit(self, names: Sequence[str]) -> Mapping[str, Any]:
        workload = self._workload
        with self._access.client() as client:
            nodes = client.get("/api/v1/nodes")["items"]
            pods = client.get(f"/api/v1/namespaces/{self._namespace}/pods")["items"]
            claims = client.get(f"{devices.RESOURCES}/resourceclaims")["items"]
        existing = [
            name for pod in pods if (name := pod["metadata"]["name"]).startswith("existing")
        ]
        evicted = workload.existing - len(existing)
        measured = set(names) - self._successors.replaced
        found = faults(nodes, pods, {*existing, *measured})
        if workload.devices and self._scheduler.decides:
            found += device_faults(pods, claims, workload.devices)
        if evicted and not workload.evicts:
            found.append(f"{evicted} pods were evicted")
        return {"evicted": evicted, "faults": tuple(found)}
