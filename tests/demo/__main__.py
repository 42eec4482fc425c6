"""The command `python -m demo`; KEEP=1 in the environment leaves everything up."""

import argparse
import os
import shutil
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from controlplane import ControlPlaneError
from controlplane.access import ADMIN
from controlplane.build import ensure_built
from demo.borrowed import borrowed_stage, envtest_stage
from demo.errors import DemoError
from demo.stage import (
    KEPT_NAME,
    Operator,
    OwnStage,
    Stage,
    envtest_programs,
    kept_stage,
    temporary_stage,
)
from demo.story import tell
from demo.views import Narrator

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def main() -> int:
    """Return the exit code: 0 all came true, 1 something did not, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _parser().parse_args()
    narrator = Narrator()
    stage: Stage | None = None
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    try:
        with _stage(chosen, narrator, keep=keep) as stage:
            operator = tell(stage, narrator)
    except (ControlPlaneError, DemoError) as error:
        sys.stderr.write(f"error: {error}\n")
        if stage:
            sys.stderr.write(f"logs: {stage.logs}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running\n")
        return INTERRUPTED
    if isinstance(stage, OwnStage) and keep:
        _say_how_to_reach(stage, operator, narrator)
    else:
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
    parser.add_argument(
        "--build", action="store_true", help="build the control plane first if it is needed"
    )
    return parser


def _stage(
    chosen: argparse.Namespace, narrator: Narrator, *, keep: bool
) -> AbstractContextManager[Stage]:
    """Return the stage of the demo; a kept one is always of programs that were built here."""
    if chosen.kubeconfig is not None:
        if keep:
            raise DemoError("KEEP=1 keeps a control plane of the demo's own; leave out KUBECONFIG")
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise DemoError("kubectl is not on the PATH; the demo needs it for KUBECONFIG")
        return borrowed_stage(chosen.kubeconfig.expanduser().absolute(), Path(kubectl))
    programs = None if keep else envtest_programs()
    if programs is None and chosen.build:
        ensure_built()
    narrator.say("etcd and Kubernetes are starting")
    if programs is not None:
        return envtest_stage(programs)
    return kept_stage() if keep else temporary_stage()


def _say_how_to_reach(stage: OwnStage, operator: Operator, narrator: Narrator) -> None:
    narrator.say("done; everything is left running")
    narrator.note(f"reach it:  export KUBECONFIG={stage.access.admin_kubeconfig}")
    narrator.note(f"           {stage.access.kubectl_program} get pods -o wide")
    token = stage.access.tokens[ADMIN]
    narrator.note(f"metrics:   curl -k -H 'Authorization: Bearer {token}' {operator.url}/metrics")
    narrator.note(f"log:       {operator.program.log}")
    narrator.note(
        f"stop it:   kill {operator.program.pid}; "
        f"{sys.executable} -m controlplane down --name {KEPT_NAME}"
    )


if __name__ == "__main__":
    sys.exit(main())
