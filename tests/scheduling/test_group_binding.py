"""Members of a group wait for each other before PreBind and Bind, and are called off together."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from devices.objects import GPUSHARE, gpu_node, share_pod
from engines import Bindings, Engine, path_of, until
from kube.api_server import ApiServer, Request
from mooring.groups.model.pod_group import (
    GroupKey,
    GroupSource,
    parse_pod_group,
    parse_volcano_pod_group,
)
from mooring.groups.state.pod_groups import PodGroupState
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.group_binding import CalledOff, GroupBinding
from mooring.scheduling.plugin_api import BindAttempt
from mooring.testing.builders import node, pod, pod_group, uid_of, volcano_pod_group
from scheduler_states import put_profile

SECONDS = 60.0
SHARED = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


class FailedError(Exception):
    """A binding failed; `gone` says that the pod no longer exists."""

    def __init__(self, *, gone: bool = False) -> None:
        super().__init__("refused")
        self.gone = gone


def group_of(minimum: int) -> PodGroupState:
    """Return a group without members on nodes."""
    group = PodGroupState(GroupKey(GroupSource.KUBERNETES, "default", "g"))
    group.definition = parse_pod_group(pod_group("g", minimum))
    return group


def pods(count: int, **annotations: str) -> list[Pod]:
    return [parse_pod(pod(f"p{number}", annotations=annotations)) for number in range(count)]


(MEMBER,) = pods(1)


def binding(members: int, *, needed: int) -> GroupBinding:
    return GroupBinding(group_of(needed), pods(members))


async def permitted(group: GroupBinding) -> None:
    """Wait at the meeting before PreBind, as a member does."""
    with group.may_call_off():
        await group.all_at(group.permitted)


async def ready(group: GroupBinding) -> None:
    """Wait at the meeting before Bind, as a member does."""
    with group.may_call_off():
        await group.all_at(group.ready)


async def arrived(*tasks: "asyncio.Task[None]") -> int:
    """Let all tasks run as far as possible; return how many have ended."""
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


async def test_members_go_on_when_all_have_come() -> None:
    group = binding(2, needed=2)
    first = asyncio.create_task(permitted(group))
    assert await arrived(first) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(first, permitted(group))


async def test_a_member_that_is_not_needed_is_not_waited_for_once_it_has_failed() -> None:
    group = binding(3, needed=2)
    waiting = [asyncio.create_task(ready(group)) for _ in range(2)]
    assert await arrived(*waiting) == 0
    group.failed("no volume", MEMBER)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*waiting)


async def test_the_others_are_called_off_when_a_needed_member_fails() -> None:
    group = binding(2, needed=2)
    waiting = asyncio.create_task(permitted(group))
    await arrived(waiting)
    group.failed("no volume", MEMBER)
    with pytest.raises(CalledOff, match="no volume"):
        await waiting


async def test_all_are_called_off_if_the_minimum_is_raised_before_the_first_is_bound() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, pods(2))
    waiting = asyncio.create_task(ready(group))
    assert await arrived(waiting) == 0
    definition.definition = group_of(3).definition
    async with asyncio.timeout(SECONDS):
        ended = await asyncio.gather(ready(group), waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["the minimum of the group is 3 now"] * 2


async def test_all_are_called_off_if_one_fails_that_a_raised_minimum_needs() -> None:
    definition = group_of(2)
    group = GroupBinding(definition, pods(3))
    waiting = [asyncio.create_task(ready(group)) for _ in range(2)]
    assert await arrived(*waiting) == 0
    definition.definition = parse_pod_group(pod_group("g", 3))
    group.failed("no volume", MEMBER)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [*map(str, ended)] == ["no volume"] * 2


async def test_all_are_called_off_if_a_role_has_too_few_members_left() -> None:
    key = GroupKey(GroupSource.VOLCANO, "default", "g")
    state, roles = PodGroupState(key), {"ps": 1, "worker": 2}
    state.definition = parse_volcano_pod_group(volcano_pod_group("g", 3, minTaskMember=roles))
    workers = pods(4, **{"volcano.sh/task-spec": "worker"})
    parameter_server = pods(1, **{"volcano.sh/task-spec": "ps"})
    group = GroupBinding(state, (*workers, *parameter_server))
    for worker in workers[:2]:
        group.failed("no volume", worker)
    assert group.called_off is None  # as many are left as the roles need
    group.failed("deleted", *parameter_server)
    assert group.called_off == "deleted"  # three would be enough, but not of each role


async def test_none_is_called_off_if_the_minimum_is_raised_once_the_first_may_be_bound() -> None:
    """Otherwise the bound members would stay bound although they are too few."""
    definition = group_of(2)
    group = GroupBinding(definition, pods(2))
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(ready(group), ready(group))
    definition.definition = group_of(3).definition
    group.join(pods(1))
    async with asyncio.timeout(SECONDS):
        await ready(group)
    assert group.called_off is None


async def test_a_member_that_leaves_a_meeting_is_not_counted_there() -> None:
    group = binding(3, needed=2)
    leaving = asyncio.create_task(ready(group))
    await arrived(leaving)
    leaving.cancel()
    await arrived(leaving)
    group.failed("deleted", MEMBER)
    waiting = asyncio.create_task(ready(group))
    assert await arrived(waiting) == 0
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(waiting, ready(group))


async def test_a_binding_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    group, calls = binding(1, needed=1), 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise FailedError
        return "bound"

    assert await group.bind(call, FailedError, nullcontext) == "bound"
    assert calls == 3


async def test_a_pod_that_is_gone_is_not_bound_again() -> None:
    group, calls = binding(1, needed=1), 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise FailedError(gone=True)

    with pytest.raises(FailedError):
        await group.bind(call, FailedError, nullcontext)
    assert calls == 1


async def test_a_binding_that_has_not_begun_is_called_off() -> None:
    group = binding(2, needed=2)
    group.failed("quota", MEMBER)

    async def call() -> None:
        raise AssertionError

    with pytest.raises(CalledOff, match="quota"):
        await group.bind(call, FailedError, nullcontext)


async def test_members_of_a_large_group_go_on_a_few_at_a_time() -> None:
    """Otherwise the next steps of all members together would block all other work."""
    group, passed = binding(300, needed=300), 0

    async def member() -> None:
        nonlocal passed
        await permitted(group)
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
            await ready(group)
        called_off += 1

    waiting = [asyncio.create_task(member()) for _ in range(199)]
    assert await arrived(*waiting) == 0
    group.failed("no volume", MEMBER)
    async with asyncio.timeout(SECONDS):
        most = 0
        while called_off < 199:
            before = called_off
            await asyncio.sleep(0)
            most = max(most, called_off - before)
    assert 0 < most <= 64


class FailsOnce(Bindings):
    """Fails the first Binding of each pod; records the annotations of each Binding.

    `failure` is a status, or "reset", "lost answer" (the Binding is carried out) or "no answer".
    """

    def __init__(self, failure: int | str) -> None:
        super().__init__()
        self.failure = failure
        self.annotations: dict[str, list[dict[str, str]]] = {}
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
        sent = self.annotations.setdefault(metadata["name"], [])
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
    """Return members of a gang that each use a whole card."""
    return [share_pod(name, 16, group="g", **fields) for name in names]


async def assert_nothing_is_kept(engine: Engine, bindings: FailsOnce, names: Iterable[str]) -> None:
    """Check that another Binding of these pods would have no annotations."""
    for member in map(parse_pod, shares(names)):
        engine.scheduler_state.at_bind[member.uid] = BindAttempt("a", lambda: True)
        await engine.api.bind(member, "a")
    assert {name: sent[-1] for name, sent in bindings.annotations.items()} == {
        name: {} for name in names
    }


@pytest.mark.parametrize(
    "failure", [500, 503, 403, 422, 429, 409, "reset", "lost answer", "no answer"]
)
async def test_every_binding_of_a_member_names_its_card_whatever_became_of_the_one_before(
    failure: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself retries 429 with Retry-After; this is a 429 after its last retry."""
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    bindings, names = FailsOnce(failure), ["g-0", "g-1", "g-2", "g-3"]
    seconds = 1.0 if failure == "no answer" else 60.0
    async with (
        ApiServer(bindings) as server,
        ApiClient(Connection(server.url), timeout=seconds) as client,
    ):
        engine = Engine(client, gpu_node("a", 4, 16), pod_group("g", 4))
        put_profile(engine.scheduler_state, plugins=SHARED)
        engine.pending(*shares(names))
        with engine.running():
            await until(lambda: len(bindings.made) == 4 and not engine.loop.binding)
        cards = {sent[-1][f"{GPUSHARE}_IDX"] for sent in bindings.annotations.values()}
        assert cards == {"0", "1", "2", "3"}
        assert all(sent == [sent[0]] * len(sent) for sent in bindings.annotations.values())
        assert {len(sent) for sent in bindings.annotations.values()} == (
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
            await until(lambda: len(bindings.annotations) == 2 and not engine.loop.binding)
        assert {len(sent) for sent in bindings.annotations.values()} == {1}
        assert not engine.scheduler_state.state.pods.assumed
        await assert_nothing_is_kept(engine, bindings, names)


async def test_a_binding_is_not_sent_again_when_its_group_is_called_off_meanwhile(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was too busy for the first Binding; a second one would bind a part of the gang."""
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", ())
    bindings.hold, bindings.refuse = {"g-1"}, {"g-0": 403}
    engine = Engine(client, node("a", cpu="2"), pod_group("g", 2))
    engine.pending(*(pod(name, cpu="1", group="g") for name in ("g-0", "g-1")))
    with engine.running():
        await until(lambda: "g-1" in bindings.held and bindings.statuses)
        busy = bindings.held.pop("g-1")
        bindings.hold = set()
        busy.refuse(429, "TooManyRequests", "busy", **{"Retry-After": "0"})
        await until(lambda: not engine.loop.binding)
    assert (bindings.sent.count("g-1"), bindings.made) == (1, [])
    assert "403" in str(path_of(engine, "g-1"))
    await engine.close()


PLACES = AT_PERMIT, IN_PRE_BIND, AT_A_MEETING, IN_A_PAUSE = (
    "at Permit",
    "in PreBind",
    "at a meeting",
    "in a pause",
)
"""Where members of a gang wait, and no Binding of them is under way."""


class Stage:
    """An engine whose node has room for one gang of three, and a clock that the test moves."""

    def __init__(self, client: ApiClient, bindings: Bindings) -> None:
        self.now = 1000.0
        self.bindings = bindings
        self.engine = Engine(client, node("a", cpu="3"), pod_group("g", 3), clock=lambda: self.now)
        self.scheduler = self.engine.scheduler_state

    def pending(self, **does: str) -> None:
        """Add these pods as members; `does` says how plugins and API server treat each of them."""
        for name, what in does.items():
            self.engine.pending(pod(name, cpu="1", group="g", labels={"does": what}))

    @property
    def assumed(self) -> set[str]:
        return {placed.pod.name for placed in self.scheduler.state.pods.assumed.values()}

    def deleted(self, name: str) -> None:
        """Let kopf's watch show the deletion of the pod."""
        self.engine.pod_enqueuer.gone(uid_of(name))

    async def status_is_being_written(self, name: str) -> None:
        """Wait until the API server holds the status of this member's last attempt."""
        self.bindings.hold = {name}
        self.engine.reports.error(
            parse_pod(pod(name, cpu="1", group="g")), "the last attempt failed"
        )
        await until(lambda: name in self.bindings.held)

    async def at_permit(self, *names: str) -> None:
        """Wait until these members, and no others, are at Permit."""
        await until(lambda: {w.pod.name for w in self.scheduler.waiting} == {*names})

    async def preparing(self, *names: str, sent: int = 0) -> None:
        """Wait until exactly these members can be called off, after Permit.

        `sent` is the number of Bindings sent so far.
        """
        uids = {f"pod-default-{name}" for name in names}
        await until(
            lambda: self.scheduler.in_pre_bind.keys() == uids and len(self.bindings.sent) == sent
        )

    async def held(self, place: str, *names: str) -> None:
        """Bring these members to this place, where they wait; the last one may wait at Permit."""
        does = {AT_PERMIT: "wait", IN_PRE_BIND: "wait in pre_bind"}.get(place, "")
        last = "wait" if place == AT_A_MEETING else does
        self.bindings.refuse |= dict.fromkeys(names, 500)
        self.pending(**dict.fromkeys(names[:-1], does), **{names[-1]: last})
        match place:
            case "at Permit":
                await self.at_permit(*names)
            case "at a meeting":
                await self.at_permit(names[-1])
                await self.preparing(*names[:-1])
            case _:
                await self.preparing(*names, sent=len(names) if place == IN_A_PAUSE else 0)

    async def called_off(self) -> None:
        """Wait until all members are unreserved, without moving the clock."""
        await until(lambda: not self.engine.loop.binding)
        assert not self.assumed
        assert not len(self.scheduler.waiting)
        assert not self.scheduler.in_pre_bind
        assert not self.scheduler.being_bound

    async def next_attempt(self, *names: str) -> None:
        """Let the next attempt of these members succeed, and wait until the gang is bound."""
        self.bindings.refuse.clear()
        self.bindings.sent.clear()
        self.pending(**dict.fromkeys(names, ""))
        self.now += 20.0
        self.engine.scheduler_state.work.set()
        await until(lambda: len(self.bindings.sent) == 3 and not self.engine.loop.binding)
        assert {name for name, _ in self.bindings.made} == {*names}


@pytest.fixture
async def stage(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    """Yield a stage on which the pauses between two Bindings never end."""
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (3600.0,))
    made = Stage(client, bindings)
    with made.engine.running():
        yield made
        # What is written about members arrives before the server ends.
        made.engine.reports.error(parse_pod(pod("end")), "the end")
        await until(lambda: any("the end" in str(status) for status in bindings.statuses))


@pytest.mark.parametrize("why", ["deleted", "denied", "timed out"])
async def test_members_at_permit_and_at_a_meeting_are_free_when_another_fails_at_permit(
    stage: Stage, why: str
) -> None:
    labels = {"does": "wait", "seconds": "10"}
    stage.engine.pending(pod("fails", cpu="1", group="g", labels=labels))
    stage.pending(waits="wait", meets="")
    await stage.at_permit("fails", "waits")
    await stage.preparing("meets")
    if why == "deleted":
        stage.deleted("fails")
    elif why == "denied":
        stage.scheduler.waiting.reject("pod-default-fails", "Marked", "no")
    else:
        stage.scheduler.waiting.expire(stage.now + 10.0)
    await stage.called_off()
    assert not stage.bindings.sent
    await stage.next_attempt("again" if why == "deleted" else "fails", "waits", "meets")


@pytest.mark.parametrize("why", ["deleted", "fails"])
async def test_members_in_pre_bind_and_at_a_meeting_are_free_when_another_fails_in_pre_bind(
    stage: Stage, why: str
) -> None:
    does = "wait in pre_bind" if why == "deleted" else "fail in pre_bind"
    stage.pending(fails=does, meets="", hangs="wait in pre_bind")
    if why == "deleted":
        await stage.preparing("hangs", "meets", "fails")
        stage.deleted("fails")
    await until(lambda: len(stage.bindings.statuses) == (2 if why == "deleted" else 3))
    await stage.called_off()
    assert not stage.bindings.sent
    await stage.next_attempt("again" if why == "deleted" else "fails", "hangs", "meets")


async def test_a_member_that_pauses_between_two_bindings_is_free_when_another_has_gone(
    stage: Stage,
) -> None:
    stage.bindings.refuse |= {"pauses": 403, "also": 500, "gone": 404}
    stage.bindings.hold = {"gone"}
    stage.pending(pauses="", also="", gone="")
    await until(lambda: "gone" in stage.bindings.held)
    await stage.preparing("pauses", "also", sent=3)
    stage.bindings.answer("gone")
    await stage.called_off()
    assert sorted(stage.bindings.sent) == ["also", "gone", "pauses"]
    stage.deleted("gone")
    await stage.next_attempt("again", "pauses", "also")


async def test_a_member_that_pauses_between_two_bindings_and_is_deleted_frees_its_gang(
    stage: Stage,
) -> None:
    await stage.held(IN_A_PAUSE, "pauses", "also", "deleted")
    stage.deleted("deleted")
    await stage.called_off()
    assert path_of(stage.engine, "deleted")[-1] == {"step": "gone"}
    await stage.next_attempt("again", "pauses", "also")


@pytest.mark.parametrize("answer", [201, 403])
async def test_a_binding_that_was_sent_is_waited_for_and_not_repeated(
    stage: Stage, answer: int
) -> None:
    """A sent Binding may bind its pod; the other members are unreserved before its answer."""
    stage.bindings.refuse |= {"pauses": 500, "gone": 404}
    stage.bindings.hold = {"sent", "gone"}
    stage.pending(pauses="", sent="", gone="")
    await until(lambda: {*stage.bindings.held} == {"sent", "gone"})
    await stage.preparing("pauses", sent=3)
    stage.bindings.answer("gone")
    await until(lambda: stage.engine.loop.binding == 1)
    assert stage.assumed == {"sent"}
    if answer != 201:
        stage.bindings.refuse["sent"] = answer
    stage.bindings.answer("sent")
    await until(lambda: not stage.engine.loop.binding)
    assert stage.bindings.sent.count("sent") == 1
    assert bool(stage.bindings.made) is (answer == 201)
    assert stage.assumed == {name for name, _ in stage.bindings.made}


async def test_a_member_that_waits_for_its_turn_to_be_bound_is_free_and_never_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._MOST_REQUESTS", 2)
    stage.bindings.hold = {"one", "two", "three"}
    stage.pending(one="", two="", three="")
    await until(lambda: len(stage.bindings.held) == 2)
    gone, sent = stage.bindings.held
    stage.bindings.refuse[gone] = 404
    stage.bindings.answer(gone)
    await until(lambda: stage.engine.loop.binding == 1)
    assert stage.assumed == {sent}
    stage.bindings.answer(sent)
    await until(lambda: not stage.engine.loop.binding)
    assert sorted(stage.bindings.sent) == sorted((gone, sent))


async def test_a_member_that_is_bound_does_not_keep_its_gang_from_the_next_attempt_in_post_bind(
    stage: Stage,
) -> None:
    stage.bindings.refuse |= {"gone": 404}
    stage.bindings.hold = {"gone"}
    stage.pending(bound="wait in post_bind", waits="wait in post_bind", gone="")
    await until(lambda: len(stage.bindings.made) == 2)
    stage.bindings.answer("gone")
    await until(lambda: stage.engine.loop.binding == 2)
    stage.deleted("gone")
    stage.bindings.refuse.clear()
    stage.pending(again="")
    stage.now += 20.0
    stage.engine.scheduler_state.work.set()
    await until(lambda: len(stage.bindings.made) == 3)
    await stage.engine.loop.finish(0.0)


@pytest.mark.parametrize("why", ["its gang is called off", "it is deleted"])
async def test_a_member_whose_last_status_is_still_being_written_is_free(
    stage: Stage, why: str
) -> None:
    await stage.status_is_being_written("written")
    stage.pending(fails="wait", meets="", written="")
    await stage.at_permit("fails")
    await stage.preparing("meets", "written")
    stage.deleted("fails" if why == "its gang is called off" else "written")
    await stage.called_off()
    stage.bindings.answer("written")
    if why == "its gang is called off":
        await stage.next_attempt("again", "meets", "written")
    else:
        await stage.next_attempt("again", "meets", "fails")


async def test_no_member_is_bound_while_the_last_status_of_one_is_being_written(
    stage: Stage,
) -> None:
    """Otherwise the late status could call a bound pod unschedulable."""
    await stage.status_is_being_written("written")
    stage.pending(one="", two="", written="")
    await stage.preparing("one", "two", "written")
    await arrived()
    assert not stage.engine.loop.schedule_one.requesting
    stage.bindings.answer("written")
    await until(lambda: len(stage.bindings.made) == 3)


@pytest.mark.parametrize("why", ["deleted", "its gang is called off"])
async def test_a_pod_that_goes_before_the_task_that_binds_it_has_begun_is_free(
    stage: Stage, why: str
) -> None:
    """Otherwise its binding would wait in PreBind for ever, and nothing would call it off."""
    stage.pending(first="wait", last="wait in pre_bind", meets="")
    await stage.at_permit("first")
    stage.scheduler.waiting.allow("pod-default-first", "Marked")
    stage.deleted("first" if why == "deleted" else "last")
    await stage.called_off()


@pytest.mark.parametrize("place", PLACES)
async def test_a_gang_of_which_a_member_is_preempted_is_called_off_whole_and_nobody_is_deleted(
    stage: Stage, place: str
) -> None:
    await stage.held(place, "one", "two", "three")
    stage.engine.pending(pod("high", cpu="1", priority=10))
    await until(lambda: stage.bindings.made)
    await until(lambda: not stage.engine.loop.binding)
    assert stage.bindings.made == [("high", "a")]
    assert not stage.bindings.deleted
    assert stage.assumed == {"high"}


@pytest.mark.parametrize("place", PLACES)
async def test_a_scheduler_that_stops_frees_a_gang_and_writes_nothing_about_it(
    stage: Stage, place: str
) -> None:
    """A gang with a member at Permit is called off at once; other gangs get the remaining time."""
    await stage.held(place, "one", "two", "three")
    stage.engine.loop.halt()
    await stage.engine.loop.finish(SECONDS if place in (AT_PERMIT, AT_A_MEETING) else 0.0)
    await stage.called_off()
    stage.engine.reports.error(parse_pod(pod("marker")), "the marker")
    await until(lambda: stage.bindings.statuses)
    (status,) = stage.bindings.statuses
    assert status["conditions"][0]["message"] == "the marker"


async def test_a_leader_that_loses_its_lease_in_a_pause_sends_no_further_binding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0,))
    bindings, leading = FailsOnce(500), True

    def lose() -> bool:
        return leading

    async with (
        ApiServer(bindings) as server,
        ApiClient(Connection(server.url), may_write=lose) as client,
    ):
        engine = Engine(client, node("a"), pod_group("g", 1))
        engine.pending(pod("g-0", group="g"))
        with engine.running():
            await until(lambda: bindings.annotations)
            leading = False
            engine.loop.halt()
            await until(lambda: not engine.loop.binding)
    assert bindings.annotations == {"g-0": [{}]}
    assert not bindings.statuses
