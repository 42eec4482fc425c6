"""The two schedulers, each with the same limit on requests: 5,000 per second.

A third client makes the same writes as a scheduler, but decides nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson

import replica
from bench import baseline
from bench.workloads import Workload
from controlplane import ControlPlane
from controlplane.processes import ProcessGroup, Program, free_ports

Raw = dict[str, Any]

QPS = 5000
START_SECONDS = 900.0
"""The most seconds for a start: with gangs of 1,500 pods kube-scheduler reads pods for minutes."""
STOP_SECONDS = 30.0


class Scheduler(Protocol):
    """A scheduler that can be started and stopped."""

    label: str
    scheduler_name: str
    """The spec.schedulerName of the scheduler's pods."""
    decides: bool
    """Whether the scheduler allocates only free devices."""

    @property
    def pid(self) -> int:
        """The process id, while the scheduler runs."""

    @property
    def url(self) -> str:
        """The URL of the metrics while the scheduler runs; "" if it has none."""

    def start(self, extenders: Sequence[Raw] = ()) -> None:
        """Start the scheduler and wait until it mirrors the cluster.

        Only kube-scheduler uses `extenders`; Mooring's are in a profile.
        """

    def stop(self) -> None:
        """Stop the scheduler and wait until it has ended."""


class KubeScheduler:
    """Upstream's scheduler with its default configuration, except for the rate limits."""

    label = "kube-scheduler"
    scheduler_name = "default-scheduler"
    decides = True

    def __init__(
        self, control_plane: ControlPlane, configuration: Mapping[str, Any] | None = None
    ) -> None:
        """Set the scheduler up; `configuration` adds fields to the default configuration."""
        self._control_plane = control_plane
        self._configuration = configuration or {}

    @property
    def pid(self) -> int:
        return self._control_plane.pids["kube-scheduler"]

    @property
    def url(self) -> str:
        return self._control_plane.url("kube-scheduler")

    def start(self, extenders: Sequence[Raw] = ()) -> None:
        limits = {"qps": QPS, "burst": QPS}
        configuration: Raw = {**self._configuration, "clientConnection": limits}
        if extenders:
            configuration["extenders"] = list(extenders)
        self._control_plane.start_scheduler(configuration, timeout=START_SECONDS)

    def stop(self) -> None:
        self._control_plane.stop_scheduler()


class Mooring:
    """Mooring as its own service account, with the shipped profile."""

    label = "mooring"
    scheduler_name = "mooring"
    decides = True

    def __init__(
        self,
        control_plane: ControlPlane,
        log: Path,
        samples: Path | None = None,
        *,
        records: bool = True,
    ) -> None:
        """Set Mooring up; with `samples`, bench.sampling writes its samples to this file.

        Without `records`, Mooring keeps no records of decisions.
        """
        self._access = control_plane.access
        self._log = log
        self._samples = samples
        self._records = records
        self._port = 0
        self._group: ProcessGroup | None = None
        self._program: Program | None = None

    @property
    def pid(self) -> int:
        if self._program is None:
            raise RuntimeError("Mooring is not running")
        return self._program.pid

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self, extenders: Sequence[Raw] = ()) -> None:  # noqa: ARG002 - has a profile
        kubeconfig = self._access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        (port,) = free_ports(1)
        self._port = port
        # kube-scheduler elects no leader here either.
        options = [f"--qps={QPS}", f"--burst={QPS}", "--no-leader-elect", "--log-level=warning"]
        if not self._records:
            options.append("--decision-record-mib=0")
        command = replica.command(kubeconfig, port, *options)
        if self._samples:
            command = [sys.executable, "-m", "bench.sampling", str(self._samples), *command[2:]]
        self._group = ProcessGroup()
        self._program = self._group.spawn(
            self.label, command, log=self._log, env=self._environment()
        )
        replica.wait_until_ready(self._program, port)

    def stop(self) -> None:
        if self._group and self._program:
            self._group.stop(self._program, STOP_SECONDS)
            self._group.close()
        self._group = self._program = None

    def _environment(self) -> Mapping[str, str]:
        return _with_tests() if self._samples else replica.environment()


class Baseline:
    """The client `bench.baseline`, which decides nothing."""

    label = "API server's limit"
    scheduler_name = baseline.NAME
    decides = False

    def __init__(self, control_plane: ControlPlane, log: Path, workload: Workload) -> None:
        self._access = control_plane.access
        self._log = log
        self._workload = workload
        self._group: ProcessGroup | None = None
        self._program: Program | None = None

    @property
    def pid(self) -> int:
        if self._program is None:
            raise RuntimeError("the baseline is not running")
        return self._program.pid

    @property
    def url(self) -> str:
        return ""

    def start(self, extenders: Sequence[Raw] = ()) -> None:  # noqa: ARG002 - has none
        kubeconfig, nodes = str(self._access.admin_kubeconfig), str(self._workload.nodes)
        devices = orjson.dumps(self._workload.devices).decode()
        command = [sys.executable, "-m", "bench.baseline", kubeconfig, nodes, devices]
        self._group = ProcessGroup()
        self._program = self._group.spawn(self.label, command, log=self._log, env=_with_tests())

    def stop(self) -> None:
        if self._group and self._program:
            self._group.stop(self._program, STOP_SECONDS)
            self._group.close()
        self._group = self._program = None


def _with_tests() -> Mapping[str, str]:
    """Return the environment of a replica that can also import the modules of the benchmark."""
    environment = replica.environment()
    tests = replica.ROOT / "tests"
    return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{tests}:{tests / 'tools'}"}
