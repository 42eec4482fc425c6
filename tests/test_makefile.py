import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _make(tmp_path: Path, python: Path) -> "subprocess.CompletedProcess[str]":
    """Run `make venv` with another Python, in a folder with only the files that it reads."""
    for file in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / file, tmp_path)
    return subprocess.run(
        ["make", "venv", f"PYTHON={python}"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def _python(path: Path, *, refuses: str) -> Path:
    """Return a fake Python that fails if its arguments contain the word `refuses`."""
    path.write_text(f'#!/bin/sh\ncase "$*" in *{refuses}*) exit 1;; esac\n')
    path.chmod(0o755)
    return path


def test_a_python_that_is_too_old_is_told_in_one_line(tmp_path: Path) -> None:
    made = _make(tmp_path, _python(tmp_path / "python", refuses="version_info"))
    assert made.returncode != 0
    assert "error: Mooring needs Python 3.11 or newer" in made.stderr


def test_a_python_without_venv_is_told_in_one_line_with_the_cure(tmp_path: Path) -> None:
    made = _make(tmp_path, _python(tmp_path / "python", refuses="ensurepip"))
    assert made.returncode != 0
    assert "has no venv or ensurepip; on Debian and Ubuntu: apt install python3-venv" in made.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_command_is_there_once_the_packages_are_and_runs_the_sources(tmp_path: Path) -> None:
    """Neither target installs the packages again, because only the command is missing."""
    for file in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / file, tmp_path)
    digest = subprocess.check_output(["cksum"], input=(ROOT / "requirements.lock").read_bytes())
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / ".venv" / f"installed-{digest.split()[0].decode()}").touch()
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    for target in ("venv", "runtime"):
        # Within another make it would say which folder it works in.
        command = ["make", "--no-print-directory", target]
        assert subprocess.check_output(command, cwd=tmp_path, text=True) == ""
        said = subprocess.check_output([folder / "mooring", "explain", "a b"], text=True)
        assert said == "-m mooring explain a b\n"
        (folder / "mooring").unlink()


def test_help_lists_every_target(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    listed = subprocess.check_output(["make", "help"], cwd=tmp_path, text=True)
    for target in (
        "venv",
        "controlplane",
        "tools",
        "browser",
        "demo",
        "near",
        "unit",
        "deep",
        "test",
        "check",
        "site",
        "audit",
        "sbom",
        "container",
        "chart",
        "release",
        "image",
        "bench",
        "conformance",
        "kueue",
        "soak",
        "lock",
        "clean",
    ):
        assert f"make {target} " in listed


def test_a_suite_of_the_bench_is_chosen_by_name(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    dry = ["make", "--no-print-directory", "--dry-run", f"PYTHON={sys.executable}", "bench"]
    for words, ran in (
        (["BENCH=basic"], "-m bench basic"),
        (["SUITE=scheduler_perf", "BENCH=--quick"], "-m bench.scheduler_perf --quick"),
    ):
        said = subprocess.check_output([*dry, *words], cwd=tmp_path, text=True)
        assert said.splitlines()[-1].endswith(ran)


def test_unit_reads_only_folders_of_tests_that_mirror_a_package() -> None:
    command = ["make", "--no-print-directory", "--dry-run", f"PYTHON={sys.executable}", "unit"]
    words = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()[-1].split()
    assert {"--ignore=tests/simulation", "--ignore=tests/e2e"} <= set(words)
    assert "--ignore=tests/engine" not in words


def bare(folder: Path) -> dict[str, str]:
    """Put the Makefile into the folder; return an environment with only the simplest tools."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements.lock").touch()
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "awk", "cksum", "cut", "id"):
        (tools / name).symlink_to(shutil.which(name) or "/nowhere")
    return {"PATH": str(tools)}


def test_without_a_browser_and_apt_there_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    environment = bare(tmp_path)
    made = subprocess.run(
        [shutil.which("make") or "make", "browser"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    first, *_ = made.stderr.splitlines()
    assert first == (
        "error: the tests of the page need chromium: apt install chromium, "
        "or make test CHROMIUM=PATH"
    )


def test_a_browser_that_is_named_is_taken(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    subprocess.check_call(["make", "browser", "CHROMIUM=/my/chromium"], cwd=tmp_path)


def test_an_image_is_built_on_a_base_named_by_digest_or_not_at_all(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    made = subprocess.run(
        ["make", "image", "BASE=python:3.11-slim"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    assert "error: name the base by its digest: make image BASE=python@sha256:..." in made.stderr


def test_without_root_or_the_programs_the_image_is_left_out_with_one_line(tmp_path: Path) -> None:
    environment = bare(tmp_path)
    make = shutil.which("make") or "make"

    def printed(*words: str) -> str:
        return subprocess.check_output([make, *words], cwd=tmp_path, env=environment, text=True)

    line = "the image is neither built nor run: that needs root and buildah mmdebstrap runc"
    assert printed("container").splitlines() == [line]
    assert printed("--dry-run", "test").splitlines()[-1].endswith(" -m 'not image'")


def test_where_the_programs_are_the_image_is_tested_too(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.lock").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("id", "buildah", "mmdebstrap", "runc"):
        (tools / name).write_text("#!/bin/sh\necho 0\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    command = ["make", "--dry-run", f"PYTHON={sys.executable}", "test"]
    planned = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert "not image" not in planned.splitlines()[-1]


def _image(folder: Path, tag: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `make image` with this tag for a commit of version 1.2.3, with a fake docker."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements.lock").touch()
    source = folder / "operator/mooring/__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('__version__ = "1.2.3"\n')
    docker = folder / "tools/docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\necho "$@"\n')
    docker.chmod(0o755)
    ann = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    for command in (
        ("init", "-q"),
        (*ann, "commit", "-q", "--allow-empty", "-m", "first"),
        ("tag", tag),
    ):
        subprocess.check_call(["git", *command], cwd=folder)
    return subprocess.run(
        ["make", "image", "BASE=python@sha256:0", *words],
        cwd=folder,
        env={"PATH": f"{docker.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_image_is_built_of_a_commit_whose_tag_is_another_version(tmp_path: Path) -> None:
    made = _image(tmp_path, "v1.2.4")
    assert made.returncode != 0
    first, *_ = made.stderr.splitlines()
    assert first.startswith("error: the tag v1.2.4 is not this commit's version, v1.2.3;")
    assert "buildx" not in made.stdout


def test_an_image_has_its_version_and_is_made_of_the_lock_that_is_named(tmp_path: Path) -> None:
    made = _image(tmp_path, "v1.2.3", "LOCK=requirements-run-otlp.lock")
    assert made.returncode == 0
    assert "--tag mooring:1.2.3" in made.stdout
    assert "--build-arg LOCK=requirements-run-otlp.lock" in made.stdout
