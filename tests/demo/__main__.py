"""The command `python -m demo`; KEEP=1 in the environment leaves everything up."""

import os
import signal
import sys

from controlplane import ControlPlaneError
from controlplane.access import ADMIN
from demo.errors import DemoError
from demo.stage import KEPT_NAME, Operator, Stage, kept_stage, temporary_stage
from demo.story import tell
from demo.views import Narrator

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


def main() -> int:
    """The exit code: 0 all came true, 1 something did not, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    narrator = Narrator()
    narrator.say("etcd and Kubernetes are starting")
    stage: Stage | None = None
    keep = os.environ.get("KEEP", "") not in {"", "0"}
    try:
        with (kept_stage if keep else temporary_stage)() as stage:
            operator = tell(stage, narrator)
    except (ControlPlaneError, DemoError) as error:
        sys.stderr.write(f"error: {error}\n")
        if stage:
            sys.stderr.write(f"logs: {stage.logs}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running\n")
        return INTERRUPTED
    if keep:
        _say_how_to_reach(stage, operator, narrator)
    else:
        narrator.say("done; nothing is left running")
    return 0


def _say_how_to_reach(stage: Stage, operator: Operator, narrator: Narrator) -> None:
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
