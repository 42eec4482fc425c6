"""A command finds and reaches the leading replica; `mooring explain` is the example."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
from aiohttp import web

from cli.running import AUTHORITY, Running, ask, kubeconfig_of, serving
from deciding import keep
from http_servers import answering
from http_servers import serving as serving_app
from kube.api_server import ApiServer, Objects
from mooring.cli.explain import explain
from mooring.cli.leader import (
    Following,
    Leader,
    LeaderUnreachableError,
    RefusedError,
    leader_options,
)
from mooring.framework.decision import Decision, PodRef
from mooring.kube.api_resources import LEASE, POD
from mooring.kube.port_forward import PROTOCOL
from mooring.model.pod import Uid
from mooring.observe.records import DecisionLog
from mooring.simulate.manifests import InputError


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    decisions = DecisionLog()
    placed = Decision(PodRef.of_key("team-a/web"), "mine", "n1", None, (), None, {}, None)
    keep(decisions, Uid("u1"), placed, 0.0)
    async with serving(tmp_path, decisions=decisions) as running:
        yield running


def test_the_options_are_the_fields() -> None:
    command = click.command(leader_options(lambda: None))
    assert {option.name for option in command.params} == {field.name for field in fields(Leader)}


@pytest.mark.parametrize("server", ["file:///etc/passwd", "http://127.0.0.1:10251"])
async def test_credentials_are_sent_over_https_only(server: str, running: Running) -> None:
    running.url = server
    result = await running.answer(explain, "web")
    assert result.exit_code == 2
    assert "must start with https://" in result.stderr


@pytest.mark.parametrize("server", ["https://", "https://a:99999", "https://a:b", "https://[::"])
async def test_a_server_that_is_no_url_is_one_line_that_says_what_to_do(
    server: str, running: Running
) -> None:
    running.url = server
    result = await running.answer(explain, "web")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "--server" in line


async def test_credentials_are_not_sent_to_a_server_that_is_not_trusted(running: Running) -> None:
    words = ("team-a/web", f"--server={running.url}", f"--kubeconfig={running.kubeconfig()}")
    result = await ask(explain, *words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "its certificate is not trusted" in line
    assert "--certificate-authority" in line
    skipped = await ask(explain, *words, "--insecure-skip-tls-verify")
    assert skipped.exit_code == 0


async def test_a_name_that_the_certificate_does_not_have_is_not_trusted(running: Running) -> None:
    result = await running.answer(explain, "web", "--tls-server-name=mooring.example")
    assert result.exit_code == 2
    assert "its certificate is not trusted" in result.stderr


async def test_a_token_that_is_not_accepted_is_one_line(running: Running) -> None:
    result = await running.answer(explain, "team-a/web", user="an-expired-token")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the leading replica answers 401: "
        "Unauthorized: the API server does not accept the token\n"
    )


async def test_an_unreachable_server_is_one_line_that_says_what_to_do(
    running: Running, unused_tcp_port: int
) -> None:
    running.url = f"https://127.0.0.1:{unused_tcp_port}"
    result = await running.answer(explain, "web")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "correct --server, or leave it out for a port-forward" in line


@asynccontextmanager
async def another_server(
    handler: Callable[[web.Request], Awaitable[web.Response]], folder: Path
) -> AsyncIterator[str]:
    """Serve a program that is not Mooring over HTTPS; yield its URL."""
    pair = AUTHORITY.server()
    (folder / "tls.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    async with serving_app(answering(handler), context) as port:
        yield f"https://127.0.0.1:{port}"


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_answer_from_another_server_is_one_line(status: int, tmp_path: Path) -> None:
    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="hello", status=status)

    async with another_server(greet, tmp_path) as url:
        result = await Running(url, tmp_path).answer(explain, "web")
    assert result.exit_code == 2
    assert "is it Mooring?" in result.stderr


def lease(holder: str | None, **annotations: str) -> dict[str, Any]:
    published = {f"scheduling.mooring.dev/{name}": text for name, text in annotations.items()}
    metadata = {"name": "mooring", "annotations": published}
    return {"metadata": metadata, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize("holder", ["", None])
async def test_without_a_leader_it_says_so(holder: str | None, running: Running) -> None:
    async with ApiServer(lambda request: request.reply(lease(holder))) as server:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "no replica holds the Lease mooring-system/mooring now" in result.stderr
    assert server.seen[0].headers["Authorization"] == "Bearer ann"


async def test_a_leader_outside_the_cluster_needs_its_address(running: Running) -> None:
    """The holder in this Lease is a host, not a pod."""
    async with ApiServer(Objects({"/leases/mooring": lease("host_1")})) as server:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "there is no pod mooring-system/host" in line
    assert "--server" in line


@asynccontextmanager
async def outside(server: str, certificate: bytes = b"") -> AsyncIterator[ApiServer]:
    """Serve the Lease of a leader outside the cluster, with its URL and certificate."""
    found = {"server": server, "server-certificate": certificate.decode()}
    published = {name: text for name, text in found.items() if text}
    async with ApiServer(lambda request: request.reply(lease("host_1", **published))) as api:
        yield api


def served_certificate(running: Running) -> bytes:
    return (running.ca.parent / "tls.crt").read_bytes()


async def test_a_leader_on_this_machine_is_found_by_its_lease_and_its_certificate(
    running: Running,
) -> None:
    async with outside(running.url, served_certificate(running)) as api:
        result = await ask(explain, "team-a/web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 0, result.stderr
    assert "n1" in result.stdout


async def test_a_server_on_this_machine_is_trusted_with_the_certificate_of_the_lease(
    running: Running,
) -> None:
    async with outside("https://10.0.0.5:10259", served_certificate(running)) as api:
        words = "team-a/web", f"--kubeconfig={running.kubeconfig(api.url)}"
        result = await ask(explain, *words, f"--server={running.url}")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("server", ["", "--server"])
async def test_no_credentials_go_to_a_program_with_another_certificate_than_the_leases(
    server: str, tmp_path: Path
) -> None:
    """After a leader has ended, another user of the machine may listen on its port."""
    seen = list[str]()

    async def take(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response()

    async with (
        another_server(take, tmp_path) as url,
        outside(url, AUTHORITY.server().certificate) as api,
    ):
        words = ["web", f"--kubeconfig={kubeconfig_of(tmp_path, api.url)}"]
        result = await ask(explain, *words, *([f"{server}={url}"] if server else []))
    assert result.exit_code == 2
    assert "its certificate is not the one in the Lease mooring-system/mooring" in result.stderr
    assert seen == []


@pytest.mark.parametrize(
    "elsewhere", ["https://192.0.2.1:10259", "https://localhost:1", "https://127.0.0.1.example"]
)
async def test_a_lease_cannot_send_credentials_to_another_machine(
    elsewhere: str, running: Running
) -> None:
    """A user who may write the Lease must not get the tokens of users who read it."""
    async with outside(elsewhere, served_certificate(running)) as api:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "which is not on this machine, and nothing was sent there" in line
    assert "if you know that the leading replica has this address: --server https://" in line


@pytest.mark.parametrize(
    "url", ["https://192.0.2.1/$(id)", "https://192.0.2.1;id", "https://\x1b[31m", "http://::1", ""]
)
async def test_a_lease_cannot_put_words_into_the_users_shell(url: str, running: Running) -> None:
    async with outside(url, served_certificate(running)) as api:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the annotation scheduling.mooring.dev/server of the Lease is no")
    assert line.isprintable()


async def test_a_lease_that_names_no_certificate_is_not_trusted(running: Running) -> None:
    async with outside(running.url) as api:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 2
    assert "but not with which certificate" in result.stderr


async def test_a_ca_that_cannot_be_read_is_named(running: Running) -> None:
    options = ("--server=https://127.0.0.1:1", f"--kubeconfig={running.kubeconfig()}")
    result = await ask(explain, "web", *options, "--certificate-authority=/none/ca.crt")
    assert result.exit_code == 2
    assert result.stderr == "error: /none/ca.crt: cannot be used: No such file or directory\n"


async def test_a_certificate_in_the_lease_that_is_none_is_one_line(running: Running) -> None:
    async with outside(running.url, b"none") as api:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "cannot be used" in line


async def test_a_leader_outside_on_another_machine_is_one_line_that_says_what_to_do(
    running: Running, unused_tcp_port: int
) -> None:
    url = f"https://127.0.0.1:{unused_tcp_port}"
    async with outside(url, served_certificate(running)) as api:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(api.url)}")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "runs there, outside the cluster: run this command on its machine" in line


@asynccontextmanager
async def cluster(url: str) -> AsyncIterator[str]:
    """Serve a Lease, and port-forwards from its pod to `url`; yield the API server's URL."""

    async def found(_: web.Request) -> web.Response:
        return web.json_response(lease("mooring-0_1"))

    async def forwarded(request: web.Request) -> web.WebSocketResponse:
        stream = web.WebSocketResponse(protocols=(PROTOCOL,))
        await stream.prepare(request)
        greetings = b"\0\0\0", b"\1\0\0"
        for greeting in greetings:
            await stream.send_bytes(greeting)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        except ConnectionRefusedError:
            await stream.send_bytes(b"\1nobody listens on 10259")
            return stream

        async def answer() -> None:
            while data := await reader.read(1 << 16):
                await stream.send_bytes(b"\0" + data)

        answering = asyncio.create_task(answer())
        async for message in stream:
            writer.write(message.data[1:])
        writer.close()
        await answering
        return stream

    app = web.Application()
    app.router.add_get(LEASE.path("mooring-system", "mooring"), found)
    app.router.add_get(POD.path("mooring-system", "mooring-0", "portforward"), forwarded)
    async with serving_app(app) as port:
        yield f"http://127.0.0.1:{port}"


