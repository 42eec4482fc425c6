"""The command `python -m website`."""

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from sphinx.cmd.build import build_main

from website.gallery import gallery
from website.manual import build_manual
from website.reference import command_line, custom_resources, with_settings

ROOT: Final = Path(__file__).parents[3]
HERE: Final = Path(__file__).parent
_LINK: Final = re.compile(r"\[([^]]*)\]\(([^)#:\s]+)\)")

_MORE: Final = """```{{toctree}}
:caption: More
:maxdepth: 1

{}
```
"""
_RECORDS: Final = """# Decisions

Choices that cannot be taken back easily, each with its reasons.

```{toctree}
:glob:
:maxdepth: 1

0*
```
"""


def stage(root: Path, folder: Path) -> None:
    """Copy all pages, and the files that they link to, into the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.py")
    for name in ("docs", "manifests", "crds"):
        shutil.copytree(root / name, folder / name, ignore=ignored)
    beside = (root / name for name in ("LICENSE", "Dockerfile", ".importlinter"))
    for path in (*root.glob("*.md"), *beside):
        shutil.copy(path, folder)
    (folder / "index.md").write_text(_index(folder))
    for path in folder.rglob("*.md"):
        path.write_text(_without_folders(path))
    (folder / "docs" / "adr" / "index.md").write_text(_RECORDS)
    reference = folder / "reference"
    reference.mkdir()
    (reference / "command-line.md").write_text(command_line())
    page, pictures = gallery(root)
    (reference / "gallery.md").write_text(page)
    (reference / "gallery").mkdir()
    for name, picture in pictures.items():
        (reference / "gallery" / name).write_text(picture)
    for name, page in custom_resources(root / "crds").items():
        (reference / f"{name}.md").write_text(page)


def _index(folder: Path) -> str:
    """Return the front page; pages without a line in it are listed at the end."""
    index = (HERE / "index.md").read_text()
    named = index.splitlines()
    pages = sorted(f"docs/{page.stem}" for page in (folder / "docs").glob("*.md"))
    more = "\n".join(page for page in pages if page not in named)
    return f"{index}\n{_MORE.format(more)}" if more else index


def _without_folders(page: Path) -> str:
    """Return the page's text without links to folders, because a site shows no folders."""

    def shown(link: re.Match[str]) -> str:
        return link[1] if (page.parent / link[2]).is_dir() else link[0]

    return _LINK.sub(shown, page.read_text())


def build(root: Path, folder: Path) -> int:
    """Build the site of a repository into `html` in the folder; return 0 if all links are right."""
    source, html = folder / "source", folder / "html"
    stage(root, source)
    shutil.rmtree(html, ignore_errors=True)
    strict = ["--quiet", "--fail-on-warning", "--keep-going", "--nitpicky"]
    caches = ["-d", str(folder / "doctrees")]
    return build_main([*strict, *caches, "-c", str(HERE), "-b", "html", str(source), str(html)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m website", description="Build the site.")
    parser.add_argument("--root", type=Path, default=ROOT, help="default: this repository")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "website")
    parser.add_argument("--manual", action="store_true", help="build the manual pages instead")
    parser.add_argument("--settings", action="store_true", help="write docs/settings.md anew")
    chosen = parser.parse_args()
    if chosen.settings:
        settings = chosen.root / "docs" / "settings.md"
        sys.exit(settings.write_text(with_settings(settings.read_text())) == 0)
    sys.exit(build_manual(chosen.out) if chosen.manual else build(chosen.root, chosen.out))
