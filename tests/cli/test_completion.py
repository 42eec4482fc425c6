import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mooring.__main__ import main
from mooring.cli.completion import for_kubectl


def completed(*words: str) -> list[str]:
    """Return bash's completions of the last word, each as a line with its type and value."""
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


def completed_by_kubectl(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> list[str]:
    """Return the completions that kubectl gets for the words after `kubectl mooring`."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-mooring", *words])
    for_kubectl()
    return capsys.readouterr().out.splitlines()


def test_kubectl_completes_its_plugin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*words: str) -> list[str]:
        return completed_by_kubectl(capsys, monkeypatch, *words)

    assert lines("expl")[0].startswith("explain\tExplain why a pod runs")
    assert lines("expl")[1:] == [":4"]
    assert lines("profile", "check", "-o", "g") == ["github", ":4"]
    assert lines("convert", "Cl") == ["ClusterAutoscalerProvider", ":0"]
    assert "simulate" in "\n".join(lines())


def test_the_contexts_of_all_files_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, context in (("one", "prod-eu"), ("two", "prod-us"), ("three", "test")):
        (tmp_path / name).write_text(yaml.safe_dump({"contexts": [{"name": context}]}))
    (tmp_path / "broken").write_text("contexts: [{name: [}")
    files = (str(tmp_path / name) for name in ("one", "two", "three", "broken", "missing"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
    assert completed("explain", "--context", "prod") == ["plain,prod-eu", "plain,prod-us"]
    only = str(tmp_path / "three")
    assert completed("explain", "--kubeconfig", only, "--context", "") == ["plain,test"]
