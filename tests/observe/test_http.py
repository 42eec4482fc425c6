import asyncio
import errno
import json
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from certificates import Authority, Pair
from deciding import keep
from mooring.framework.decision import Decision, PodRef, TextAboutPods
from mooring.model.access import User
from mooring.model.pod import Uid, parse_pod
from mooring.observe.documents import HIDDEN, plain
from mooring.observe.http import Check, ListenError
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls
from mooring.page.queue_view import Queue
from mooring.rebalancing.report import MovedPod, PlannedStep, RebalancingReport
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing import builders
from scheduler_states import put_profile, scheduler_state
from served_endpoints import EVERYTHING, LOOPBACK, Rights, endpoints, served


def well() -> None:
    return None


def failing(reason: str) -> Check:
    return lambda: reason


WEB = {"kind": "StatefulSet", "name": "web", "uid": "web-uid", "controller": True}
READ_DECISIONS = 'get path "/debug/decisions"'


def reporting(report: Mapping[str, Any]) -> Callable[[str], Awaitable[Mapping[str, Any]]]:
    """Return a `pod_report` function that returns this report about every pod."""

    async def pod_report(_pod: str) -> Mapping[str, Any]:
        return report

    return pod_report


def groups_of(
    known: Mapping[tuple[str, str], list[dict[str, Any]]],
) -> Callable[[str, str], Awaitable[list[dict[str, Any]]]]:
    """Return a `pod_groups` function that knows these groups, by namespace and name."""

    async def pod_groups(namespace: str, name: str) -> list[dict[str, Any]]:
        return known.get((namespace, name), [])

    return pod_groups


def queue_of(shared: SchedulerState) -> Queue:
    return Queue(shared, bound=lambda: 0, clock=lambda: 0.0, now=lambda: 0.0)


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
    log = decided("shop/cart-0")
    async with served(endpoints(decisions=log)) as client:
        status, text = await get(client, "/debug/decisions?pod=shop/cart-0")
    assert status == 200
    assert json.loads(text) == {
        "pod": None,
        "path": plain(log.path("shop/cart-0")),
        "decisions": plain(log.of("shop/cart-0")),
    }


async def test_the_report_of_a_pod_is_served_also_without_decisions() -> None:
    async with served(endpoints(pod_report=reporting({"state": "gated"}))) as client:
        status, text = await get(client, "/debug/decisions?pod=shop/cart-0")
    assert status == 200
    assert json.loads(text) == {"pod": {"state": "gated"}, "path": None, "decisions": []}


async def test_an_unknown_pod_and_a_missing_one_each_get_one_line() -> None:
    async with served(endpoints()) as client:
        for query, status, part in (
            ("?pod=shop/cart-0", 404, "no recent decision about pod shop/cart-0"),
            ("?pod=cart-0", 400, "pod=NAMESPACE/NAME"),
            ("?pod=shop/", 400, "pod=NAMESPACE/NAME"),
            ("?pod=", 400, "pod=NAMESPACE/NAME"),
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


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_all_addresses_are_those_of_ipv6_too() -> None:
    """The port is not free if another program uses it on an IPv6 address only."""
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        with pytest.raises(ListenError, match=r"of 0\.0\.0\.0: address already in use"):
            await endpoints().start("0.0.0.0", other.getsockname()[1])


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


@pytest.mark.parametrize("page", ["/livez", "/readyz?verbose", "/healthz"])
async def test_health_needs_no_credentials_and_no_api_server(page: str) -> None:
    reviews = Rights()
    reviews.down = True
    async with served(endpoints(reviews=reviews), user=None) as client:
        assert (await get(client, page))[0] == 200


PROTECTED = pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/configz",
        "/debug/decisions",
        "/debug/pending",
        "/debug/shadow",
        "/debug/rebalancing",
        "/debug/cache",
    ],
)


@PROTECTED
async def test_everything_else_is_forbidden_without_credentials(path: str) -> None:
    async with served(endpoints(), user=None) as client:
        assert await get(client, path) == (
            403,
            f'forbidden: User "system:anonymous" cannot get path "{path}"\n',
        )


