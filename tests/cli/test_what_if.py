"""The command `mooring simulate --server`, with the endpoint that answers it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.running import Running, ask, serving
from mooring.cli.simulate import simulate
from mooring.testing.builders import node, pod
from new_manifests import GROUP, gang, text
from pages import page
from scheduler_states import put_profile, scheduler_state

CLUSTER = (node("a", cpu="4"), node("b", cpu="8"), pod("runs", cpu="1", node="a"))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    shared = scheduler_state(*CLUSTER)
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    put_profile(shared, "other")
    async with serving(tmp_path, page=page(shared)) as running:
        yield running


def written(folder: Path, manifests: str) -> str:
    path = folder / "new.yaml"
    path.write_text(manifests)
    return str(path)


def members(number: int, cpu: str) -> str:
    pods = (pod(f"m{i}", cpu=cpu, labels={GROUP: "train"}) for i in range(number))
    return text(gang("train", number), *pods)


async def test_the_running_scheduler_decides_about_the_pods_of_a_file(
    running: Running, tmp_path: Path
) -> None:
    result = await running.answer(simulate, written(tmp_path, text(pod("web", cpu="1"))))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "POD           NODE   SCORE   WHY",
        "default/web   b          -   one of 2 nodes that fit",
        "",
        "1 of 1 placed",
    ]


async def test_a_group_is_decided_as_one_and_told_what_would_help(
    running: Running, tmp_path: Path
) -> None:
    result = await running.answer(simulate, "-f", written(tmp_path, members(3, "4")))
    assert result.exit_code == 1
    assert "0 of 3 placed" in result.stdout
    assert "default/train:" in result.stdout
    assert "if each member requested at most 3 of cpu instead of 4" in result.stdout
    fits = await running.answer(simulate, written(tmp_path, members(3, "3")))
    assert fits.exit_code == 0
    assert "placed together with its pod group" in fits.stdout


async def test_json_is_the_endpoints_answer(running: Running, tmp_path: Path) -> None:
    file = written(tmp_path, text(pod("web", cpu="1")))
    result = await running.answer(simulate, file, "--as=other", "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision == {
        "profile": "other",
        "fits": True,
        "message": None,
        "cause": None,
        "feasible": 2,
        "victims": [],
        "pods": [{"pod": "default/web", "node": "b"}],
    }


async def test_objects_that_no_decision_reads_are_not_sent(
    running: Running, tmp_path: Path
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}}
    result = await running.answer(simulate, written(tmp_path, text(secret, pod("web", cpu="1"))))
    assert "ignored objects of kinds that no decision reads: Secret (1)" in result.stderr
    assert "1 of 1 placed" in result.stdout
    alone = await running.answer(simulate, written(tmp_path, text(secret)))
    assert alone.exit_code == 2
    assert "there is no object that makes pods in " in alone.stderr


async def test_mistakes_in_a_file_are_told_one_per_line(running: Running, tmp_path: Path) -> None:
    manifests = text(pod("web"), pod("db")).replace("containers", "container")
    result = await running.answer(simulate, written(tmp_path, manifests))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("error: ") for line in lines)
    assert 'Pod default/db spec.container: unknown field "container"' in lines[2]


async def test_a_user_without_the_right_is_told_which_it_is(
    running: Running, tmp_path: Path
) -> None:
    file = written(tmp_path, text(pod("web")))
    result = await running.answer(simulate, file, user="bob")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert 'cannot post path "/api/v1/what-if"' in line


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ((), "--server needs FILEs"),
        (("deployment/web",), "--server needs FILEs"),
        (("--all-pods", "x.yaml"), "--all-pods goes without --server"),
        (("-n", "shop", "x.yaml"), "--namespace goes without --server"),
    ],
)
async def test_the_scheduler_decides_about_files_alone(
    words: tuple[str, ...], mistake: str
) -> None:
    result = await ask(simulate, *words, "--server")
    assert result.exit_code == 2
    assert mistake in result.stderr


async def test_a_variable_alone_does_not_ask_the_scheduler(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_SERVER", running.url)
    alone = await ask(simulate, written(tmp_path, text(pod("web"))))
    assert "no nodes available" in alone.stdout
    words = (f"--certificate-authority={running.ca}", f"--kubeconfig={running.kubeconfig()}")
    asked = await ask(simulate, written(tmp_path, text(pod("web"))), *words, "--server")
    assert "default/web   b" in asked.stdout
