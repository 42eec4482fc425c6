import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from cli.running import kubeconfig_of
from kube.api_server import ApiServer, Objects, Request
from mooring.__main__ import main
from mooring.cli import name_lookup as names

NAMES = {
    "/api/v1/namespaces/default/pods": ["web-2", "web-1", "db-0"],
    "/api/v1/namespaces/shop/pods": ["cart-1"],
    "/api/v1/namespaces": ["shop", "shipping"],
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups": ["train"],
    "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles": ["packed", "spread"],
}


def item(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": "1"}}


class Shell:
    """Completes words as a shell does, in a thread, so that the event loop can serve the API."""

    def __init__(self, url: str, folder: Path) -> None:
        self._option = f"--kubeconfig={kubeconfig_of(folder, url)}"

    async def completed(self, command: str, *words: str) -> list[str]:
        """Return the completions of the last word."""
        shell = ShellComplete(main, {}, "mooring", "_MOORING_COMPLETE")
        *before, begun = words
        args = [*command.split(), self._option, *before]
        found = await asyncio.to_thread(shell.get_completions, args, begun)
        return [item.value for item in found]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(
        Objects({path: [*map(item, found)] for path, found in NAMES.items()})
    ) as serving:
        yield serving


@pytest.fixture
def shell(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(names, "_SECONDS", 60.0)
    return Shell(server.url, tmp_path)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("explain", ""), ["db-0", "web-1", "web-2"]),
        (("explain", "w"), ["web-1", "web-2"]),
        (("explain", "pod/d"), ["pod/db-0"]),
        (("explain", "podgroup/"), ["podgroup/train"]),
        (("explain", "shop/"), ["shop/cart-1"]),
        (("explain", "-n", "shop", "c"), ["cart-1"]),
        (("explain", "-n", "shi"), ["shipping"]),
        (("shadow report", "-n", "sho"), ["shop"]),
        (("shadow report", "--profile", "s"), ["spread"]),
        (("simulate", "--as", ""), ["packed", "spread"]),
    ],
    ids=str,
)
async def test_names_are_completed_from_the_cluster(
    shell: Shell, words: tuple[str, ...], completed: list[str]
) -> None:
    assert await shell.completed(*words) == completed


async def test_what_room_is_made_for_is_completed_with_its_type(shell: Shell) -> None:
    assert await shell.completed("rebalance", "--for", "p") == ["pod/", "podgroup/"]
    assert await shell.completed("rebalance", "--for", "pod/web") == ["pod/web-1", "pod/web-2"]
    assert await shell.completed("rebalance", "-n", "shop", "--for", "pod/") == ["pod/cart-1"]
    assert await shell.completed("rebalance", "--for", "podgroup/t") == ["podgroup/train"]
    assert await shell.completed("rebalance", "--for", "shop/c") == []
    assert await shell.completed("rebalance", "--as", "p") == ["packed"]
    assert await shell.completed("rebalance", "--goal", "P") == ["Pack"]


async def test_kinds_are_completed_where_a_name_begins_like_one(shell: Shell) -> None:
    assert await shell.completed("explain", "podg") == ["podgroup/"]


async def test_only_metadata_is_asked_for_page_by_page(server: ApiServer, shell: Shell) -> None:
    await shell.completed("explain", "web")
    (request,) = server.seen
    assert request.query == {"limit": "500"}
    assert "PartialObjectMetadataList" in request.headers["Accept"]


async def test_of_very_many_names_the_first_are_looked_through(tmp_path: Path) -> None:
    def endless(request: Request) -> None:
        items = [item(f"web-{number}") for number in range(500)]
        request.reply({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": items})

    async with ApiServer(endless) as server:
        assert await Shell(server.url, tmp_path).completed("explain", "web-499") == ["web-499"]
        assert len(server.seen) == 10


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_a_server_that_refuses_completes_nothing(tmp_path: Path, status: int) -> None:
    async with ApiServer(Objects(refused={"": (status, "no")})) as server:
        assert await Shell(server.url, tmp_path).completed("explain", "web") == []


async def test_a_server_without_an_answer_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, and nobody reads
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert await Shell(url, tmp_path).completed("explain", "web") == []


async def test_without_a_usable_kubeconfig_nothing_is_completed(tmp_path: Path) -> None:
    shell = ShellComplete(main, {}, "mooring", "_MOORING_COMPLETE")
    args = ["explain", f"--kubeconfig={tmp_path / 'none'}"]
    assert await asyncio.to_thread(shell.get_completions, args, "w") == []