async def test_without_an_address_it_goes_through_the_api_server(running: Running) -> None:
    async with cluster(running.url) as server:
        words = "team-a/web", f"--kubeconfig={running.kubeconfig(server)}"
        result = await ask(explain, *words)
    assert result.exit_code == 0, result.stderr
    assert "n1" in result.stdout


async def test_what_the_kubelet_says_of_the_port_is_one_line(
    running: Running, unused_tcp_port: int
) -> None:
    async with cluster(f"https://127.0.0.1:{unused_tcp_port}") as server:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(server)}")
    assert result.exit_code == 2
    assert result.stderr == "error: pod mooring-system/mooring-0: nobody listens on 10259\n"


async def test_without_a_lease_it_says_what_to_correct(running: Running) -> None:
    served = {"resources": [{"name": "schedulingprofiles"}]}
    async with ApiServer(Objects({"/apis/scheduling.mooring.dev/v1alpha1": served})) as server:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "correct --lease-namespace and --lease-name, or give --server" in result.stderr


async def test_without_the_right_to_the_lease_it_names_the_role(running: Running) -> None:
    async with ApiServer(Objects(refused={"": (403, "no")})) as server:
        result = await ask(explain, "web", f"--kubeconfig={running.kubeconfig(server.url)}")
    assert result.exit_code == 2
    assert "the Role mooring-explain in mooring-system grants it" in result.stderr


