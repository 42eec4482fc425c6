"""The session in docs/quickstart.md: runs the page's console commands after the demo.

`python -m demo.session` writes their output into the page. `python -m demo.session --after 11` runs
them eleven minutes after the demo and reports different output: a scheduler begins some of its work
only after minutes.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from rich.console import Console

import replica
from controlplane.build import SERVER_PROGRAMS, programs_folder
from demo.stage import OwnStage, temporary_stage
from demo.story import tell
from demo.views import Narrator

PAGE = replica.ROOT / "docs" / "quickstart.md"
COLUMNS = "100"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Run the session; write its output into the page, or compare the output with the page."""
    parser = argparse.ArgumentParser(prog="python -m demo.session")
    parser.add_argument("--after", type=float, metavar="MINUTES", help="compare, so much later")
    after = parser.parse_args().after
    if after is not None:
        wrong = list(differences(PAGE.read_text(), after * 60))
        print("\n".join(wrong) or f"all commands print what {PAGE.name} says")  # noqa: T201 - it is the command's answer
        return bool(wrong)
    outputs = play(commands(PAGE.read_text()))

    def typed(block: re.Match[str]) -> str:
        lines = [line for line in block[1].splitlines() if line.startswith("$ ")]
        texts = [f"{line}\n{next(outputs)}" for line in lines]
        return "```console\n" + "".join(texts) + "```"

    PAGE.write_text(_BLOCK.sub(typed, PAGE.read_text()))
    return 0


def commands(text: str) -> list[str]:
    """Return the commands of the page's console blocks."""
    return [command for command, _ in _typed(text)]


def printed(text: str) -> list[str]:
    """Return the output of the commands in the page."""
    return [output for _, output in _typed(text)]


def differences(text: str, after: float = 0) -> Iterator[str]:
    """Yield each command with output that differs from the page, `after` seconds later."""
    typed = commands(text)
    assert len(typed) > 5
    for command, expected, found in zip(typed, printed(text), play(typed, after), strict=True):
        if _shape(found) != _shape(expected):
            yield f"$ {command}\n{found}"


def _shape(output: str) -> list[str]:
    """Return the words of each line, which are equal in every run, without numbers and times."""
    text = re.sub(r" +\w+ 0\b", "", output)  # phases that no group has any more
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+]\d\d:\d\d)", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)?(ms|s|m|h)(\d+s)?\b", "N", text)
    text = re.sub(r"\d+(\.\d+)?", "N", text).replace("attempts", "attempt")
    return sorted({" ".join(sorted(line.split())) for line in text.splitlines()})


def _typed(text: str) -> Iterator[tuple[str, str]]:
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def play(typed: list[str], after: float = 0) -> Iterator[str]:
    """Yield the output of each command, run one after the other when the demo has ended.

    The first command runs `after` seconds later.
    """
    folder = programs_folder(programs=SERVER_PROGRAMS)
    with temporary_stage(folder) as stage, open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no Path has it
        tell(stage, Narrator(Console(file=nowhere)))
        assert isinstance(stage, OwnStage)
        tools = stage.logs.parent / "tools"
        tools.mkdir()
        (tools / "kubectl").symlink_to(folder / "kubectl")
        mooring = tools / "mooring"
        mooring.write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
        mooring.chmod(0o755)
        environment = replica.environment()
        environment["PATH"] = f"{tools}:{environment['PATH']}"
        environment["KUBECONFIG"] = str(stage.access.admin_kubeconfig)
        environment["COLUMNS"] = COLUMNS
        if after:
            time.sleep(after)
        for command in typed:
            yield _run(command.replace(".venv/bin/mooring", str(mooring)), environment)


def _run(command: str, environment: dict[str, str]) -> str:
    """Return the standard output of the command; pass on its standard error."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=replica.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
