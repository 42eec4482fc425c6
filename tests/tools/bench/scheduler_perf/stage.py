"""Starts the server that a workload needs, and runs the workload beside a scheduler."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import replica
from bench.observer import watched_bound_pods
from bench.runs import CONTROLLER, CONTROLLER_FLAGS, SERVER_FLAGS
from bench.scheduler_perf.bound_pods import BoundPods
from bench.scheduler_perf.claims import NoDevicesError
from bench.scheduler_perf.configuration import profiles_of
from bench.scheduler_perf.operations import Execution, StalledError
from bench.scheduler_perf.reading import Workload
from bench.scheduler_perf.throughput import Throughput
from bench.schedulers import Mooring, Scheduler
from controlplane import Access, ControlPlane, ControlPlaneError
from controlplane.client import ApiError
from controlplane.cluster import NEEDS_CONTROLLER_MANAGER
from controlplane.namespaces import Baseline
from controlplane.releases import chosen_release

ADMISSION_OFF = NEEDS_CONTROLLER_MANAGER | {"Priority"}
"""Admission plugins to disable; as upstream, pods have a priority without a PriorityClass."""
PROFILES = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")


@dataclass(frozen=True)
class PerfRun:
    """The results of one workload beside one scheduler in one run."""

    scheduler: str
    measured: tuple[Throughput, ...]
    """The measurements in the order of the workload; after a fault, the others are missing."""
    fault: str = ""
    """The reason why the workload did not end; "" if it did."""


@contextmanager
def perf_server(gates: Mapping[str, bool], *, claims: bool = False) -> Iterator[ControlPlane]:
    """Yield a control plane with these feature gates and Mooring's manifests.

    With `claims` it runs the claim controller and serves all versions of claims.
    """
    switched = ",".join(f"{gate}={str(value).lower()}" for gate, value in gates.items())
    gate_flags = [f"--feature-gates={switched}"] if switched else []
    served: list[str] = []
    if gates.get("GenericWorkload"):
        versions = chosen_release().pod_group_versions
        served += [f"scheduling.k8s.io/{version}=true" for version in versions]
    if claims:
        served += [f"resource.k8s.io/{version}=true" for version in DEVICE_VERSIONS]
    serving = [f"--runtime-config={','.join(served)}"] if served else []
    with ControlPlane(
        {"kube-controller-manager"} if claims else (),
        flags={
            "kube-apiserver": [*SERVER_FLAGS, *gate_flags, *serving],
            "kube-scheduler": gate_flags,
            CONTROLLER: [*CONTROLLER_FLAGS, *gate_flags],
        },
        admission_off=ADMISSION_OFF,
    ) as control_plane:
        replica.apply_manifests(control_plane.access)
        yield control_plane


def run_once(control_plane: ControlPlane, workload: Workload, scheduler: Scheduler) -> PerfRun:
    """Run the workload beside the scheduler, then delete its objects.

    An error, or an early end of the scheduler, becomes the run's fault.
    """
    access = control_plane.access
    before, bound = Baseline(access), BoundPods()
    if workload.configuration:
        # kube-scheduler has it as a file, and these concern no pod of its own.
        profiles, _ = profiles_of(workload.configuration, Mooring.scheduler_name)
        _put_profiles(access, profiles)
    scheduler.start()
    try:
        with watched_bound_pods(access, bound.on_event):
            execution = Execution(access, workload, scheduler.scheduler_name, scheduler.pid, bound)
            try:
                execution.run()
            except (StalledError, NoDevicesError, ControlPlaneError, ApiError, OSError) as error:
                return PerfRun(scheduler.label, tuple(execution.measured), str(error))
            return PerfRun(scheduler.label, tuple(execution.measured))
    finally:
        scheduler.stop()
        before.restore()


def _put_profiles(access: Access, profiles: Sequence[dict[str, Any]]) -> None:
    """Create the profiles, and replace shipped profiles of the same names."""
    with access.client() as client:
        names = {item["metadata"]["name"] for item in client.get(PROFILES)["items"]}
        for profile in profiles:
            if profile["metadata"]["name"] in names:
                client.delete(f"{PROFILES}/{profile['metadata']['name']}")
            client.post(PROFILES, profile)
