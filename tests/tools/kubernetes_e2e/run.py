"""Runs the cases against one scheduler, on a control plane of its own."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

import replica
from controlplane import ControlPlane
from controlplane.build import GoModule, kubernetes_flags
from controlplane.commands import Component
from controlplane.nodes import create_nodes
from controlplane.processes import ProcessGroup, Program, free_ports
from controlplane.releases import chosen_release, required_kubernetes
from kubernetes_e2e.kubelet import (
    copy_extended_resources,
    run_required_pods,
    set_addresses,
)
from policies import profile

HERE: Final = Path(__file__).parent
VERSION: Final = required_kubernetes(HERE / "go.mod")
MODULE: Final = GoModule(
    "kubernetes-e2e",
    HERE,
    {"scheduling.test": "mooring.dev/kubernetes-e2e"},
    target="conformance",
    about=f"the cases of Kubernetes {VERSION}, about 10 minutes",
    flags=kubernetes_flags(VERSION),
)
KUBE_SCHEDULER: Final = "kube-scheduler"
MOORING: Final = "Mooring"

NODES: Final = 5
CAPACITY: Final[Mapping[str, str]] = {
    "cpu": "4",
    "memory": "16Gi",
    "ephemeral-storage": "100Gi",
    "pods": "110",
}
LABELS: Final = "!Feature:OffByDefault || FeatureGate:GenericWorkload"
"""Leaves out cases of features that are off by default; those of pod groups are on here."""
SKIP: Final = "Multi-AZ"
"""Matches cases for clusters of a cloud with several zones."""


@contextmanager
def running_cases(scheduler: str, program: Path, folder: Path, focus: str) -> Iterator[Program]:
    """Yield the program that runs the cases; it writes JUnit files and logs into the folder."""
    release = chosen_release()
    components: set[Component] = {"kube-controller-manager", "kwok"}
    if scheduler == KUBE_SCHEDULER:
        components.add("kube-scheduler")
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    cluster = ControlPlane(
        components,
        data_dir=folder / "cluster",
        flags=release.pod_group_flags(),
    )
    with cluster as plane, ProcessGroup() as group:
        access = plane.access
        nodes = create_nodes(access, NODES, zones=2, capacity=CAPACITY)
        run_required_pods(access, nodes)
        set_addresses(access, nodes)
        if scheduler == MOORING:
            _start_mooring(plane, group, folder)
        kubelet = threading.Thread(target=copy_extended_resources, args=(access, stop), daemon=True)
        kubelet.start()
        try:
            yield group.spawn(
                "scheduling.test",
                _command(program, access.admin_kubeconfig, folder, focus),
                log=folder / "cases.log",
                env=replica.environment(),
            )
        finally:
            stop.set()
            kubelet.join()


def _command(program: Path, kubeconfig: Path, folder: Path, focus: str) -> list[str]:
    return [
        str(program),
        "--provider=skeleton",
        f"--kubeconfig={kubeconfig}",
        f"--report-dir={folder}",
        f"--ginkgo.focus={focus}",
        f"--ginkgo.label-filter={LABELS}",
        f"--ginkgo.skip={SKIP}",
        f"--num-nodes={NODES}",
        "--ginkgo.no-color",
        "--ginkgo.seed=1",
        "--ginkgo.timeout=2h",
        "--ginkgo.flake-attempts=2",
    ]


def _start_mooring(plane: ControlPlane, group: ProcessGroup, folder: Path) -> None:
    """Let Mooring schedule the pods with the schedulerName `default-scheduler`."""
    replica.apply_manifests(plane.access)
    release = chosen_release()
    # Without this, Mooring follows the version of the servers, which is another one.
    rules: dict[str, Any] = {"kubernetesVersion": release.minor} if release.servers_of else {}
    spec = yaml.safe_dump(profile("default-scheduler", **rules))
    plane.access.kubectl("apply", "-f", "-", stdin=spec)
    kubeconfig = plane.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
    (port,) = free_ports(1)
    log, environment = folder / "mooring.log", replica.environment()
    mooring = group.spawn(MOORING, replica.command(kubeconfig, port), log=log, env=environment)
    replica.wait_until_ready(mooring, port)
