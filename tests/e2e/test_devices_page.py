"""The example of docs/devices.md: each command prints the text that the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import replica
from controlplane import Access, ControlPlane
from controlplane.nodes import create_nodes
from e2e.replicas import Replicas, eventually

PAGE: Final = replica.ROOT / "docs" / "devices.md"
NODES: Final = 20
"""As many as the demo leaves running."""
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ONCE: Final = re.compile(r"kubectl (apply|patch|delete) ")
"""What changes the cluster is typed once; what shows it, until it shows what is on its way."""
VARIES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\S+"), "TIME"),
    (re.compile(r"\b(\d+m)?\d+s\b"), "AGE"),
    (re.compile(r"generation \d+"), "generation N"),
    (re.compile(r"Kubernetes 1\.\d+"), "Kubernetes 1.N"),
    (re.compile(r"no new claims to deallocate, "), ""),  # until 1.36
    (re.compile(r" from \S+ namespace"), ""),  # what a newer kubectl says
    (re.compile(r"^reading .*\n", re.MULTILINE), ""),  # what a busy machine shows meanwhile
    (re.compile(r" +"), " "),  # columns are as wide as the ages in them
)


def test_the_worked_example_prints_what_the_page_says(
    fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = fresh_control_plane(components={"kube-controller-manager", "kwok"})
    replica.apply_manifests(plane.access)
    create_nodes(plane.access, NODES)
    reader, typed = Reader(plane.access, tmp_path), 0
    with Replicas.of(plane.access, tmp_path) as replicas:
        replicas.start().wait_until_leads()
        for command, printed in example():
            reader.types(command, printed)
            typed += 1
    assert typed >= 10


def example() -> Iterator[tuple[str, str]]:
    """Yield each command of the example and what it prints; files are written by commands too."""
    text = PAGE.read_text()
    text = text[text.index("\n## Try it without a driver\n") :]
    names = iter(re.findall(r"`(\w+\.yaml)`", text))
    for language, block in FENCE.findall(text):
        if language == "yaml":
            yield f"cat > {next(names)} <<'EOF'\n{block}EOF", ""
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, printed = re.split(r"(?<!\\)\n", part, maxsplit=1)
            yield command, printed


class Reader:
    """Types commands in a folder that has the files of the page."""

    def __init__(self, access: Access, folder: Path) -> None:
        self._folder = folder / "reader"
        self._folder.mkdir()
        programs = self._folder / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(access.kubectl_program)
        mooring = programs / "mooring"
        mooring.write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
        mooring.chmod(0o755)
        self._environment = replica.environment() | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(access.admin_kubeconfig),
            "COLUMNS": "160",
        }

    def types(self, command: str, printed: str) -> None:
        """Run a command, and compare its output with the output on the page."""
        expected = _compared(printed)
        if ONCE.match(command) or not printed:
            assert self._output(command) == expected
            return
        eventually(
            lambda: self._output(command),
            lambda shown: shown == expected,
            f"{command}\n{expected}",
        )

    def _output(self, command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return _compared(done.stdout)


def _compared(text: str) -> str:
    """Return the text without the parts that differ between runs."""
    for pattern, constant in VARIES:
        text = pattern.sub(constant, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
