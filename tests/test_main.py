import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from mooring import __version__
from mooring.__main__ import main


def mooring(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mooring", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def printed(words: list[str], stdout: int, **environment: str) -> tuple[int, str]:
    """Run the program with this standard output; return its exit code and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "mooring", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def every_command() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, including groups and their subcommands."""
    context = click.Context(main)
    for name in main.list_commands(context):
        yield (name,)
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.commands)


@pytest.mark.parametrize("words", [(), *every_command()], ids=" ".join)
def test_every_command_has_help_that_fits_into_80_columns(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert result.output.startswith(" ".join(("Usage: main", *words)))
    assert max(len(line) for line in result.output.splitlines()) <= 80


@pytest.mark.parametrize("words", [*every_command()], ids=" ".join)
def test_help_shows_examples(words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(main, [*words, "--help"]).output
    _, _, examples = output.partition("Example")
    assert " ".join(("mooring", *words)) in examples


def test_the_list_of_commands_shows_the_help_text_of_each() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert re.search(r"simulate +Show where pods would run, and why", output)


@pytest.mark.parametrize("group", [(), ("profile",), ("plugin",)], ids=" ".join)
def test_the_list_of_commands_cuts_no_sentence(group: tuple[str, ...]) -> None:
    output = CliRunner().invoke(main, [*group, "--help"], terminal_width=80).output
    _, _, commands = output.partition("Commands:")
    assert "..." not in commands


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["bind"])
    assert result.exit_code == 2
    assert "No such command 'bind'.\n" in result.output


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["simulat"], "simulate"),
        (["profile", "chek"], "check"),
        (["simulate", "--extendres"], "--extenders"),
    ],
)
def test_a_misspelt_command_or_option_gets_a_suggestion(words: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.output
    assert "--help' for help." in result.output


def test_the_version_is_an_option_too() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"mooring {__version__}\n"


def test_the_module_runs_as_a_program() -> None:
    done = mooring("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mooring ")


SLOW = ("aiohttp", "kopf", "kubernetes_asyncio", "numpy", "pydantic")


@pytest.mark.parametrize(
    ("commands", "needed"),
    [
        (["--help", "run --help", "version"], ""),
        (["crds"], "numpy pydantic"),
        (["explain --help", "top --help", "ui --help"], "aiohttp"),
        (["simulate --help"], "aiohttp numpy pydantic"),
    ],
)
def test_a_command_does_not_pay_for_what_it_does_not_use(commands: list[str], needed: str) -> None:
    assert {*SLOW} & imported_by(*commands) == {*needed.split()}


def test_a_replica_asks_the_api_server_before_it_imports_what_it_will_need() -> None:
    assert {*SLOW} & modules_after("import mooring.run.service") == {"aiohttp"}


@pytest.mark.deep
def test_a_replica_in_a_pod_does_not_import_the_models_of_another_client(tmp_path: Path) -> None:
    """If the package is installed, kopf imports these models by itself."""
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    imported = modules_after(
        "import mooring.run.service, mooring.run.replica;"
        "from mooring.kube.config import _ServiceAccount as Account;"
        "from pathlib import Path;"
        "environ = {'KUBERNETES_SERVICE_HOST': 'a', 'KUBERNETES_SERVICE_PORT': '1'};"
        f"assert Account(Path({str(tmp_path)!r}), environ).read()"
    )
    assert {*SLOW} - imported == {"kubernetes_asyncio"}


def test_a_kubeconfig_is_read_without_the_models_of_its_library(tmp_path: Path) -> None:
    """A plugin that imports the library still gets the whole library."""
    named = {"name": "a", "cluster": {"server": "http://a"}, "user": {"token": "x"}}
    named["context"] = {"cluster": "a", "user": "a"}
    config = {"current-context": "a", "clusters": [named], "users": [named], "contexts": [named]}
    (tmp_path / "config").write_text(json.dumps(config))
    imported = modules_after(
        "import asyncio; from mooring.kube.config import load_connection as load;"
        f"assert asyncio.run(load({str(tmp_path / 'config')!r}, environ={{}})).url == 'http://a';"
        "models = sum('kubernetes_asyncio' in name for name in sys.modules);"
        "import kubernetes_asyncio.client; kubernetes_asyncio.client.V1Pod(); assert not models"
    )
    assert "kubernetes_asyncio.client.models" in imported


REPLICA = "import mooring.cli.run, mooring.run.service, mooring.run.replica"
LATE = (
    "cryptography",  # for a certificate of its own
    "google.protobuf",
    "kubernetes_asyncio",
    "mooring.cel.compiler",  # for classes of devices
    "mooring.cel.interpreter",  # and for rules
    "mooring.rebalancing.planner",
    "mooring.observe.traces",
    "mooring.page.trials",
    "mooring.plugins.rules.evaluation",
    "mooring.policy.imports",
    "mooring.policy.rules.rule_plan",
    "multiprocessing",  # for commands
    "re2",
)
"""What a replica imports only when a profile, an object, an option or a request needs it."""
OF_SIMULATE = {"manifests"}
"""The modules of `mooring.simulate` that the page reads requests with."""


@pytest.mark.deep
def test_a_replica_imports_late_what_only_some_replicas_need() -> None:
    imported = modules_after(REPLICA)
    assert [name for name in LATE if find_spec(name) is None] == []
    assert [name for name in LATE if name in imported] == []
    folder = "mooring.simulate."
    of_simulate = {name for name in imported if name.startswith(folder)}
    assert of_simulate == {folder + name for name in OF_SIMULATE}


CLUSTER = """
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf
from mooring.kube.api_resources import DEVICE_CLASS
from mooring.mirroring.mirror import Mirror
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod
from device_builders import device_claim, device_class, resource_slice
from relists import relisted
from scheduler_states import put_profile, scheduler_state
shared = scheduler_state(node("n"), resource_slice("s", ["d"], node="n"), device_claim())
pipeline = put_profile(shared).pipeline
what_if = WhatIf(ResultCache(shared.cluster))
claims = [{"name": "c", "resourceClaimName": "claim"}]
waiting = parse_pod(pod("web", spec={"resourceClaims": claims}))
selected = device_class("gpu", 'device.driver.startsWith("gpu")')
mirror = Mirror(shared.state)
"""
BY_LIST = "relisted(mirror, DEVICE_CLASS, [selected])"
BY_WATCH = 'mirror.apply(DEVICE_CLASS, "ADDED", selected)'
DECISION = "assert isinstance(what_if.decide(waiting, pipeline), ScheduleResult)"


@pytest.mark.deep
@pytest.mark.parametrize("seen", [BY_LIST, BY_WATCH], ids=["listed", "watched"])
def test_the_first_claim_that_a_leader_decides_about_waits_for_no_import(seen: str) -> None:
    """The mirror imports the modules when it shows a class of devices, before the replica leads."""
    assert modules_after(DECISION, f"{REPLICA}{CLUSTER}{seen}") == set()


def imported_by(*commands: str) -> set[str]:
    calls = (f"main({words.split()!r}, standalone_mode=False)" for words in commands)
    return modules_after("; ".join(("from mooring.__main__ import main", *calls)))


def modules_after(program: str, first: str = "") -> set[str]:
    """Return the names of the modules that `program` imports in addition to those of `first`."""
    lines = ("import sys", first, "b = {*sys.modules}", program, "print(*{*sys.modules} - b)")
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return {*done.stdout.splitlines()[-1].split()}


def test_the_list_of_commands_imports_none_of_them() -> None:
    imported = {name for name in imported_by("--help") if name.startswith("mooring.cli.")}
    assert imported == set()


def test_the_list_of_commands_has_the_first_sentence_of_each() -> None:
    context = click.Context(main)
    found = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert re.search(rf"{name} +{re.escape(command.get_short_help_str(80))}\n", found), name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_disk_that_is_full_is_one_line_and_the_exit_code_is_2() -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = printed(["crds"], full.fileno())
    assert code == 2
    assert said == "error: the answer cannot be written: no space left on device\n"


def test_characters_that_an_encoding_does_not_have_are_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        words = ["convert", "DefaultProvider", "--scheduler-name", "\u8abf"]
        code, said = printed(words, out.fileno(), PYTHONIOENCODING="latin-1")
    assert (code, said) == (0, "")
    assert b"\\u8abf" in (tmp_path / "out").read_bytes()


def test_a_command_is_completed_with_its_help() -> None:
    found = ShellComplete(main, {}, "mooring", "_MOORING_COMPLETE").get_completions([], "s")
    assert [(item.value, item.help) for item in found] == [
        ("simulate", "Show where pods would run, and why, without changing anything."),
        ("status", "Show whether Mooring is installed and works, and what is wrong."),
        ("shadow", "Compare profiles in mode Shadow with what was bound."),
    ]
