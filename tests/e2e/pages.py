"""Runs the commands of a part of docs/quickstart.md in their order, as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import replica
from controlplane import Access
from controlplane.processes import free_ports

ROOT: Final = Path(__file__).parents[2]
PORT: Final = "10259"
SECONDS: Final = 540

_FUNCTIONS = f"""
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
pip() {{  # what it does for this project, without an index of packages
  [ "$*" = "install ." ]
  printf '#!/bin/sh\\nexec {sys.executable} -m mooring "$@"\\n' > "$VIRTUAL_ENV/bin/mooring"
  chmod +x "$VIRTUAL_ENV/bin/mooring"
}}
kubectl() {{  # `kubectl wait` ends with an error while a new CRD has no conditions yet
  if [ "$*" = "wait --for=condition=Established -f crds/" ]; then
    for _ in $(seq 50); do command kubectl "$@" 2>/dev/null && return; sleep 0.1; done
  fi
  command kubectl "$@"
}}
"""


def run_part(
    part: str, access: Access, home: Path, *, before: str = "", stand_ins: tuple[str, ...] = ()
) -> str:
    """Run the commands below a heading and return their output; AssertionError if one fails.

    `before` are commands to run first. The programs in `stand_ins` only print their arguments.
    Files are written to the folder `home`. The page applies the component `admission` of newer
    releases; here the chosen release's component is applied instead.
    """
    page = (ROOT / "docs" / "quickstart.md").read_text()
    text_of_part = page.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text_of_part, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    programs = home / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(access.kubectl_program)
    functions = [f'{name}() {{ echo "{name} $*"; }}\n' for name in stand_ins]
    script = "".join((_FUNCTIONS, *functions, before, "\n", "\n".join(blocks)))
    script = script.replace("manifests/admission", f"manifests/{replica.admission()}")
    script = script.replace(PORT, str(free_ports(1)[0])).replace("mooring.log", f"{home}/log")
    output = home / "output.txt"
    with output.open("w") as out:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env={
                "HOME": str(home),
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "operator"),
                "KUBECONFIG": str(access.admin_kubeconfig),
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    text = output.read_text()
    assert done.returncode == 0, text
    return text
