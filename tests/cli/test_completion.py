import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mooring.__main__ import main


def completed(*words: str) -> list[str]:
    """Return what bash is told for the last of the words: a type and a value per line."""
    environment = {"COMP_WORDS": " ".join(("mooring", *words)), "COMP_CWORD": str(len(words))}
    result = CliRunner().invoke(
        main, prog_name="mooring", env={"_MOORING_COMPLETE": "bash_complete", **environment}
    )
    return result.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_calls_the_program(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    assert f"_MOORING_COMPLETE={shell}_complete" in script.stdout.replace("env ", "")


def test_another_shell_is_a_usage_error_that_names_the_known_ones() -> None:
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output


def test_commands_options_and_their_values_are_completed() -> None:
    assert completed("sim") == ["plain,simulate"]
    assert completed("profile", "ch") == ["plain,check"]
    assert completed("profile", "check", "--outp") == ["plain,--output"]
    assert completed("profile", "check", "-o", "g") == ["plain,github"]


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "clu"),
        ("simulate", "--profile", "clu"),
        ("gpus", "clu"),
        ("profile", "check", "clu"),
        ("profile", "diff", "a", "clu"),
        ("convert", "clu"),
        ("explain", "--kubeconfig", "clu"),
        ("run", "--tls-cert-file", "clu"),
    ],
    ids=" ".join,
)
def test_where_a_file_is_wanted_the_shell_completes_files(words: tuple[str, ...]) -> None:
    assert completed(*words)[-1] == "file,clu"


def test_convert_completes_the_providers() -> None:
    assert completed("convert", "Cl") == ["plain,ClusterAutoscalerProvider", "file,Cl"]


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "mooring"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mooring "$@"\n')
    program.chmod(0o755)
    script = """
        source <(mooring completion bash)
        COMP_WORDS=(mooring profile che) COMP_CWORD=2
        _mooring_completion mooring che profile
        echo "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["check"]
