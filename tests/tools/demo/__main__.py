"""The command `python -m demo`; with KEEP=1 in the environment, everything keeps running."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import replica
from controlplane import ControlPlaneError
from controlplane.access import ADMIN
from controlplane.build import SERVER_PROGRAMS, ensure_built, programs_folder
from controlplane.envtest import chosen_programs, downloaded_programs
from demo.borrowed import borrowed_stage
from demo.errors import DemoError
from demo.stage import (
    Operator,
    OwnStage,
    Stage,
    kept_stage,
    open_page,
    stop_kept,
    temporary_stage,
)
from demo.story import tell
from demo.views import Narrator

CLUSTER = Path(__file__).with_name("cluster.yaml")
SOME_PODS_WAIT = 1
"""The exit code of `mooring simulate` for the cluster of the example file."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells."""


def main() -> int:
    """Return the exit code: 0 if all steps succeeded, 1 if one failed, 130 if interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _parser().parse_args()
    if chosen.down:
        Narrator().say("the demo is stopped" if stop_kept() else "no demo is up")
        return 0
    narrator = Narrator()
    stage: Stage | None = None
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    try:
        with _stage(chosen, narrator, keep=keep) as stage:
            operator = tell(stage, narrator)
            if isinstance(stage, OwnStage) and keep:
                _say_how_to_reach(stage, operator, narrator)
            elif sys.stdin.isatty() and sys.stdout.isatty():
                _show_page(stage, narrator)
    except (ControlPlaneError, DemoError) as error:
        sys.stderr.write(f"error: {error}\n")
        if stage:
            sys.stderr.write(f"logs: {stage.logs}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running\n")
        return INTERRUPTED
    if not keep:
        narrator.say("done; nothing is left running")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Mooring at work.")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="play in the cluster of this file's current context, in a namespace and on nodes of "
        "the demo's own, which are removed in the end",
    )
    parser.add_argument("--down", action="store_true", help="stop a demo that KEEP=1 has left up")
    parser.add_argument(
        "--build", action="store_true", help="build the control plane first if it is needed"
    )
    return parser


def _stage(
    chosen: argparse.Namespace, narrator: Narrator, *, keep: bool
) -> AbstractContextManager[Stage]:
    """Return the stage of the demo; a kept stage always has programs that were built here."""
    if chosen.kubeconfig is not None:
        if keep:
            raise DemoError("KEEP=1 keeps a control plane of the demo's own; leave out KUBECONFIG")
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise DemoError("kubectl is not on the PATH; the demo needs it for KUBECONFIG")
        return borrowed_stage(chosen.kubeconfig.expanduser().absolute(), Path(kubectl))
    programs = chosen_programs()
    _show_simulation(narrator)
    programs = programs or _programs(build=chosen.build)
    narrator.say("etcd and Kubernetes are starting")
    return kept_stage(programs) if keep else temporary_stage(programs)


def _programs(*, build: bool) -> Path | None:
    """Return the folder of etcd, kube-apiserver and kubectl; None if all programs are built.

    With `build`, download or else build missing programs.
    """
    with suppress(ControlPlaneError):
        programs_folder()
        return None
    with suppress(ControlPlaneError):
        return programs_folder(programs=SERVER_PROGRAMS)
    if not build:
        return programs_folder(programs=SERVER_PROGRAMS)
    return downloaded_programs() or ensure_built(programs=SERVER_PROGRAMS)


def _show_simulation(narrator: Narrator) -> None:
    """Show the output of `mooring simulate` for a cluster in a file; this needs only Python."""
    narrator.heading("Where would pods run? No cluster is needed to ask.")
    words = ("simulate", str(CLUSTER.relative_to(replica.ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "mooring", *words],
        cwd=replica.ROOT,
        env={**replica.environment(), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != SOME_PODS_WAIT:
        raise DemoError(f"mooring {' '.join(words)}: {done.stderr.strip()}")
    narrator.output(f"mooring {' '.join(words)}", done.stdout)


def _show_page(stage: Stage, narrator: Narrator) -> None:
    """Serve the page until the user has seen it and presses Enter."""
    _, address = open_page(stage)
    narrator.say(f"the page is at {address}")
    narrator.note("Enter ends the demo, and removes what it has made")
    sys.stdin.readline()


def _say_how_to_reach(stage: OwnStage, operator: Operator, narrator: Narrator) -> None:
    _, address = open_page(stage)
    narrator.say("done; everything is left running")
    narrator.note(f"reach it:  export KUBECONFIG={stage.access.admin_kubeconfig}")
    narrator.note(f"           {stage.access.kubectl_program} get pods -o wide")
    narrator.note(f"           {_command()} top")
    narrator.note(f"the page:  {address}")
    narrator.note(f"           (good for one use; another: {_command()} ui)")
    if "kube-controller-manager" not in stage.programs:
        narrator.note(
            "no Deployments: `make controlplane` builds their controller for the next demo"
        )
    token = stage.access.tokens[ADMIN]
    narrator.note(f"metrics:   curl -k -H 'Authorization: Bearer {token}' {operator.url}/metrics")
    narrator.note(f"log:       {operator.program.log}")
    narrator.note("stop it:   make demo-down")


def _command() -> str:
    """Return the command by which a user starts `mooring`."""
    made = Path(sys.executable).with_name("mooring")
    return str(made.relative_to(Path.cwd())) if made.is_relative_to(Path.cwd()) else "mooring"


if __name__ == "__main__":
    sys.exit(main())
