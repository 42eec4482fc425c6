"""The hook commit-msg checks the form that CONTRIBUTING.md requires, with or without pre-commit."""

import subprocess
from pathlib import Path

import pytest
import yaml

from commit_message import mistake

ROOT = Path(__file__).parents[1]
HOOK = ROOT / "tests" / "commit_message.py"
GOOD = "queue: retry a pod when its PVC is bound\n\nIt waited for five minutes.\n"


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        "make near: pass when nothing has changed\n\nIt failed then.",
        "plugins, queue: say who does what\n\nTwo parts may change in one idea.",
        "policy/rules: bring back the limit\n\nRules need it.\n# Please enter the message\n",
        "docs: say it shorter\n\nWhy.\n# ------------------------ >8 ----------\ndiff --git a b\n",
        "Merge branch 'h/queue'\n",
        'Revert "queue: retry a pod"\n',
        "fixup! queue: retry a pod\n",
    ],
)
def test_messages_in_the_form_pass(message: str) -> None:
    assert mistake(message) is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", "part: verb"),
        ("A pod is retried\n\nWhy.", "part: verb"),
        ("queue: Retry a pod\n\nWhy.", "part: verb"),
        ("queue: retry a pod.\n\nWhy.", "part: verb"),
        ("queue: retries a pod\n\nWhy.", "imperative"),
        ("queue: retried a pod\n\nWhy.", "imperative"),
        ("queue: retrying pods\n\nWhy.", "imperative"),
        ("queue: a pod is retried\n\nWhy.", "imperative"),
        (f"queue: retry {'x' * 60}\n\nWhy.", "shorten the subject by 1 characters, to 72"),
        ("queue: retry a pod\n", "say why"),
        ("queue: retry a pod\n\n# Please enter the message\n", "say why"),
        ("queue: retry a pod\nWhy.\n", "leave an empty line"),
    ],
)
def test_other_messages_are_refused_with_what_to_write(message: str, told: str) -> None:
    assert told in (mistake(message) or "")


def _commit(repository: Path, message: str) -> "subprocess.CompletedProcess[str]":
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, "commit", "--allow-empty", "--message", message],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )


def test_git_makes_no_commit_whose_message_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".git" / "hooks").mkdir(exist_ok=True)
    (tmp_path / ".git" / "hooks" / "commit-msg").symlink_to(HOOK)
    refused = _commit(tmp_path, "A pod is retried")
    assert refused.returncode != 0
    assert refused.stderr.startswith("error: write the subject as `part: verb ...`")
    assert _commit(tmp_path, GOOD).returncode == 0


def test_pre_commit_runs_the_same_hook() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert config["default_install_hook_types"] == ["commit-msg"]
    [hook] = config["repos"][0]["hooks"]
    assert (ROOT / hook["entry"], hook["stages"]) == (HOOK, ["commit-msg"])
