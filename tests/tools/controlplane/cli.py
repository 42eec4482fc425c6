"""The commands build, tools, up, down and status."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controlplane import background
from controlplane.background import DEFAULT_NAME, Options, Running
from controlplane.build import TOOLS_MODULE, ensure_built
from controlplane.errors import ControlPlaneError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 success, 1 failed or not running, 2 wrong usage, 130 interrupted."""
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = chosen.command
    try:
        return command(chosen)
    except ControlPlaneError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane", description="A real Kubernetes control plane on loopback."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="compile the programs, once, into the cache")
    build.set_defaults(command=_build)

    tools = commands.add_parser("tools", help="compile promtool and helm, once, into the cache")
    tools.set_defaults(command=_tools)

    up = commands.add_parser("up", help="start a control plane in the background")
    up.add_argument("--name", default=DEFAULT_NAME, help="default: %(default)s")
    up.add_argument("--kwok-nodes", type=int, default=0, metavar="N", help="nodes, run by kwok")
    up.add_argument("--zones", type=int, default=1, metavar="Z", help="zones the nodes lie in")
    up.add_argument("--controller-manager", action="store_true", help="kube-controller-manager too")
    up.add_argument("--scheduler", action="store_true", help="kube-scheduler too")
    up.add_argument(
        "--programs",
        type=Path,
        metavar="FOLDER",
        help="of etcd, kube-apiserver and kubectl, such as envtest's; default: what is built here",
    )
    up.add_argument("--foreground", action="store_true", help="run here, until Ctrl-C")
    up.set_defaults(command=_up)

    down = commands.add_parser("down", help="stop it and remove its data")
    down.add_argument("--name", default=DEFAULT_NAME, help="default: %(default)s")
    down.set_defaults(command=_down)

    status = commands.add_parser("status", help="say what runs and how to reach it")
    status.add_argument("--name", help="default: all")
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    status.set_defaults(command=_status)
    return parser


def _build(_: argparse.Namespace) -> int:
    sys.stdout.write(f"{ensure_built()}\n")
    return 0


def _tools(_: argparse.Namespace) -> int:
    sys.stdout.write(f"{ensure_built(module=TOOLS_MODULE)}\n")
    return 0


def _up(chosen: argparse.Namespace) -> int:
    options = Options(
        kwok_nodes=chosen.kwok_nodes,
        zones=chosen.zones,
        controller_manager=chosen.controller_manager,
        scheduler=chosen.scheduler,
        programs=chosen.programs,
    )
    if options.kwok_nodes < 0 or options.zones < 1:
        raise ControlPlaneError("--kwok-nodes must be 0 or more and --zones 1 or more")
    if options.programs is None:
        ensure_built()
    if chosen.foreground:
        background.hold(chosen.name, options, _show)
        return 0
    background.up(chosen.name, options)
    if running := background.status(chosen.name):
        _show(running)
    return 0


def _down(chosen: argparse.Namespace) -> int:
    background.down(chosen.name)
    sys.stdout.write(f"{chosen.name}: stopped\n")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    names = [chosen.name] if chosen.name is not None else background.running_names()
    found = [running for name in names if (running := background.status(name))]
    if chosen.output == "json":
        sys.stdout.write(json.dumps([_as_json(running) for running in found], indent=2) + "\n")
    else:
        for running in found:
            _show(running)
        if not found:
            sys.stdout.write("no control plane is running\n")
    return 0 if found and all(running.healthy for running in found) else 1


def _as_json(running: Running) -> dict[str, Any]:
    access = running.access
    return {
        "name": running.name,
        "healthy": running.healthy,
        "url": access.url if access else None,
        "kubeconfig": str(access.admin_kubeconfig) if access else None,
        "kubectl": str(access.kubectl_program) if access else None,
        "pids": {"holder": running.holder, **running.pids},
        "logs": running.logs,
    }


def _show(running: Running) -> None:
    access = running.access
    if access is None:
        sys.stdout.write(f"{running.name}: starting (pid {running.holder})\n")
        return
    lines = [
        f"{running.name}: {'ready' if running.healthy else 'NOT ready'} at {access.url}",
        f"  export KUBECONFIG={access.admin_kubeconfig}",
        f"  kubectl: {access.kubectl_program}",
    ]
    for program, pid in running.pids.items():
        lines.append(f"  {program:<24} pid {pid:<8} {running.logs[program]}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
