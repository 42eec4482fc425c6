import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mooring.__main__ import main

COMMANDS = main.list_commands(click.Context(main))


def mooring(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mooring", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_a_first_sentence_of_its_own(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"Usage: main {command}" in result.output


@pytest.mark.parametrize("command", ["run", "simulate", "explain", "convert", "crds"])
def test_help_shows_examples(command: str) -> None:
    assert f"  mooring {command}" in CliRunner().invoke(main, [command, "--help"]).output


def test_the_list_of_commands_shows_the_help_text_of_each() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert "simulate  Schedule the pods of manifests without a cluster." in output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["simulat"])
    assert result.exit_code == 2
    assert "No such command 'simulat'" in result.output


def test_the_module_runs_as_a_program() -> None:
    done = mooring("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mooring ")


def test_a_command_does_not_pay_for_what_it_does_not_use() -> None:
    program = (
        "import sys; from mooring.__main__ import main;"
        "main(['version'], standalone_mode=False);"
        "print({'kopf', 'aiohttp'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "set()"
