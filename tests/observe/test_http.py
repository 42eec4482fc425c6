import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from mooring.framework.decision import Decision
from mooring.observe.http import Check, Endpoints, ListenError
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog

LOOPBACK = "127.0.0.1"


def well() -> None:
    return None


def failing(reason: str) -> Check:
    return lambda: reason


def endpoints(
    *,
    live: Mapping[str, Check] | None = None,
    ready: Mapping[str, Check] | None = None,
    metrics: Metrics | None = None,
    decisions: DecisionLog | None = None,
    configuration: Callable[[], dict[str, Any]] = dict,
) -> Endpoints:
    return Endpoints(
        live=live or {"ping": well},
        ready=ready or {"ping": well},
        metrics=metrics or Metrics(),
        decisions=decisions or DecisionLog(),
        configuration=configuration,
    )


@asynccontextmanager
async def served(served_endpoints: Endpoints) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the endpoints, on a free port."""
    port = await served_endpoints.start(LOOPBACK, 0)
    try:
        async with aiohttp.ClientSession(f"http://{LOOPBACK}:{port}") as client:
            yield client
    finally:
        await served_endpoints.stop()


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with client.get(path) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("page", ["livez", "readyz", "healthz"])
async def test_a_healthy_page_says_ok_and_names_its_checks_when_asked(page: str) -> None:
    checks = {"ping": well, "lease": well}
    async with served(endpoints(live=checks, ready=checks)) as client:
        assert await get(client, f"/{page}") == (200, "ok")
        verbose = f"[+]ping ok\n[+]lease ok\n{page} check passed\n"
        assert await get(client, f"/{page}?verbose") == (200, verbose)


async def test_a_failed_check_is_named_with_its_reason_without_asking() -> None:
    ready = {"ping": well, "mirror-sync": failing("waiting for Node, Pod")}
    async with served(endpoints(ready=ready)) as client:
        assert await get(client, "/readyz") == (
            500,
            "[+]ping ok\n[-]mirror-sync failed: waiting for Node, Pod\nreadyz check failed\n",
        )


async def test_not_being_ready_does_not_ask_for_a_restart() -> None:
    async with served(endpoints(ready={"mirror-sync": failing("waiting")})) as client:
        assert (await get(client, "/livez"))[0] == 200
        assert (await get(client, "/healthz"))[0] == 200
        assert (await get(client, "/readyz"))[0] == 500


async def test_metrics_are_served_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.preemption_attempted()
    async with served(endpoints(metrics=metrics)) as client, client.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        assert "scheduler_preemption_attempts_total 1.0" in (await response.text()).splitlines()


async def test_the_configuration_shown_is_the_one_in_force_now() -> None:
    settings = {"logLevel": "info"}
    async with served(endpoints(configuration=lambda: settings)) as client:
        settings["logLevel"] = "debug"
        assert json.loads((await get(client, "/configz"))[1]) == {"logLevel": "debug"}


async def test_recent_decisions_about_a_pod_are_served_as_records() -> None:
    log = DecisionLog()
    log.add(Decision("shop/cart-0", "mooring", "n1", None, (), None, {}, None), time=1_780_000_000)
    async with served(endpoints(decisions=log)) as client:
        status, text = await get(client, "/debug/decisions?pod=shop/cart-0")
    assert status == 200
    assert json.loads(text) == {"decisions": log.of("shop/cart-0")}


async def test_an_unknown_pod_and_a_missing_one_each_get_one_line() -> None:
    async with served(endpoints()) as client:
        for query, status, part in (
            ("?pod=shop/cart-0", 404, "no recent decision about pod shop/cart-0"),
            ("?pod=cart-0", 400, "pod=NAMESPACE/NAME"),
            ("", 400, "pod=NAMESPACE/NAME"),
        ):
            answer = await get(client, f"/debug/decisions{query}")
            assert answer[0] == status
            assert part in answer[1]
            assert len(answer[1].splitlines()) == 1


async def test_a_port_in_use_is_told_in_one_line() -> None:
    first, second = endpoints(), endpoints()
    port = await first.start(LOOPBACK, 0)
    try:
        with pytest.raises(ListenError) as caught:
            await second.start(LOOPBACK, port)
    finally:
        await first.stop()
    assert str(caught.value) == (
        f"cannot listen on port {port} of {LOOPBACK}: address already in use;"
        " choose another address or port"
    )


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.1", "cannot assign requested address"),  # a documentation address, never local
        ("a..b", "'a..b' does not appear to be an IPv4 or IPv6 address"),
    ],
)
async def test_an_address_that_is_not_this_machines_is_told_in_one_line(
    address: str, reason: str
) -> None:
    with pytest.raises(ListenError) as caught:
        await endpoints().start(address, 8080)
    assert str(caught.value) == (
        f"cannot listen on port 8080 of {address}: {reason}; choose another address or port"
    )


async def test_after_stop_the_port_is_free_and_the_endpoints_can_start_again() -> None:
    stopped = endpoints()
    port = await stopped.start(LOOPBACK, 0)
    await stopped.stop()
    await stopped.stop()
    assert await stopped.start(LOOPBACK, port) == port
    await stopped.stop()