@PROTECTED
async def test_a_token_that_is_not_accepted_is_unauthorized(path: str) -> None:
    async with served(endpoints(), user="expired-token") as client:
        status, line = await get(client, path)
    assert status == 401
    assert line == "Unauthorized: the API server does not accept the token\n"


@PROTECTED
async def test_without_the_api_servers_word_nothing_is_shown(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    reviews = Rights(admin=[EVERYTHING])
    reviews.down = True
    async with served(endpoints(reviews=reviews)) as client:
        for _ in range(2):
            status, line = await get(client, path)
            assert status == 503
            assert line.startswith("cannot find out who may see this: the API server does not say;")
    assert caplog.messages == [
        "cannot find out who may read the endpoints: no answer from the API server"
    ]


async def test_each_path_is_a_right_of_its_own() -> None:
    reviews = Rights(prometheus=['get path "/metrics"'])
    async with served(endpoints(reviews=reviews), user="prometheus") as client:
        assert (await get(client, "/metrics"))[0] == 200
        assert (await get(client, "/configz"))[0] == 403
        async with client.head("/metrics") as response:
            assert response.status == 403


async def test_an_unknown_path_is_no_reason_to_ask_the_api_server() -> None:
    reviews = Rights()
    async with served(endpoints(reviews=reviews), user=None) as client:
        assert (await get(client, "/nothing"))[0] == 404
    assert reviews.users == []


async def test_paths_that_are_always_allowed_are_a_setting() -> None:
    open_to_all = endpoints(always_allow_paths=("/metrics", "/debug/*"))
    async with served(open_to_all, user=None) as client:
        assert (await get(client, "/metrics"))[0] == 200
        assert (await get(client, "/livez"))[0] == 403
        assert (await get(client, "/configz"))[0] == 403
        status, line = await get(client, "/debug/decisions?pod=shop/a")
    assert status == 403
    assert 'cannot get resource "pods" "a"' in line


def decided(*pods: str) -> DecisionLog:
    log = DecisionLog(clock=lambda: 0.0, wall=lambda: 0.0)
    for second, pod in enumerate(pods):
        keep(
            log,
            Uid(pod),
            Decision(PodRef.of_key(pod), "mooring", "n1", None, (), None, {}, None),
            second,
        )
    return log


async def shown(client: aiohttp.ClientSession, query: str) -> list[str] | int:
    """Return the pods in the answer, or the status if the request is refused."""
    status, text = await get(client, f"/debug/decisions{query}")
    return [record["pod"] for record in json.loads(text)["decisions"]] if status == 200 else status


async def test_decision_records_are_shown_to_those_who_may_get_the_pods() -> None:
    in_shop = 'get resource "pods" in API group "" in the namespace "shop"'
    of_pod = 'get resource "pods" "b" in API group "" in the namespace "team"'
    reviews = Rights(ann=[READ_DECISIONS, in_shop, of_pod], bob=[in_shop], admin=[EVERYTHING])
    log = decided("shop/a", "team/b", "shop/c", "shop-2/d")
    async with served(endpoints(reviews=reviews, decisions=log), user="ann") as client:
        assert await shown(client, "?namespace=shop") == ["shop/c", "shop/a"]
        assert await shown(client, "?pod=team/b") == ["team/b"]
        assert await shown(client, "?namespace=team") == 403
        assert await shown(client, "?pod=shop/a") == 403
        assert await shown(client, "") == 403
    async with served(endpoints(reviews=reviews, decisions=log), user="bob") as client:
        assert await shown(client, "?namespace=shop") == 403
    async with served(endpoints(reviews=reviews, decisions=log)) as client:
        assert await shown(client, "") == ["shop-2/d", "shop/c", "team/b", "shop/a"]


def preempting() -> DecisionLog:
    """Return a log in which shop/web was nominated, and the eviction of its victims failed.

    The victims are in two namespaces, and the API server's error names one of them. The pod
    shop/low was bound and then preempted by a third pod.
    """
    log = DecisionLog(clock=lambda: 0.0, wall=lambda: 0.0)
    victims = PodRef.of_key("bank/vault"), PodRef.of_key("shop/low")
    web, low = Uid("web"), Uid("low")
    nominated = Decision(PodRef.of_key("shop/web"), "mooring", None, "n1", victims, None, {}, None)
    keep(log, web, nominated, 1.0)
    why = 'pods "vault" is forbidden: it is being watched'
    log.preemption_failed(web, why, victims[:1], 2.0)
    log.seen("shop/low", low, 1.0)
    log.bound(low, "n1", 2.0)
    log.preempted(low, PodRef.of_key("bank/atm"), "n1", 3.0)
    return log


async def test_pods_of_other_namespaces_are_named_only_to_those_who_may_get_them() -> None:
    in_shop, in_bank = (
        f'get resource "pods" in API group "" in the namespace "{name}"'
        for name in ("shop", "bank")
    )
    pods = [
        f'get resource "pods" "{n}" in API group "" in the namespace "shop"' for n in ("web", "low")
    ]
    ann, bob = [READ_DECISIONS, in_shop, *pods], [READ_DECISIONS, in_shop, in_bank, *pods]
    vault = PodRef.of_key("bank/vault")
    suggestion = {
        "change": TextAboutPods("when bank/vault on n1 ends", (vault,), "when a pod on n1 ends"),
        "examples": ["n1"],
        "ended": [vault],
    }
    queries = ("?pod=shop/web", "?pod=shop/low", "?namespace=shop")
    for user, names in (("ann", False), ("bob", True)):
        running = endpoints(
            reviews=Rights(ann=ann, bob=bob),
            decisions=preempting(),
            pod_report=reporting({"state": "unschedulable", "suggestions": [suggestion]}),
        )
        async with served(running, user=user) as client:
            for query in queries:
                status, text = await get(client, f"/debug/decisions{query}")
                assert status == 200
                assert ("vault" in text or "atm" in text) == names, query
                assert "shop/low" in text or query == "?pod=shop/low"


async def test_short_records_are_shown_to_the_same_users_and_as_many_as_they_want() -> None:
    in_shop = 'get resource "pods" in API group "" in the namespace "shop"'
    reviews = Rights(ann=[READ_DECISIONS, in_shop], admin=[EVERYTHING])
    log = decided("shop/a", "team/b", "shop/c")
    async with served(endpoints(reviews=reviews, decisions=log), user="ann") as client:
        assert await shown(client, "?summary=true&namespace=shop") == ["shop/c", "shop/a"]
        assert await shown(client, "?summary=true&namespace=shop&limit=1") == ["shop/c"]
        assert await shown(client, "?summary=true") == 403
        for limit in ("0", "50001", "-1", "many", "9" * 5000):
            assert await shown(client, f"?summary=true&namespace=shop&limit={limit}") == 400
    async with served(endpoints(reviews=reviews, decisions=log)) as client:
        _, text = await get(client, "/debug/decisions?summary=true")
    answer = json.loads(text)
    assert answer["decisions"] == plain([*log.summaries()])
    assert (answer["bytes"], answer["limitBytes"]) == (log.bytes, log.limit)


async def test_many_short_records_are_made_in_slices() -> None:
    log = decided(*(f"shop/{n}" for n in range(450)))
    async with served(endpoints(decisions=log)) as client:
        names = await shown(client, "?summary=true&limit=449")
    assert names == [f"shop/{n}" for n in reversed(range(1, 450))]


async def test_whether_a_pod_is_known_is_told_only_to_those_who_may_get_it() -> None:
    reviews = Rights(ann=[READ_DECISIONS])
    log = decided("team/b")
    async with served(endpoints(reviews=reviews, decisions=log), user="ann") as client:
        assert await shown(client, "?pod=team/b") == await shown(client, "?pod=team/none") == 403


def client_context(authority: Authority, folder: Path, pair: Pair | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts the authority; `pair` is the client's certificate."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if pair is not None:
        path = folder / "client.pem"
        path.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(path)
    return context


def files(folder: Path, authority: Authority) -> ServingTls:
    """Write certificates of the authority; return a ServingTls that also accepts its clients."""
    pair = authority.server()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "ca.crt").write_bytes(authority.certificate)
    return ServingTls(
        cert_file=str(folder / "tls.crt"),
        key_file=str(folder / "tls.key"),
        client_ca_file=str(folder / "ca.crt"),
    )


async def test_a_client_certificate_says_who_the_user_is(tmp_path: Path) -> None:
    authority, reviews = Authority(), Rights(ann=['get path "/metrics"'])
    tls = files(tmp_path, authority)
    context = client_context(authority, tmp_path, authority.client("ann", "sre"))
    async with served(endpoints(tls=tls, reviews=reviews), user=None, context=context) as client:
        assert (await get(client, "/metrics"))[0] == 200
    assert reviews.users == [User("ann", ("sre", "system:authenticated"))]


@pytest.mark.parametrize("kind", ["another authority", "a server's certificate"])
async def test_a_client_certificate_that_does_not_verify_ends_the_connection(
    kind: str, tmp_path: Path
) -> None:
    authority = Authority()
    pair = Authority("other").client("ann") if kind == "another authority" else authority.server()
    tls = files(tmp_path, authority)
    context = client_context(authority, tmp_path, pair)
    async with served(endpoints(tls=tls), user=None, context=context) as client:
        with pytest.raises(aiohttp.ClientError):
            await get(client, "/metrics")


async def test_changed_files_are_served_without_a_restart(tmp_path: Path) -> None:
    first, second = Authority("first"), Authority("second")
    running = endpoints(tls=files(tmp_path, first), reviews=Rights(admin=[EVERYTHING]))
    context = client_context(first, tmp_path)
    async with served(running, context=context) as client:
        assert (await get(client, "/metrics"))[0] == 200
        files(tmp_path, second)
        await running.reload()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(client, "/metrics")
        context.load_verify_locations(cadata=second.certificate.decode())
        assert (await get(client, "/metrics"))[0] == 200


@pytest.mark.parametrize(("owner", "name"), [(os, "memfd_create"), (socket.socket, "dup")])
async def test_changed_files_are_served_when_the_process_can_open_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """Clients may use up the process's file descriptors for a while."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    first, second = Authority("first"), Authority("second")
    running = endpoints(tls=files(tmp_path, first))
    async with served(running, user=None, context=client_context(second, tmp_path)) as client:
        files(tmp_path, second)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse, raising=False)
            await running.reload()
        await running.reload()
        assert (await get(client, "/livez"))[0] == 200


async def test_files_that_cannot_be_used_change_nothing_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    running = endpoints(tls=files(tmp_path, authority))
    async with served(running, context=client_context(authority, tmp_path)) as client:
        (tmp_path / "tls.key").write_text("not yet")
        await running.reload()
        await running.reload()
        assert (await get(client, "/metrics"))[0] == 200
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("certificates: the certificate ")


async def test_a_certificate_that_cannot_be_used_at_the_start_is_told_in_one_line(
    tmp_path: Path,
) -> None:
    tls = ServingTls(cert_file=str(tmp_path / "none"), key_file=str(tmp_path / "none"))
    with pytest.raises(ListenError, match="none: no such file or directory; correct the flag"):
        await endpoints(tls=tls).start(LOOPBACK, 0)


async def test_plain_http_is_not_served() -> None:
    running = endpoints()
    port = await running.start(LOOPBACK, 0)
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await get(client, f"http://{LOOPBACK}:{port}/livez")
    await running.stop()


GROUPS = {("team-a", "train"): [{"podGroup": "team-a/train"}]}


async def test_pod_groups_are_shown_by_name() -> None:
    async with served(endpoints(pod_groups=groups_of(GROUPS))) as client:
        async with client.get("/debug/decisions?podgroup=team-a/train") as answer:
            assert (answer.status, await answer.json()) == (
                200,
                {"podGroups": [{"podGroup": "team-a/train"}]},
            )
        async with client.get("/debug/decisions?podgroup=team-a/other") as answer:
            assert answer.status == 404
            assert "no pod group team-a/other" in await answer.text()
        async with client.get("/debug/decisions?podgroup=train") as answer:
            assert answer.status == 400
            assert "?podgroup=NAMESPACE/NAME" in await answer.text()


async def test_pending_pods_are_counted_by_cause_and_named_to_those_who_may_get_them() -> None:
    shared = scheduler_state()
    pipeline = put_profile(shared).pipeline
    for namespace, gate in (("team-a", "quota"), ("team-b", "secret")):
        raw = builders.pod("p", namespace=namespace, spec={"schedulingGates": [{"name": gate}]})
        shared.queue.add(parse_pod(raw), pipeline, 0.0, gated=True)
    stray = parse_pod(builders.pod("stray", namespace="team-a", spec={"schedulerName": "moring"}))
    shared.without_profile[stray.uid] = stray
    rights = Rights(
        ann=[
            'get path "/debug/pending"',
            'get resource "pods" in API group "" in the namespace "team-a"',
        ]
    )
    shown = endpoints(queue=queue_of(shared), reviews=rights)
    async with served(shown, user="ann") as client, client.get("/debug/pending") as answer:
        found = await answer.json()
    causes = {each["cause"]: each["pods"] for each in found["causes"]}
    assert causes == {
        "scheduling gates: quota": 1,
        'no profile takes pods of schedulerName "moring"': 1,
    }
    assert (found["total"], found["otherCauses"], found["otherPods"]) == (3, 1, 1)
    assert found["states"]["without a profile"] == 1


async def test_pending_pods_of_a_namespace_are_shown_to_those_who_may_get_them() -> None:
    shared = scheduler_state(
        builders.pod("web-0", namespace="team-a", spec={"nodeName": "n"}, owner=WEB)
    )
    pipeline = put_profile(shared).pipeline
    for namespace in ("team-a", "team-b"):
        raw = builders.pod("web-1", namespace=namespace, owner=WEB)
        shared.queue.add(parse_pod(raw), pipeline, 0.0)
    rights = Rights(
        ann=[
            'get path "/debug/pending"',
            'get resource "pods" in API group "" in the namespace "team-a"',
        ]
    )
    async with served(endpoints(queue=queue_of(shared), reviews=rights), user="ann") as client:
        status, text = await get(client, "/debug/pending?namespace=team-a")
        assert (status, orjson.loads(text)["total"]) == (200, 1)
        assert (await get(client, "/debug/pending?namespace=team-b"))[0] == 403
        wanted = "workload=StatefulSet/web"
        status, text = await get(client, f"/debug/pending?namespace=team-a&{wanted}")
        assert status == 200
        (row,) = orjson.loads(text)["pods"]
        assert (orjson.loads(text)["placed"], row["pod"]) == (1, "team-a/web-1")
        assert (await get(client, f"/debug/pending?namespace=team-b&{wanted}"))[0] == 403
        assert (await get(client, f"/debug/pending?{wanted}"))[0] == 400
        assert (await get(client, "/debug/pending?namespace=team-a&workload=web"))[0] == 400


async def test_a_remedy_of_a_group_names_pods_to_those_who_may_get_them() -> None:
    squat, member = PodRef.of_key("batch/squat"), PodRef.of_key("team-a/m0")
    remedy = TextAboutPods("when batch/squat ends", (squat,), "when a pod ends")
    shown = endpoints(
        pod_groups=groups_of({("team-a", "train"): [{"remedy": remedy, "pods": [member]}]}),
        reviews=Rights(
            admin=[EVERYTHING],
            ann=[
                READ_DECISIONS,
                'get resource "pods" in API group "" in the namespace "team-a"',
            ],
        ),
    )
    for user, text in (("admin", "when batch/squat ends"), ("ann", "when a pod ends")):
        async with served(shown, user=user) as client:
            async with client.get("/debug/decisions?podgroup=team-a/train") as answer:
                (found,) = (await answer.json())["podGroups"]
            assert found == {"remedy": text, "pods": ["team-a/m0"]}


async def test_the_comparisons_of_a_namespace_are_shown_to_those_who_may_read_its_pods() -> None:
    in_shop = 'get resource "pods" in API group "" in the namespace "shop"'
    rights = Rights(ann=['get path "/debug/shadow"', in_shop])
    found = endpoints(reviews=rights, shadow=lambda namespace: {"of": namespace})
    async with served(found, user="ann") as client:
        assert await get(client, "/debug/shadow?namespace=shop") == (200, '{"of":"shop"}')
        assert (await get(client, "/debug/shadow"))[0] == 403
        assert (await get(client, "/debug/shadow?namespace=other"))[0] == 403


async def test_the_cache_is_shown_to_those_who_may_get_the_path_and_all_pods() -> None:
    rights = Rights(ann=['get path "/debug/cache"'])
    found = endpoints(reviews=rights, cache_dump=lambda: iter(({"kind": "end", "records": 0},)))
    async with served(found, user="ann") as client:
        refused = 'forbidden: User "ann" cannot get resource "pods" in API group "" at the '
        assert await get(client, "/debug/cache") == (403, f"{refused}cluster scope\n")
        rights.rights["ann"].add('get resource "pods" in API group "" at the cluster scope')
        assert await get(client, "/debug/cache") == (200, '{"kind":"end","records":0}\n')


class LargeCache:
    """A cache with records of a kilobyte; `made` is the number of records read so far."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.made = 0

    def dump(self) -> Iterator[Mapping[str, Any]]:
        while self.made < self.records:
            self.made += 1
            yield {"pod": self.made, "of": "x" * 1000}


async def test_a_large_cache_is_made_as_it_is_read_and_for_one_client_at_a_time() -> None:
    cache = LargeCache(30_000)
    async with served(endpoints(cache_dump=cache.dump)) as client:
        async with client.get("/debug/cache") as response:
            assert json.loads(await response.content.readline())["pod"] == 1
            status, line = await get(client, "/debug/cache")
            assert (status, line.partition(":")[0]) == (429, "another client is reading the cache")
            assert cache.made < cache.records, "the whole is not in memory"
            assert (await response.read()).count(b"\n") == cache.records - 1
        assert (await get(client, "/debug/cache"))[0] == 200


async def test_a_client_that_leaves_in_the_middle_of_an_answer_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given_up = asyncio.Event()

    def dump() -> Iterator[Mapping[str, Any]]:
        try:
            while True:
                yield {"of": "x" * 1000}
        finally:
            given_up.set()

    async with served(endpoints(cache_dump=dump)) as client:
        async with client.get("/debug/cache") as response:
            await response.content.readline()
            response.close()
        await given_up.wait()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_dump_that_takes_too_long_is_cut_off_and_the_next_client_has_its_turn() -> None:
    cache = LargeCache(10**9)
    async with served(endpoints(cache_dump=cache.dump, dump_seconds=0.1)) as client:
        async with client.get("/debug/cache") as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                async for _ in response.content:
                    pass
        cache.records = 0
        assert await get(client, "/debug/cache") == (200, "")


async def test_names_of_pods_that_are_moved_are_shown_to_those_who_may_get_them() -> None:
    move = MovedPod(PodRef("team-a", "web-1", Uid("1")), "ReplicaSet", "a", "b")
    step = PlannedStep("Pack", "why", 1000, (move,), (), ())
    report = RebalancingReport("mooring", "Plan", "1 move is planned", 0, 0, (step,))
    rights = Rights(admin=[EVERYTHING], ann=['get path "/debug/rebalancing"'])
    shown = endpoints(reviews=rights, rebalancing=lambda: (report,))
    for user, name in (("admin", "team-a/web-1"), ("ann", HIDDEN)):
        async with served(shown, user=user) as client:
            async with client.get("/debug/rebalancing") as answer:
                (found,) = (await answer.json())["profiles"]
            ((shown_move,),) = (step["moves"] for step in found["underWay"])
            assert (shown_move["pod"], shown_move["from"]) == (name, "a")