def test_who_follows_the_leader_asks_the_next_one_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    answers = iter(["old", None, None, "new", None, "newer"])

    def question() -> str:
        answer = next(answers)
        if answer is None:
            raise LeaderUnreachableError("pod mooring-1 does not answer")
        return answer

    following = Following()
    said = "note: pod mooring-1 does not answer; asking again until a replica leads\n"
    assert (following.ask(question), capsys.readouterr().err) == ("old", "")
    assert (following.ask(question), capsys.readouterr().err) == ("new", said)
    assert (following.ask(question), capsys.readouterr().err) == ("newer", said)


@pytest.mark.parametrize("error", [LeaderUnreachableError, InputError, RefusedError])
def test_who_has_never_had_an_answer_does_not_ask_again(error: type[InputError]) -> None:
    def question() -> str:
        raise error("no")

    with pytest.raises(error):
        Following().ask(question)


def test_who_follows_the_leader_ends_where_asking_again_cannot_help() -> None:
    following = Following()
    following.ask(lambda: "old")

    def question() -> str:
        raise RefusedError("forbidden")

    with pytest.raises(RefusedError):
        following.ask(question)


async def test_a_watch_goes_on_with_the_next_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["unschedulable", None, None, "bound"])

    async def answer(_: web.Request) -> web.Response:
        state = next(states)
        if state is None:
            return web.Response(text="this replica does not lead", status=503)
        return web.json_response({"decisions": [], "pod": {"state": state}})

    sleeps = iter(range(4))

    def sleep(_seconds: float) -> None:
        if next(sleeps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    async with another_server(answer, tmp_path) as url:
        result = await Running(url, tmp_path).answer(explain, "team-a/web", "--watch")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line]
    assert lines == ["pod team-a/web: unschedulable", "pod team-a/web: bound"]
    assert result.stderr == (
        "note: the leading replica answers 503: this replica does not lead; asking again until a "
        "replica leads\n"
    )
