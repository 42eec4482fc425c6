"""The command `mooring plugin new` writes a working package, or prints an error in one line."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mooring.cli.plugin import plugin

SOURCE = Path(__file__).parents[2] / "operator"
FORMS = {"columns": (), "per-node": ("--per-node",)}


def new(*words: str) -> Result:
    return CliRunner().invoke(plugin, ["new", *words])


def install(package: Path) -> None:
    """Write the package's metadata as pip does, so that Python finds its entry points."""
    with (package / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    info = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header)
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def run(package: Path, *words: str) -> None:
    """Run a Python module in the package's directory; fail if it exits with an error."""
    command = [sys.executable, "-m", *words]
    paths = {"PYTHONPATH": f"{SOURCE}:{package}", "MYPYPATH": str(SOURCE)}
    done = subprocess.run(
        command, cwd=package, env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_the_test_of_a_new_package_passes(form: str, tmp_path: Path) -> None:
    assert new("RackAware", "--out", str(tmp_path), *FORMS[form]).exit_code == 0
    install(tmp_path / "rack-aware")
    run(tmp_path / "rack-aware", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.deep
def test_new_packages_are_formatted_and_pass_ruff_and_mypy(tmp_path: Path) -> None:
    for name, words in FORMS.items():
        out = tmp_path / name
        new("RackAware", "--out", str(out), *words)
        run(out / "rack-aware", "ruff", "check", "--no-cache")
        run(out / "rack-aware", "ruff", "format", "--check", "--no-cache")
        run(out / "rack-aware", "mypy", "--cache-dir", str(tmp_path / "cache"), ".")


def test_what_was_written_is_listed_with_the_command_that_tests_it(tmp_path: Path) -> None:
    result = new("GPUPool2", "--out", str(tmp_path))
    target = tmp_path / "gpu-pool2"
    written = [str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()]
    first, *files, last = result.stdout.splitlines()
    assert first == f"{target}: the package of the plugin GPUPool2"
    assert sorted(file.strip() for file in files) == sorted(written)
    assert last == f"test it: pip install -e '{target}[test]' && pytest {target}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("rack-aware", "'rack-aware' cannot be the name of a plugin: it must be 2 to 53 letters"),
        ("rackAware", "'rackAware' cannot be the name of a plugin"),
        ("Rack\nAware", "'Rack\\nAware' cannot be the name of a plugin"),
        ("R" * 54, f"'{'R' * 54}' cannot be the name of a plugin"),
        ("Änderung", "'Änderung' cannot be the name of a plugin"),
        ("NodeName", "there is a plugin NodeName already; choose another name"),
        ("None", "None means something else in the plugin's code; choose another name"),
        ("ValueError", "ValueError means something else in the plugin's code"),
        ("NodeView", "NodeView means something else in the plugin's code"),
        ("Class", "Class would be the module class, which exists; choose another name"),
        ("Json", "Json would be the module json, which exists; choose another name"),
        ("Numpy", "Numpy would be the module numpy, which exists; choose another name"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_line(name: str, problem: str, tmp_path: Path) -> None:
    result = new(name, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {problem}")
    assert len(result.stderr.splitlines()) == 1
    assert [*tmp_path.iterdir()] == []


def test_what_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "rack-aware").mkdir()
    result = new("RackAware", "--out", str(tmp_path))
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path}/rack-aware exists; choose another --out, or another name\n",
    )
    assert [*(tmp_path / "rack-aware").iterdir()] == []


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = new("RackAware", "--out", str(tmp_path / "file"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "cannot be written: Not a directory" in result.stderr
