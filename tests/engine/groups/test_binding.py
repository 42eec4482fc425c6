"""Members of a group meet before PreBind and before Bind, and are called off together."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from devices.objects import GPUSHARE, gpu_node, share_pod
from engine.test_loop import Bindings, Engine, until
from kube.api_server import ApiServer, Request
from mooring.engine.groups.binding import CalledOff, GroupBinding
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.pod import parse_pod
from mooring.model.pod_group import GroupKey, GroupSource, parse_pod_group
from mooring.state.pod_groups import PodGroupState
from mooring.testing.builders import pod_group
from scheduler_states import put_profile

SECONDS = 10.0
SHARED = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


class FailedError(Exception):
    """A binding failed; `gone` says that the pod does not exist any more."""

    def __init__(self, *, gone: bool = False) -> None:
        super().__init__("refused")
        self.gone = gone


def group_of(minimum: int) -> PodGroupState:
    """A group of which no member is on a node."""
    group = PodGroupState(GroupKey(GroupSource.KUBERNETES, "default", "g"))
    group.definition = parse_pod_group(pod_group("g", minimum))
    return group


def binding(members: int, *, needed: int) -> GroupBinding:
    return GroupBinding(group_of(needed), members)


async def arrived(*tasks: "asyncio.Task[None]") -> int:
    """How many of the tasks have ended after everything that can happen now has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


async def test_members_go_on_when_all_have_come() -> None:
    group = binding(2, needed=2)
    first = asyncio.create_task(group.all_permitted())
    assert await arrived(first) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(first, group.all_permitted())


async def test_a_member_that_is_not_needed_is_not_waited_for_once_it_has_failed() -> None:
    group = binding(3, needed=2)
    waiting = [asyncio.create_task(group.all_ready()) for _ in range(2)]
    assert await arrived(*waiting) == 0
    group.failed("no volume")
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*waiting)


async def test_the_others_are_called_off_when_a_needed_member_fails() -> None:
    group = binding(2, needed=2)
    waiting = asyncio.create_task(group.all_permitted())
    await arrived(waiting)
    group.failed("no volume")
    with pytest.raises(CalledOff, match="no volume"):
        await waiting


async def test_all_are_called_off_if_the_minimum_is_raised_before_the_first_is_bound() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, 2)
    waiting = asyncio.create_task(group.all_ready())
    assert await arrived(waiting) == 0
    definition.definition = group_of(3).definition
    async with asyncio.timeout(SECONDS):
        ended = await asyncio.gather(group.all_ready(), waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["the minimum of the group is 3 now"] * 2


async def test_all_are_called_off_if_one_fails_that_a_raised_minimum_needs() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, 3)
    waiting = [asyncio.create_task(group.all_ready()) for _ in range(2)]
    assert await arrived(*waiting) == 0
    definition.definition = parse_pod_group(pod_group("g", 3))
    group.failed("no volume")
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["no volume"] * 2


async def test_none_is_called_off_if_the_minimum_is_raised_once_the_first_may_be_bound() -> None:
    """The members that are bound would stay bound, and be fewer."""
    definition = group_of(2)
    group = GroupBinding(definition, 2)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(group.all_ready(), group.all_ready())
    definition.definition = group_of(3).definition
    group.join(1)
    async with asyncio.timeout(SECONDS):
        await group.all_ready()
    assert group.called_off is None


async def test_a_member_that_leaves_a_meeting_is_not_counted_there() -> None:
    group = binding(3, needed=2)
    leaving = asyncio.create_task(group.all_ready())
    await arrived(leaving)
    leaving.cancel()
    await arrived(leaving)
    group.failed("deleted")
    waiting = asyncio.create_task(group.all_ready())
    assert await arrived(waiting) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(waiting, group.all_ready())


async def test_a_binding_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.engine.groups.binding._PAUSES_SECONDS", (0.0, 0.0))
    group, calls = binding(1, needed=1), 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise FailedError
        return "bound"

    assert await group.bind(call, FailedError) == "bound"
    assert calls == 3


async def test_a_pod_that_is_gone_is_not_bound_again() -> None:
    group, calls = binding(1, needed=1), 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise FailedError(gone=True)

    with pytest.raises(FailedError):
        await group.bind(call, FailedError)
    assert calls == 1


async def test_a_binding_that_has_not_begun_is_called_off() -> None:
    group = binding(2, needed=2)
    group.failed("quota")

    async def call() -> None:
        raise AssertionError

    with pytest.raises(CalledOff, match="quota"):
        await group.bind(call, FailedError)


async def test_members_of_a_large_group_go_on_a_few_at_a_time() -> None:
    """What each does next would else hold up everything else."""
    group, passed = binding(300, needed=300), 0

    async def member() -> None:
        nonlocal passed
        await group.all_permitted()
        passed += 1

    waiting = [asyncio.create_task(member()) for _ in range(299)]
    assert await arrived(*waiting) == 0
    waiting.append(asyncio.create_task(member()))
    async with asyncio.timeout(SECONDS):
        most = 0
        while passed < 300:
            before = passed
            await asyncio.sleep(0)
            most = max(most, passed - before)
    assert 0 < most <= 64


