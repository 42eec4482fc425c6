"""Tests that each command has a manual page with the texts of its help."""

import subprocess
import sys
from pathlib import Path

import click

from mooring.__main__ import main
from website.manual import manual_pages


def test_every_command_and_subcommand_has_a_page() -> None:
    pages = manual_pages()
    for name in main.list_commands(click.Context(main)):
        assert f"mooring-{name}" in pages
    title, page = pages["mooring-profile-check"]
    assert title.startswith("Check")
    assert "## SYNOPSIS\n\n```\nmooring profile check [OPTIONS] PATH...\n```\n" in page
    assert "`--kubeconfig PATH`\n: Path of the kubeconfig." in pages["mooring-explain"][1]
    assert "mooring-profile(1)" in page
    assert "mooring-explain(1)" in pages["mooring"][1]


def test_what_markdown_would_read_as_its_own_is_escaped() -> None:
    assert "\\[" in manual_pages()["mooring-simulate"][1]


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "website", "--manual", f"--out={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "man" / "mooring-explain.1").read_text()
    assert "mooring-explain \\- Explain why" in page
    assert "podgroup/train" in page
