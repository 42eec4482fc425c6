import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from mooring.cli.explain import explain
from mooring.framework.decision import Decision, NodeScore, Rejection
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog

NO_ROOM = Rejection("NodeResourcesFit", ("Insufficient cpu",), resolvable=True)
PLACED = Decision(
    pod="team-a/web",
    profile="mine",
    node="n1",
    nominated_node=None,
    victims=(),
    scores={"n1": NodeScore({"A": 3, "B": 4}, 7), "n2": NodeScore({"A": 1}, 1)},
    rejections={},
    message=None,
)
REFUSED = Decision(
    pod="team-a/large",
    profile="mine",
    node=None,
    nominated_node="n1",
    victims=("team-a/x",),
    scores=None,
    rejections=dict.fromkeys(("n1", "n2", "n3", "n4"), NO_ROOM),
    message="0/4 nodes are available: 4 Insufficient cpu.",
)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The endpoints of a scheduler that remembers two decisions."""
    decisions = DecisionLog(nodes=3)
    decisions.add(PLACED, time=0.0)
    decisions.add(REFUSED, time=0.0)
    endpoints = Endpoints(
        live={}, ready={}, metrics=Metrics(), decisions=decisions, configuration=dict
    )
    port = await endpoints.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await endpoints.stop()


async def ask(*words: str) -> Result:
    """The command beside the event loop on which the endpoints answer."""
    return await asyncio.to_thread(CliRunner().invoke, explain, list(words))


async def test_a_placed_pod_is_explained_by_the_scores(url: str) -> None:
    result = await ask("web", "-n", "team-a", "--url", url)
    assert result.exit_code == 0
    first, *table = result.stdout.strip().splitlines()
    assert first == "1970-01-01T00:00:00.000+00:00  team-a/web  on n1  (profile mine)"
    assert [line.split() for line in table] == [
        ["NODE", "TOTAL", "A", "B"],
        ["n1", "7", "3", "4"],
        ["n2", "1", "1", "-"],
    ]


async def test_an_unschedulable_pod_is_explained_by_message_victims_and_reasons(url: str) -> None:
    result = await ask("team-a/large", "--url", url)
    assert result.stdout.splitlines()[1:5] == [
        "  0/4 nodes are available: 4 Insufficient cpu.",
        "  will fit on n1 without team-a/x",
        "  n1, n2, n3: NodeResourcesFit: Insufficient cpu",
        "  (of 4 rejections these are the ones kept)",
    ]


async def test_json_is_passed_on(url: str) -> None:
    result = await ask("team-a/web", "--url", url, "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["node"] == "n1"


async def test_a_pod_without_recent_decisions_is_exit_code_1(url: str) -> None:
    result = await ask("other", "--url", url)
    assert result.exit_code == 1
    assert "no recent decision about pod default/other" in result.stderr


@pytest.mark.parametrize("name", ["a/b/c", "a/", "/b"])
async def test_a_name_that_cannot_be_a_pods_is_bad_input(name: str) -> None:
    result = await ask(name)
    assert result.exit_code == 2
    assert "write NAME or NAMESPACE/NAME" in result.stderr


async def test_an_address_that_is_no_web_address_is_bad_input() -> None:
    result = await ask("web", "--url", "file:///etc/passwd")
    assert result.exit_code == 2
    assert "must start with http:// or https://" in result.stderr


async def test_an_unreachable_url_is_one_line_that_says_what_to_do(unused_tcp_port: int) -> None:
    result = await ask("web", "--url", f"http://127.0.0.1:{unused_tcp_port}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "port-forward" in line


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_answer_from_another_server_is_one_line(status: int, unused_tcp_port: int) -> None:
    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="hello", status=status)

    app = web.Application()
    app.router.add_get("/debug/decisions", greet)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    result = await ask("web", "--url", f"http://127.0.0.1:{unused_tcp_port}")
    await runner.cleanup()
    assert result.exit_code == 2
    assert "is it Mooring?" in result.stderr
