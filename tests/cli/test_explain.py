import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from certificates import Authority
from kube.api_server import ApiServer
from mooring.cli.explain import explain
from mooring.framework.decision import Decision, NodeScore, Rejection
from mooring.model.access import Attributes, User
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls

NO_FREE_CPU = Rejection("NodeResourcesFit", ("Insufficient cpu",), resolvable=True)
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
REJECTED = Decision(
    pod="team-a/large",
    profile="mine",
    node=None,
    nominated_node="n1",
    victims=("team-a/x",),
    scores=None,
    rejections=dict.fromkeys(("n1", "n2", "n3", "n4"), NO_FREE_CPU),
    message="0/4 nodes are available: 4 Insufficient cpu.",
)


AUTHORITY = Authority()


class Everything:
    """The API server lets the user "ann" do everything; a token is a user's name."""

    async def user_of(self, token: str) -> User | None:
        return User(token) if token.isalpha() else None

    async def allows(self, user: User, _: Attributes) -> bool:
        return user.name == "ann"


class Running:
    """The endpoints of a scheduler that remembers two decisions, and a user's kubeconfig."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(AUTHORITY.certificate)

    def kubeconfig(self, server: str = "http://127.0.0.1:1", user: str = "ann") -> str:
        path = self._folder / "kubeconfig"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": user}}],
        }
        path.write_text(yaml.safe_dump(config))
        return str(path)

    async def explain(self, *words: str, user: str = "ann") -> Result:
        """The command with --server and the CA, as the user."""
        return await ask(
            *words,
            f"--server={self.url}",
            f"--certificate-authority={self.ca}",
            f"--kubeconfig={self.kubeconfig(user=user)}",
        )


REPORTS: dict[str, dict[str, Any]] = {
    "team-a/large": {
        "state": "unschedulable",
        "profile": "mine",
        "attempts": 4,
        "pendingSeconds": 192.4,
        "plugins": ["NodeResourcesFit"],
        "suggestions": [
            {
                "change": "if it requested at most 3Gi of memory instead of 8Gi",
                "cause": "memory",
                "nodes": 4,
                "examples": ["n1", "n2", "n3"],
                "ended": [],
            },
            {
                "change": "when team-b/x on n7 ends",
                "cause": "pods that run",
                "nodes": 1,
                "examples": ["n7"],
                "ended": ["team-b/x"],
            },
        ],
    },
    "team-a/gated": {
        "state": "gated",
        "profile": "mine",
        "attempts": 0,
        "pendingSeconds": 3725.0,
        "plugins": ["SchedulingGates"],
    },
    "team-a/waiting": {
        "state": "waiting at Permit",
        "node": "n1",
        "profile": "mine",
        "attempts": 1,
        "pendingSeconds": 2.0,
        "plugins": [],
        "waitsFor": {"Gang": 61.0},
    },
    "team-a/queued": {
        "state": "active",
        "profile": "mine",
        "attempts": 1,
        "pendingSeconds": 2.0,
        "plugins": [],
        "ahead": 20,
    },
    "team-a/hopeless": {
        "state": "backoff",
        "profile": "mine",
        "attempts": 2,
        "pendingSeconds": 2.0,
        "backoffSeconds": 7.0,
        "plugins": ["NodeName"],
        "suggestions": [],
    },
    "team-a/bound": {"state": "bound", "node": "n1"},
}


async def pod_report(pod: str) -> Mapping[str, Any] | None:
    return REPORTS.get(pod)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    decisions = DecisionLog(nodes=3)
    decisions.add(PLACED, time=0.0)
    decisions.add(REJECTED, time=0.0)
    pair = AUTHORITY.server()
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    endpoints = Endpoints(
        live={},
        ready={},
        metrics=Metrics(),
        decisions=decisions,
        pod_report=pod_report,
        configuration=dict,
        tls=ServingTls(cert_file=str(tmp_path / "tls.crt"), key_file=str(tmp_path / "tls.key")),
        reviews=Everything(),
        always_allow_paths=(),
    )
    port = await endpoints.start("127.0.0.1", 0)
    yield Running(f"https://127.0.0.1:{port}", tmp_path)
    await endpoints.stop()


async def ask(*words: str) -> Result:
    """The command beside the event loop on which the endpoints answer."""
    return await asyncio.to_thread(CliRunner().invoke, explain, list(words))


async def test_a_placed_pod_is_explained_by_the_scores(running: Running) -> None:
    result = await running.explain("web", "-n", "team-a")
    assert result.exit_code == 0
    first, *table = result.stdout.strip().splitlines()
    assert first == "1970-01-01T00:00:00.000+00:00  team-a/web  on n1  (profile mine)"
    assert [line.split() for line in table] == [
        ["NODE", "TOTAL", "A", "B"],
        ["n1", "7", "3", "4"],
        ["n2", "1", "1", "-"],
    ]


async def test_an_unschedulable_pod_is_explained_by_message_victims_and_reasons(
    running: Running,
) -> None:
    result = await running.explain("team-a/large")
    assert result.stdout.splitlines()[6:10] == [
        "  0/4 nodes are available: 4 Insufficient cpu.",
        "  will fit on n1 without team-a/x",
        "  n1, n2, n3: NodeResourcesFit: Insufficient cpu",
        "  (of 4 rejections these are the ones kept)",
    ]


async def test_an_unschedulable_pod_is_explained_first_by_its_cause_and_what_would_help(
    running: Running,
) -> None:
    result = await running.explain("team-a/large")
    assert result.stdout.splitlines()[:5] == [
        "pod team-a/large: unschedulable, pending for 3m12s, 4 attempts",
        "  The cause: memory. It would fit",
        "  - on 4 nodes (n1, n2, n3, ...) if it requested at most 3Gi of memory instead of 8Gi",
        "  - when team-b/x on n7 ends",
        "",
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "gated",
            [
                "pod team-a/gated: gated, pending for 1h2m, 0 attempts",
                "  held back by SchedulingGates",
            ],
        ),
        (
            "waiting",
            [
                "pod team-a/waiting: waiting at Permit on n1, pending for 2s, 1 attempt",
                "  waits for plugin Gang, at most 1m1s more",
            ],
        ),
        (
            "queued",
            [
                (
                    "pod team-a/queued: in the active queue, pending for 2s, 1 attempt, "
                    "20 pods ahead of it"
                ),
            ],
        ),
        (
            "hopeless",
            [
                "pod team-a/hopeless: backing off, pending for 2s, 2 attempts, tried again in 7s",
                "  No one or two of the changes that were tried would make it fit.",
            ],
        ),
        ("bound", ["pod team-a/bound: bound on n1"]),
    ],
)
async def test_a_pod_without_decisions_is_explained_by_where_it_is(
    running: Running, name: str, lines: list[str]
) -> None:
    result = await running.explain(f"team-a/{name}")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [*lines, ""]


async def test_json_is_passed_on(running: Running) -> None:
    result = await running.explain("team-a/web", "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["node"] == "n1"


async def test_a_pod_without_recent_decisions_is_exit_code_1(running: Running) -> None:
    result = await running.explain("other")
    assert result.exit_code == 1
    assert "no recent decision about pod default/other" in result.stderr


async def test_a_pod_may_be_named_as_for_kubectl(running: Running) -> None:
    result = await running.explain("pod/web", "-n", "team-a")
    assert "team-a/web  on n1" in result.stdout
    other = await running.explain("deploy/web")
    assert "decisions are about pods: write pod/NAME" in other.stderr
    assert other.exit_code == 2


@pytest.mark.parametrize("name", ["a/b/c", "a/", "/b"])
async def test_a_name_that_cannot_be_a_pods_is_bad_input(name: str) -> None:
    result = await ask(name)
    assert result.exit_code == 2
    assert "write NAME, pod/NAME or NAMESPACE/NAME" in result.stderr


@pytest.mark.parametrize("server", ["file:///etc/passwd", "http://127.0.0.1:10251"])
async def test_credentials_are_sent_over_https_only(server: str, running: Running) -> None:
    running.url = server
    result = await running.explain("web")
    assert result.exit_code == 2
    assert "must start with https://" in result.stderr


@pytest.mark.parametrize("server", ["https://", "https://a:99999", "https://a:b", "https://[::"])
async def test_a_server_that_is_no_url_is_one_line_that_says_what_to_do(
    server: str, running: Running
) -> None:
    running.url = server
    result = await running.explain("web")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "--server" in line


async def test_credentials_are_not_sent_to_a_server_that_is_not_trusted(running: Running) -> None:
    words = ("team-a/web", f"--server={running.url}", f"--kubeconfig={running.kubeconfig()}")
    result = await ask(*words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "its certificate is not trusted" in line
    assert "--certificate-authority" in line
    skipped = await ask(*words, "--insecure-skip-tls-verify")
    assert skipped.exit_code == 0


async def test_a_name_that_the_certificate_does_not_have_is_not_trusted(running: Running) -> None:
    result = await running.explain("web", "--tls-server-name=mooring.example")
    assert result.exit_code == 2
    assert "its certificate is not trusted" in result.stderr


async def test_a_token_that_is_not_accepted_is_one_line(running: Running) -> None:
    result = await running.explain("team-a/web", user="an-expired-token")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the leading replica answers 401: "
        "Unauthorized: the API server does not accept the token\n"
    )


async def test_an_unreachable_server_is_one_line_that_says_what_to_do(
    running: Running, unused_tcp_port: int
) -> None:
    running.url = f"https://127.0.0.1:{unused_tcp_port}"
    result = await running.explain("web")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "correct --server, or leave it out for a port-forward" in line


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_answer_from_another_server_is_one_line(status: int, tmp_path: Path) -> None:
    async def greet(_: web.BaseRequest) -> web.Response:
        return web.Response(text="hello", status=status)

    pair = AUTHORITY.server()
    (tmp_path / "tls.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.pem")
    runner = web.ServerRunner(web.Server(greet))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    result = await Running(f"https://127.0.0.1:{runner.addresses[0][1]}", tmp_path).explain("web")
    await runner.cleanup()
    assert result.exit_code == 2
    assert "is it Mooring?" in result.stderr


def lease(holder: str | None) -> dict[str, Any]:
    return {"metadata": {"name": "mooring"}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize("holder", ["", None])
async def test_without_a_leader_it_says_so(holder: str | None, running: Running) -> None:
    async with ApiServer(lambda request: request.reply(lease(holder))) as server:
        result = await ask("web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "no replica holds the Lease mooring-system/mooring now" in result.stderr
    assert server.seen[0].headers["Authorization"] == "Bearer ann"


async def test_without_a_lease_it_says_what_to_correct(running: Running) -> None:
    async with ApiServer(lambda request: request.refuse(404, "NotFound", "no")) as server:
        result = await ask("web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "correct --lease-namespace and --lease-name, or give --server" in result.stderr


async def test_without_the_right_to_the_lease_it_names_the_role(running: Running) -> None:
    async with ApiServer(lambda request: request.refuse(403, "Forbidden", "no")) as server:
        result = await ask("web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "the Role mooring-explain in mooring-system grants it" in result.stderr
