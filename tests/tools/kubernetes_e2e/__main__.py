"""The command `python -m kubernetes_e2e`."""

import argparse
import contextlib
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from controlplane import ControlPlaneError
from controlplane.build import cache_root, ensure_built
from controlplane.progress import Progress
from kubernetes_e2e.results import (
    Result,
    differences,
    markdown,
    read_junit,
    replace_table,
    shown_name,
)
from kubernetes_e2e.run import KUBE_SCHEDULER, MODULE, MOORING, running_cases
from replica import ROOT

DOCUMENT: Final = ROOT / "docs" / "measured.md"
INTERRUPTED: Final = 130


def main() -> int:
    """Return the exit code: 0 if results are equal, 1 if not or after an error, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _parser().parse_args()
    try:
        results = _run(chosen.focus)
    except ControlPlaneError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was left running\n")
        return INTERRUPTED
    table = markdown(results)
    sys.stdout.write(f"{table}\n")
    for scheduler, found in results.items():
        for case, result in found.items():
            if result.outcome == "failed":
                sys.stdout.write(f"{scheduler} failed: {shown_name(case)}: {result.message}\n")
    if chosen.write:
        DOCUMENT.write_text(replace_table(DOCUMENT.read_text(), markdown(results, all_cases=False)))
    different = differences(results[KUBE_SCHEDULER], results[MOORING])
    for line in different:
        sys.stdout.write(f"{KUBE_SCHEDULER} and {MOORING} differ: {line}\n")
    return 1 if different or not results[MOORING] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kubernetes_e2e",
        description="SIG Scheduling's own test cases, against kube-scheduler and Mooring.",
    )
    parser.add_argument(
        "--focus",
        default=r"\[sig-scheduling\]",
        help="run cases whose name matches this (a Go regular expression); default: all",
    )
    parser.add_argument("--write", action="store_true", help=f"update {DOCUMENT.name} too")
    return parser


def _run(focus: str) -> dict[str, dict[str, Result]]:
    """Return the results by scheduler; both run at the same time, each on its own server."""
    progress = Progress()
    ensure_built(progress)
    program = ensure_built(progress, MODULE) / next(iter(MODULE.programs))
    folder = cache_root() / "kubernetes-e2e" / "last"
    shutil.rmtree(folder, ignore_errors=True)
    folders: dict[str, Path] = {name: folder / name for name in (KUBE_SCHEDULER, MOORING)}
    progress.begin(f"cases: running against both, about 10 minutes; logs: {folder}")
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(running_cases(name, program, path, focus))
            for name, path in folders.items()
        ]
        for cases in programs:
            while cases.wait(1.0) is None:
                progress.tick()
    progress.end()
    return {name: read_junit(path) for name, path in folders.items()}


if __name__ == "__main__":
    sys.exit(main())
