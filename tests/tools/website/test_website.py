"""Tests that the site has every page, that all links work, and that it names no other host."""

import os
import re
import subprocess
import sys
from pathlib import Path

from website.__main__ import ROOT, stage

_LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"(http[^\"]*)")


def built(root: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "website", f"--root={root}", f"--out={out}"]
    path = f"{ROOT / 'operator'}:{ROOT / 'tests'}:{ROOT / 'tests/tools'}"
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_directory_is_named_and_not_linked(tmp_path: Path) -> None:
    stage(ROOT, tmp_path / "site")
    rules = (tmp_path / "site" / "docs" / "rules.md").read_text()
    assert "(../manifests/examples/)" not in rules
    assert "(../manifests/examples/rules-packed-gpus.yaml)" in rules


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    done = built(ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    html = tmp_path / "html"
    pages = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    assert {"index.html", "docs/quickstart.html", "reference/command-line.html"} <= pages
    for path in html.rglob("*.html"):
        assert _LOADED.findall(path.read_text()) == [], path


def test_a_page_that_the_front_page_does_not_name_is_listed_last(tmp_path: Path) -> None:
    copy = tmp_path / "root"
    stage(ROOT, copy)
    (copy / "docs" / "anew.md").write_text("# A new page\n")
    stage(copy, tmp_path / "site")
    assert (tmp_path / "site" / "index.md").read_text().count("\ndocs/anew\n") == 1


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    copy = tmp_path / "root"
    stage(ROOT, copy)
    for page in (copy / "docs").rglob("*.md"):
        page.write_text("# A page\n")
    (copy / "docs" / "quickstart.md").write_text("# Quickstart\n\n[gone](nowhere.md)\n")
    done = built(copy, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
