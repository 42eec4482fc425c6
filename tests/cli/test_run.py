import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import click
import pytest
import yaml

from mooring.cli.run import run
from mooring.run.settings import RunSettings

OPTIONS = {option.name: option for option in run.params if isinstance(option, click.Option)}


def settings(*words: str) -> RunSettings:
    """Return the settings that the command line gives, without starting the scheduler."""
    context = run.make_context("run", list(words))
    return RunSettings(**context.params)


def mooring_run(*words: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mooring", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("name", [field.name for field in fields(RunSettings)])
def test_every_setting_has_an_option_an_environment_variable_and_a_help_text(name: str) -> None:
    option = OPTIONS[name]
    assert f"--{name.replace('_', '-')}" in option.opts
    assert option.envvar == f"MOORING_{name.upper()}"
    assert option.help


def test_without_options_the_settings_are_the_defaults() -> None:
    assert settings() == RunSettings()


def test_options_set_the_settings() -> None:
    found = settings("--secure-port", "0", "--no-leader-elect", "--qps", "20", "--log-format=json")
    assert found == RunSettings(secure_port=0, leader_elect=False, qps=20.0, log_format="json")


def test_environment_variables_set_the_settings_and_options_override_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOORING_SECURE_PORT", "1234")
    monkeypatch.setenv("MOORING_LEADER_ELECT", "false")
    assert settings() == RunSettings(secure_port=1234, leader_elect=False)
    assert settings("--secure-port", "1").secure_port == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--secure-port", "70000"], "--secure-port"),
        (["--log-level", "loud"], "--log-level"),
        (["--qps", "0"], "--qps"),
        (["--qps", "inf"], "--qps"),
        (["--retry-period", "nan"], "--retry-period"),
        (["--stop-seconds", "inf"], "--stop-seconds"),
    ],
)
def test_a_value_out_of_range_is_a_usage_error(words: list[str], complaint: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        settings(*words)
    assert complaint in caught.value.format_message()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--burst", "5"], "--burst needs --qps"),
        (["--decision-log=/none/log"], "--decision-log: /none is no folder"),
        (["--decision-log=log", "--decision-record-mib=0"], "needs a --decision-record-mib over 0"),
        (["--otlp-endpoint=collector:4318"], '"collector:4318" is no URL such as http://'),
        (["--otlp-endpoint=http://:4318"], "is no URL"),
        (["--otlp-endpoint=http://collector:http"], "is no URL"),
        (["--otlp-endpoint=http://[::1"], "is no URL"),
        (["--otlp-endpoint=http://ann:secret@c"], "belong into OTEL_EXPORTER_OTLP_HEADERS"),
        (["--otlp-endpoint=http://ann:se/cret@c"], "belong into OTEL_EXPORTER_OTLP_HEADERS"),
        (["--otlp-endpoint=http://c?token=secret"], "belong into OTEL_EXPORTER_OTLP_HEADERS"),
        (["--otlp-endpoint=http://c", "--decision-record-mib=0"], "--decision-record-mib over 0"),
        (["--tls-cert-file", "a"], "--tls-cert-file and --tls-private-key-file need each other"),
        (["--tls-private-key-file", "a"], "need each other"),
        (["--authorization-always-allow-paths=/a, /b"], '" /b" must begin with /'),
        (["--authorization-always-allow-paths=healthz"], '"healthz" must begin with /'),
        (["--authorization-always-allow-paths=/a*b"], r'"/a\*b" may have \* at its end only'),
        (["--max-backoff", "0.5"], "--max-backoff must be at least --initial-backoff"),
        (["--renew-deadline", "15"], "--lease-duration must be longer than --renew-deadline"),
        (["--retry-period", "9"], "--renew-deadline must be over 1.2 times --retry-period"),
    ],
)
def test_values_that_contradict_each_other_are_a_usage_error(
    words: list[str], complaint: str
) -> None:
    context = run.make_context("run", words)
    with pytest.raises(click.UsageError, match=complaint):
        run.invoke(context)


def test_traces_without_their_packages_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mooring.observe.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    context = run.make_context("run", ["--otlp-endpoint=http://collector:4318"])
    with pytest.raises(click.UsageError, match=r"pip install '\.\[otlp\]'"):
        run.invoke(context)


@pytest.mark.parametrize(
    ("variable", "complaint"),
    [
        (
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT must be a non-neg",
        ),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-neg"),
        ("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "Failed to load resource detector 'x'"),
    ],
)
def test_a_malformed_variable_of_opentelemetry_is_a_usage_error(
    variable: str, complaint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, "x")
    context = run.make_context("run", ["--otlp-endpoint=http://collector:4318"])
    words = f"an OTEL_ variable in the environment is malformed: {complaint}"
    with pytest.raises(click.UsageError, match=words):
        run.invoke(context)
    assert caplog.records == []


def test_a_malformed_variable_that_opentelemetry_reads_first_is_one_line() -> None:
    done = mooring_run("--otlp-endpoint=http://collector:4318", env={"OTEL_PYTHON_CONTEXT": "x"})
    assert done.returncode == 2
    assert "is malformed: Failed to load context: x" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_without_a_cluster_one_line_says_what_to_do(tmp_path: Path) -> None:
    done = mooring_run("--kubeconfig", str(tmp_path / "none"), env={})
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "does not exist; correct KUBECONFIG or --kubeconfig" in done.stderr


def test_an_unreachable_server_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: a connection is refused
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        done = mooring_run(env={"KUBECONFIG": str(path)})
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert server in done.stderr
