"""Starts a control plane for one user, and stops it without leaving anything behind."""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from controlplane import commands
from controlplane.access import ADMIN, Access
from controlplane.build import SERVER_PROGRAMS, programs_folder
from controlplane.commands import COMPONENTS, PORTS, Component, Layout
from controlplane.errors import ControlPlaneError, with_log
from controlplane.health import PROBE_INTERVAL, wait_until_healthy
from controlplane.processes import ProcessGroup, Program, free_ports

START_TIMEOUT = 90.0
"""The most seconds until a program is healthy; an idle machine needs about 3."""

SYSTEM_USERS: Mapping[str, Sequence[str]] = {
    ADMIN: ["system:masters"],
    "kwok": ["system:masters"],
    "system:kube-controller-manager": [],
    "system:kube-scheduler": [],
}
"""The users that every control plane has, with their groups."""

NEEDS_CONTROLLER_MANAGER = frozenset({"ServiceAccount", "TaintNodesByCondition"})
"""Admission plugins that need kube-controller-manager. Without it, no pod can be created (there are
no default service accounts), and every node keeps the taint not-ready."""


class ControlPlane:
    """An etcd and a kube-apiserver on free loopback ports, and further programs.

    Use it as a context manager, or call `start` and `stop`. The programs must have been built
    before (`make controlplane`). They end whenever and however the process that owns them ends.
    """

    def __init__(
        self,
        components: Collection[Component] = (),
        *,
        data_dir: Path | None = None,
        programs: Path | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        admission_off: Collection[str] | None = None,
        scheduler_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a control plane; nothing runs yet.

        Args:
            components: the programs besides etcd and kube-apiserver.
            data_dir: a new or empty folder for data and logs, which `stop` keeps; by default a
                temporary folder, which `stop` removes.
            programs: the folder of the programs; by default the built ones.
            users: further users of kube-apiserver, with the groups of each.
            flags: further command-line flags by program name; they override the defaults.
            admission_off: admission plugins to disable; by default NEEDS_CONTROLLER_MANAGER when
                kube-controller-manager is not among the components, else none.
            scheduler_config: fields of the KubeSchedulerConfiguration of the component
                kube-scheduler; absent fields have upstream's defaults.
        """
        unknown = sorted(set(components) - set(COMPONENTS))
        if unknown:
            raise ControlPlaneError(f"unknown components {unknown}; known: {', '.join(COMPONENTS)}")
        without_controllers = "kube-controller-manager" not in components
        default_off = NEEDS_CONTROLLER_MANAGER if without_controllers else frozenset[str]()
        self._components = [name for name in COMPONENTS if name in components]
        self._data_dir = data_dir
        self._programs_folder = programs
        self._users = {**SYSTEM_USERS, **(users or {})}
        self._flags = flags or {}
        self._admission_off = default_off if admission_off is None else admission_off
        self._scheduler_config = scheduler_config or {}
        self._layout: Layout | None = None
        self._group: ProcessGroup | None = None
        self._access: Access | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all programs and wait for them; after a failure, stop all and keep the logs."""
        if self._group:
            raise ControlPlaneError("the control plane was started before and not stopped")
        needed = {*SERVER_PROGRAMS, *self._components}
        programs = self._programs_folder or programs_folder(programs=needed)
        data = self._data_dir or Path(tempfile.mkdtemp(prefix="mooring-controlplane-"))
        data.mkdir(parents=True, exist_ok=True)
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._layout = Layout(data, programs, ports)
        self._group = ProcessGroup(remove=None if self._data_dir else data)
        try:
            self._start_server()
            self._start_components()
        except BaseException:
            self._end_programs()
            raise
        return self

    def stop(self) -> None:
        """Stop every program and remove a temporary data folder; repeated calls do nothing."""
        data = self._layout.data if self._layout else None
        self._end_programs()
        if data and not self._data_dir:
            shutil.rmtree(data, ignore_errors=True)

    @property
    def access(self) -> Access:
        """The access to the control plane: URL, kubeconfig files, kubectl and a JSON client."""
        if self._access is None:
            raise ControlPlaneError("the control plane is not running: start it first")
        return self._access

    @property
    def data_dir(self) -> Path:
        """The folder of data, kubeconfig files and logs of the running control plane."""
        return self._running_layout.data

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the running programs, by program name."""
        return {program.name: program.pid for program in self._programs}

    def url(self, name: str) -> str:
        """Return the URL at which the program of this name serves, for example metrics."""
        return self._running_layout.url(name)

    @property
    def logs(self) -> dict[str, Path]:
        """The log files of the running programs, by program name."""
        return {program.name: program.log for program in self._programs}

    def start_scheduler(
        self, config: Mapping[str, Any] | None = None, timeout: float = START_TIMEOUT
    ) -> None:
        """Start kube-scheduler with these configuration fields; it must not run yet.

        It may take `timeout` seconds to read the cluster.
        """
        self._scheduler_config = config or {}
        self.start_component("kube-scheduler", timeout)

    def stop_scheduler(self) -> None:
        self.stop_component("kube-scheduler")

    def start_component(self, name: str, timeout: float = START_TIMEOUT) -> None:
        """Start the program, or start it again, on its port; wait until it is healthy."""
        if name in self.pids:
            raise ControlPlaneError(f"{name} already runs")
        self._wait_for(self._launch(name), timeout)

    def stop_component(self, name: str) -> None:
        """Stop the program; raise ControlPlaneError if it does not run."""
        for program in self._programs:
            if program.name == name and self._group:
                self._group.stop(program)
                return
        raise ControlPlaneError(f"{name} is not running")

    def replace_server(self, programs: Path, flags: Sequence[str] = ()) -> None:
        """Stop kube-apiserver; start the one of another folder on the same etcd and port.

        These flags replace the former ones.
        """
        self.stop_component("kube-apiserver")
        self._layout = replace(self._running_layout, programs=programs)
        self._flags = {**self._flags, "kube-apiserver": flags}
        self.start_component("kube-apiserver")

    @property
    def _running_layout(self) -> Layout:
        if self._layout is None:
            raise ControlPlaneError("the control plane is not running: start it first")
        return self._layout

    @property
    def _programs(self) -> Sequence[Program]:
        return self._group.programs if self._group else ()

    def _start_server(self) -> None:
        layout = self._running_layout
        (layout.data / "logs").mkdir(exist_ok=True)
        tokens = {user: secrets.token_hex(16) for user in self._users}
        layout.token_file.touch(mode=0o600)
        layout.token_file.write_text(
            "".join(
                f'{token},{user},{user},"{",".join(self._users[user])}"\n'
                for user, token in tokens.items()
            )
        )
        database = self._launch("etcd")
        server = self._launch("kube-apiserver")
        self._wait_for(server)
        database.require_alive()
        ca_file = layout.data / "ca.crt"
        ca_file.write_text(_last_certificate((layout.pki / "apiserver.crt").read_text()))
        url, kubectl = layout.url("kube-apiserver"), layout.programs / "kubectl"
        self._access = Access(url, layout.data, ca_file, kubectl, tokens)

    def _start_components(self) -> None:
        for program in [self._launch(name) for name in self._components]:
            self._wait_for(program)
            if program.name == "kube-controller-manager":
                self._wait_for_default_service_account(program)

    def _launch(self, name: str) -> Program:
        layout = self._running_layout
        if self._group is None:
            raise ControlPlaneError("the control plane is not running: start it first")
        return self._group.spawn(
            name,
            [*self._command(name), *self._flags.get(name, ())],
            log=layout.data / "logs" / f"{name}.log",
            env={**_inherited(), "HOME": str(layout.data)},
        )

    def _command(self, name: str) -> list[str]:
        layout = self._running_layout
        match name:
            case "etcd":
                return commands.etcd(layout)
            case "kube-apiserver":
                return commands.kube_apiserver(layout, self._admission_off)
            case "kube-controller-manager":
                kubeconfig = self.access.kubeconfig_for("system:kube-controller-manager")
                return commands.kube_controller_manager(layout, kubeconfig, self.access.ca_file)
            case "kube-scheduler":
                kubeconfig = self.access.kubeconfig_for("system:kube-scheduler")
                config = layout.data / "kube-scheduler.json"
                config.write_text(commands.scheduler_config(kubeconfig, self._scheduler_config))
                return commands.kube_scheduler(layout, kubeconfig, config)
            case "kwok":
                return commands.kwok(layout, self.access.kubeconfig_for("kwok"))
        raise ControlPlaneError(f"unknown component {name!r}; known: {', '.join(PORTS)}")

    def _wait_for(self, program: Program, timeout: float = START_TIMEOUT) -> None:
        url = commands.health_url(self._running_layout, program.name)
        wait_until_healthy(program, url, timeout)

    def _wait_for_default_service_account(self, maker: Program) -> None:
        """Wait until pods can be created in the namespace `default`."""
        deadline = time.monotonic() + START_TIMEOUT
        path = "/api/v1/namespaces/default/serviceaccounts?fieldSelector=metadata.name%3Ddefault"
        with self.access.client() as client:
            while not client.get(path)["items"]:
                if time.monotonic() > deadline:
                    raise with_log("namespace default got no service account", maker.log)
                maker.wait(PROBE_INTERVAL)
                maker.require_alive()

    def _end_programs(self) -> None:
        if self._group:
            self._group.close()
        self._group = self._layout = self._access = None


def _inherited() -> dict[str, str]:
    """Return the variables for finding programs, and for Go's garbage collector if that is set."""
    return {name: os.environ[name] for name in ("PATH", "GOGC") if name in os.environ}


def _last_certificate(bundle: str) -> str:
    # kube-apiserver writes its serving certificate first and the one that signed it last.
    begin = "-----BEGIN CERTIFICATE-----"
    return begin + bundle.rpartition(begin)[2]
