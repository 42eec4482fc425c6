"""The command `mooring ui` serves the page on this machine with the user's credentials."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from certificates import insecure
from cli.running import ask
from mooring.cli.leader import LeadingReplica
from mooring.cli.ui import Proxy, ui
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials, NoToken
from mooring.page import MOST_BYTES
from mooring.simulate.manifests import InputError
from mooring.testing.builders import node
from pages import page, page_endpoints
from scheduler_states import scheduler_state
from served_endpoints import Rights


@dataclass
class Opened:
    """A browser that has opened the page through the proxy."""

    proxy: Proxy
    address: str
    browser: aiohttp.ClientSession

    @property
    def base(self) -> str:
        return self.address.partition("/ui/")[0]

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self.browser.get(f"{self.base}{path}", headers=headers) as answer:
            return answer.status, await answer.text()

    async def token(self) -> str:
        key = self.address.partition("#key=")[2]
        async with self.browser.post(f"{self.base}/ui/session", data=key) as answer:
            assert answer.status == 200
            return await answer.text()


@asynccontextmanager
async def opened(*, user: str = "admin", rights: Rights | None = None) -> AsyncIterator[Opened]:
    serving = page_endpoints(page(scheduler_state(node("a"))), rights)
    port = await serving.start("127.0.0.1", 0)
    connection = Connection("https://unused.example", Credentials(NoToken(), f"Bearer {user}"))
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=insecure())) as client,
            aiohttp.ClientSession() as browser,
        ):
            url = f"https://127.0.0.1:{port}"
            proxy = Proxy(
                client, connection, LeadingReplica(url, "localhost", "the replica", insecure())
            )
            await proxy.check()
            async with proxy.served(0) as address:
                yield Opened(proxy, address, browser)
    finally:
        await serving.stop()


async def test_the_browser_gets_the_page_and_the_data_of_the_user() -> None:
    async with opened() as at:
        assert at.address.startswith("http://127.0.0.1:")
        status, text = await at.get("/ui/")
        assert status == 200
        assert "<!doctype html>" in text
        status, text = await at.get("/ui/api/session", await at.token())
        assert status == 200
        assert '"user":"admin"' in text


async def test_the_policy_of_the_page_stays_in_force() -> None:
    async with opened() as at, at.browser.get(f"{at.base}/ui/main.js") as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        tag = answer.headers["ETag"]
        assert (await at.get("/ui/main.js", **{"If-None-Match": tag}))[0] == 304


async def test_data_needs_the_sessions_token() -> None:
    async with opened() as at:
        assert (await at.get("/ui/api/session"))[0] == 401
        assert (await at.get("/ui/api/session", "admin"))[0] == 401
        token = await at.token()
        async with at.browser.post(f"{at.base}/ui/api/try", data="{}") as answer:
            assert answer.status == 401
        assert (await at.get("/ui/api/queue", token))[0] == 200


async def test_a_body_may_be_as_large_as_for_the_operator() -> None:
    async with opened() as at:
        headers = {"Authorization": f"Bearer {await at.token()}"}
        for size, status in ((MOST_BYTES - 100, 422), (MOST_BYTES + 1, 413)):
            url, body = f"{at.base}/ui/api/try", json.dumps({"manifests": "#" * size})
            async with at.browser.post(url, data=BytesIO(body.encode()), headers=headers) as answer:
                assert answer.status == status


async def test_the_address_is_good_for_one_use() -> None:
    async with opened() as at:
        await at.token()
        for key in (at.address.partition("#key=")[2], "", "guessed"):
            async with at.browser.post(f"{at.base}/ui/session", data=key) as answer:
                assert answer.status == 403


async def test_a_wrong_key_does_not_use_the_address_up() -> None:
    async with opened() as at:
        async with at.browser.post(f"{at.base}/ui/session", data="guessed") as answer:
            assert answer.status == 403
        assert await at.token()


async def test_names_that_lead_to_this_machine_are_refused() -> None:
    """Otherwise a foreign website could reach the proxy by DNS rebinding."""
    async with opened() as at:
        status, _ = await at.get("/ui/", Host="attacker.example")
        assert status == 403


async def test_nothing_beside_the_page_is_forwarded() -> None:
    async with opened() as at:
        token = await at.token()
        for path in ("/metrics", "/configz", "/debug/decisions", "/ui/../metrics"):
            assert (await at.get(path, token))[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/ui/x/../api/session",
        "/ui/x/%2e%2e/api/session",
        "/ui/x/%2E./api/session",
        "/ui//api/session",
        "/ui/%61pi/session",
        "/ui/..%2fmetrics",
        "/ui/../metrics",
        "/ui/%2e%2e/metrics",
        "/ui/api/../../metrics",
    ],
)
async def test_a_path_that_leads_elsewhere_is_not_forwarded_without_the_token(path: str) -> None:
    """Otherwise everybody who reaches the port could read with the user's credentials."""
    async with opened() as at:
        async with at.browser.get(URL(f"{at.base}{path}", encoded=True)) as answer:
            assert answer.status in (401, 404)
        headers = {"Authorization": f"Bearer {await at.token()}"}
        url = URL(f"{at.base}/ui/api/../../metrics", encoded=True)
        async with at.browser.get(url, headers=headers) as answer:
            assert answer.status == 404


async def test_a_stream_is_passed_on_as_it_comes() -> None:
    async with opened() as at:
        headers = {"Authorization": f"Bearer {await at.token()}"}
        async with at.browser.get(f"{at.base}/ui/api/stream", headers=headers) as answer:
            assert await answer.content.readline() == b"event: snapshot\n"


async def test_a_replica_that_is_gone_is_told_in_one_line() -> None:
    async with opened() as at:
        token = await at.token()
        at.proxy.replica.url = "https://127.0.0.1:1"
        status, text = await at.get("/ui/api/session", token)
    assert status == 502
    assert text.startswith("the leading replica cannot be reached: ")


async def test_a_user_without_the_right_is_told_which_role_grants_it() -> None:
    with pytest.raises(InputError, match="the ClusterRole mooring-page grants it"):
        async with opened(user="ann", rights=Rights(ann=[])):
            pass


async def test_a_port_in_use_is_told() -> None:
    async with opened() as at:
        port = int(at.base.rpartition(":")[2])
        with pytest.raises(InputError, match=f"port {port} cannot be used"):
            async with at.proxy.served(port):
                pass


async def test_without_a_replica_the_command_says_so_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], "
        "users: [{name: u, user: {token: ann}}]}"
    )
    result = await ask(ui, "--no-browser", f"--kubeconfig={config}")
    assert result.exit_code == 2
    assert "cannot reach the API server at http://127.0.0.1:1" in result.output
    assert len(result.output.strip().splitlines()) == 1
    server = await ask(ui, "--server=https://127.0.0.1:1", f"--kubeconfig={config}")
    assert server.exit_code == 2