async def test_members_of_a_large_group_are_called_off_a_few_at_a_time() -> None:
    group, called_off = binding(200, needed=200), 0

    async def member() -> None:
        nonlocal called_off
        with pytest.raises(CalledOff):
            await group.all_ready()
        called_off += 1

    waiting = [asyncio.create_task(member()) for _ in range(199)]
    assert await arrived(*waiting) == 0
    group.failed("no volume")
    async with asyncio.timeout(SECONDS):
        most = 0
        while called_off < 199:
            before = called_off
            await asyncio.sleep(0)
            most = max(most, called_off - before)
    assert 0 < most <= 64


class FailsOnce(Bindings):
    """Fails the first Binding of each pod in one way; remembers the annotations of each Binding.

    `failure` is a status, or one of "reset", "lost answer" (it was carried out) and "no answer".
    """

    def __init__(self, failure: int | str) -> None:
        super().__init__()
        self.failure = failure
        self.sent: dict[str, list[dict[str, str]]] = {}
        self._lost: dict[str, dict[str, Any]] = {}

    def __call__(self, request: Request) -> None:
        name = request.path.split("/")[-1]
        if request.method == "GET" and name in self._lost:
            request.reply(self._lost[name])
        elif request.path.endswith("/binding"):
            self._bind(request, request.body["metadata"])
        else:
            super().__call__(request)

    def _bind(self, request: Request, metadata: dict[str, Any]) -> None:
        sent = self.sent.setdefault(metadata["name"], [])
        sent.append(metadata.get("annotations", {}))
        if len(sent) > 1:
            super().__call__(request)
        elif isinstance(self.failure, int):
            request.refuse(self.failure, "Refused", "no")
        elif self.failure == "lost answer":
            target = request.body["target"]["name"]
            self.made.append((metadata["name"], target))
            self._lost[metadata["name"]] = {"metadata": metadata, "spec": {"nodeName": target}}
            request.cut()
        elif self.failure == "reset":
            request.cut()


def shares(names: Iterable[str], **fields: Any) -> list[dict[str, Any]]:
    """Members of a gang that each fill a card."""
    return [share_pod(name, 16, group="g", **fields) for name in names]


async def assert_nothing_is_kept(engine: Engine, bindings: FailsOnce, names: Iterable[str]) -> None:
    """Another Binding of these pods would carry no annotation."""
    for raw in shares(names):
        await engine.api.bind(parse_pod(raw), "a")
    assert {name: sent[-1] for name, sent in bindings.sent.items()} == {name: {} for name in names}


@pytest.mark.parametrize(
    "failure", [500, 503, 403, 422, 429, 409, "reset", "lost answer", "no answer"]
)
async def test_every_binding_of_a_member_names_its_card_whatever_became_of_the_one_before(
    failure: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 without Retry-After is what is left when the client has waited often enough."""
    monkeypatch.setattr("mooring.engine.groups.binding._PAUSES_SECONDS", (0.0, 0.0))
    bindings, names = FailsOnce(failure), ["g-0", "g-1", "g-2", "g-3"]
    async with (
        ApiServer(bindings) as server,
        ApiClient(Connection(server.url), timeout=0.3) as client,
    ):
        engine = Engine(client, gpu_node("a", 4, 16), pod_group("g", 4))
        put_profile(engine.scheduler_state, plugins=SHARED)
        engine.pending(*shares(names))
        with engine.running():
            await until(lambda: len(bindings.made) == 4 and not engine.loop.binding)
        cards = {sent[-1][f"{GPUSHARE}_IDX"] for sent in bindings.sent.values()}
        assert cards == {"0", "1", "2", "3"}
        assert all(sent == [sent[0]] * len(sent) for sent in bindings.sent.values())
        assert {len(sent) for sent in bindings.sent.values()} == (
            {1} if failure == "lost answer" else {2}
        )
        await assert_nothing_is_kept(engine, bindings, names)


async def test_a_member_that_has_gone_is_not_bound_again_and_leaves_no_annotation() -> None:
    bindings, names = FailsOnce(404), ["g-0", "g-1"]
    async with ApiServer(bindings) as server, ApiClient(Connection(server.url)) as client:
        engine = Engine(client, gpu_node("a", 4, 16), pod_group("g", 2))
        put_profile(engine.scheduler_state, plugins=SHARED)
        engine.pending(*shares(names))
        with engine.running():
            await until(lambda: len(bindings.sent) == 2 and not engine.loop.binding)
        assert {len(sent) for sent in bindings.sent.values()} == {1}
        assert not engine.scheduler_state.state.pods.assumed
        await assert_nothing_is_kept(engine, bindings, names)
