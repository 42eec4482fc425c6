"""From a chosen node to a bound pod, and back where that fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from extending import GivenObjects
from mooring.engine.binding import (
    AssumedPod,
    BindingFailed,
    PodRejected,
    after_binding,
    assume_reserve_and_permit,
    bind,
)
from mooring.engine.extenders.extenders import Extenders
from mooring.engine.groups.binding import CalledOff, GroupBinding
from mooring.framework.verdicts import SKIP, PluginError, Skip, Unschedulable, Wait
from mooring.kube.errors import InvalidError, NotFoundError
from mooring.kube.resources import Call
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.model.pod_group import GroupKey, GroupSource, parse_pod_group
from mooring.state.pod_groups import PodGroupState
from mooring.testing.builders import node, pod, pod_group
from mooring.testing.fakes import FakeApi
from scheduler_states import put_profile, scheduler_state

WEB = parse_pod(pod("web"))
NO_EXTENDERS = Extenders(GivenObjects())
NOT_FOUND = NotFoundError(Call("create", "pods/binding"), "no such pod", status=404)


async def nothing_said(_pod: Pod) -> None:
    """No report about the pod is being written."""


class Step:
    """A plugin of every point from reserve on that says when it is called, and does `as_told`.

    `as_told` maps a point to what it answers, or to the error it raises.
    """

    row_local: ClassVar[bool] = True

    def __init__(self, name: str, said: list[str], **as_told: Any) -> None:
        self.name = name
        self._said = said
        self._as_told = as_told

    def _answer(self, point: str) -> Any:
        self._said.append(f"{point} {self.name}")
        answer = self._as_told.get(point)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reserve(self, _pod: Pod, _node: str) -> Unschedulable | None:
        answer: Unschedulable | None = self._answer("reserve")
        return answer

    def unreserve(self, _pod: Pod, _node: str) -> None:
        self._answer("unreserve")

    def permit(self, _pod: Pod, _node: str) -> Wait | Unschedulable | None:
        answer: Wait | Unschedulable | None = self._answer("permit")
        return answer

    async def pre_bind(self, _pod: Pod, _node: str) -> None:
        work: Callable[[], Awaitable[None]] | None = self._answer("pre_bind")
        if work is not None:
            await work()

    async def bind(self, _pod: Pod, _node: str) -> Skip | None:
        answer: Skip | None = self._answer("bind")
        return answer

    async def post_bind(self, _pod: Pod, _node: str) -> None:
        self._answer("post_bind")


class Stage:
    """A cluster of two nodes, a pod, and what was said and heard."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.scheduler_state = scheduler_state(node("a"), node("b"), api=self.api)
        self.profile = put_profile(self.scheduler_state)
        self.scheduler_state.queue.add(WEB, self.profile.pipeline, 0.0)
        self.said: list[str] = []
        self.heard: list[ClusterEvent] = []
        self.scheduler_state.state.on_events(self.heard.extend)

    def take(self, row: int = 0, **points: list[Step]) -> AssumedPod:
        """The pod is assumed and reserved by a profile with these plugins alone at `points`."""
        queued = self.scheduler_state.queue.get(WEB.uid)
        assert queued is not None
        none = dict.fromkeys(("reserve", "permit", "pre_bind", "bind"), ())
        chosen: dict[str, Any] = none | {point: tuple(steps) for point, steps in points.items()}
        distributions = {step.name: "acme" for steps in points.values() for step in steps}
        pipeline = replace(self.profile.pipeline, **chosen, distributions=distributions)
        return assume_reserve_and_permit(queued, row, pipeline, self.scheduler_state, now=0.0)

    async def bind(self, attempted: AssumedPod) -> None:
        """As the loop does it: by a task of its own."""
        await asyncio.create_task(bind(attempted, self.scheduler_state, NO_EXTENDERS, nothing_said))

    def step(self, name: str, **as_told: Any) -> Step:
        """A plugin that speaks here."""
        return Step(name, self.said, **as_told)

    def is_assumed(self) -> bool:
        """Whether the pod is counted on the node."""
        return self.scheduler_state.state.pods.get(WEB.uid) is not None

    def heard_actions(self) -> list[Action]:
        """The actions of the events that were delivered."""
        return [change.action for change in self.heard]


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_bound_pod_stays_assumed(stage: Stage) -> None:
    every = stage.step("One")
    attempted = stage.take(reserve=[every], permit=[every], pre_bind=[every], bind=[every])
    assert attempted.permitted is None
    await stage.bind(attempted)
    assert stage.said == [f"{point} One" for point in ("reserve", "permit", "pre_bind", "bind")]
    assert stage.is_assumed()
    assert stage.heard_actions() == [Action.ADD]


@pytest.mark.parametrize("ends", ["bound", "failed", "cancelled", "rejected at Permit"])
async def test_what_was_annotated_for_an_attempt_is_taken_back_when_it_has_ended(
    stage: Stage, ends: str
) -> None:
    """Else it would go with the next Binding, to another node, or be kept for ever."""
    begun = asyncio.Event()

    async def annotate() -> None:
        stage.api.annotate(WEB, {"card": "0"})
        begun.set()
        if ends == "cancelled":
            await asyncio.Event().wait()

    async def carried() -> None:
        assert stage.api.annotations == {WEB.key: {"card": "0"}}

    permit = stage.step("Gang", permit=Wait(10.0))
    prepares = stage.step("Cards", pre_bind=annotate)
    looks = stage.step("Looks", pre_bind=carried)
    fails = {"bind": RuntimeError("no")} if ends == "failed" else {}
    binder = stage.step("Binder", **fails)
    assumed = stage.take(permit=[permit], pre_bind=[prepares, looks], bind=[binder])
    binding = asyncio.create_task(stage.bind(assumed))
    if ends == "rejected at Permit":
        stage.api.annotate(WEB, {"card": "0"})
        stage.scheduler_state.waiting.reject(WEB.uid, "Gang", "no")
    else:
        stage.scheduler_state.waiting.allow(WEB.uid, "Gang")
        await begun.wait()
    if ends == "cancelled":
        stage.scheduler_state.in_pre_bind[WEB.uid]()
    (ended,) = await asyncio.gather(binding, return_exceptions=True)
    assert (ended is None) is (ends == "bound")
    assert stage.api.annotations == {}


async def test_plugins_are_unreserved_in_reverse_and_the_pod_is_forgotten_last(
    stage: Stage,
) -> None:
    one, two = stage.step("One"), stage.step("Two")
    failing = stage.step("Failing", bind=RuntimeError("no route"))
    attempted = stage.take(reserve=[one, two], bind=[failing])
    with pytest.raises(BindingFailed, match=r'rejected: running Bind plugin "Failing": no route'):
        await stage.bind(attempted)
    assert stage.said[-2:] == ["unreserve Two", "unreserve One"]
    assert not stage.is_assumed()
    assert stage.heard_actions() == [Action.ADD, Action.DELETE]


def test_a_rejection_at_reserve_unreserves_all_as_in_kube_scheduler(stage: Stage) -> None:
    one, three = stage.step("One"), stage.step("Three")
    two = stage.step("Two", reserve=Unschedulable("the licences are gone"))
    with pytest.raises(PodRejected) as rejected:
        stage.take(reserve=[one, two, three])
    assert rejected.value.plugin == "Two"
    assert rejected.value.message == "0/1 nodes are available: 1 the licences are gone."
    assert stage.said == [
        "reserve One",
        "reserve Two",
        "unreserve Three",
        "unreserve Two",
        "unreserve One",
    ]
    assert not stage.is_assumed()


def test_an_error_in_unreserve_does_not_stop_the_unreserve_of_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    one = stage.step("One")
    two = stage.step("Two", reserve=Unschedulable("no"), unreserve=RuntimeError("stuck"))
    with pytest.raises(PodRejected):
        stage.take(reserve=[one, two])
    assert stage.said[-1] == "unreserve One"
    assert not stage.is_assumed()
    assert caplog.messages == ["plugin Two of acme: failed at Unreserve: RuntimeError: stuck"]


def test_a_rejection_at_permit_forgets_the_pod(stage: Stage) -> None:
    with pytest.raises(PodRejected) as rejected:
        stage.take(
            reserve=[stage.step("One")], permit=[stage.step("Gang", permit=Unschedulable("no"))]
        )
    assert rejected.value.plugin == "Gang"
    assert stage.said == ["reserve One", "permit Gang", "unreserve One"]
    assert not stage.is_assumed()


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_pod_that_is_rejected_at_once_causes_no_event(stage: Stage, point: str) -> None:
    points = {point: [stage.step("One", **{point: Unschedulable("no")})]}
    with pytest.raises(PodRejected):
        stage.take(0, **points)
    assert stage.heard_actions() == []


def test_a_pod_that_waits_at_permit_is_announced(stage: Stage) -> None:
    async def take() -> None:
        stage.take(permit=[stage.step("Gang", permit=Wait(10.0))])

    asyncio.run(take())
    assert stage.heard_actions() == [Action.ADD]


@pytest.mark.parametrize(("accepted", "more"), [(True, [Action.ADD]), (False, [])])
def test_a_pod_assumed_on_another_node_frees_its_nominated_node(
    stage: Stage, more: list[Action], *, accepted: bool
) -> None:
    stage.scheduler_state.state.nominate(WEB, "a")
    step = stage.step("One", reserve=None if accepted else Unschedulable("no"))
    if accepted:
        stage.take(1, reserve=[step])
    else:
        with pytest.raises(PodRejected):
            stage.take(1, reserve=[step])
    assert stage.heard_actions() == [Action.DELETE, *more]
    withdrawn = stage.heard[0].before
    assert isinstance(withdrawn, Pod)
    assert withdrawn.nominated_node == "a"


def test_a_rejected_pod_whose_nomination_is_lost_frees_its_node_for_others(stage: Stage) -> None:
    stage.scheduler_state.state.nominate(WEB, "a")
    with pytest.raises(PodRejected):
        stage.take(0, reserve=[stage.step("One", reserve=Unschedulable("no"))])
    assert stage.heard_actions() == [Action.DELETE]
    assert len(stage.scheduler_state.state.nominations) == 0


def test_a_predecessor_stays_on_its_node_until_the_watch_shows_its_end(stage: Stage) -> None:
    raw = pod("web", node="a")
    raw["metadata"]["uid"] = "predecessor"
    stage.scheduler_state.state.put(Kind.POD, "predecessor", parse_pod(raw))
    stage.heard.clear()
    with pytest.raises(PodRejected):
        stage.take(reserve=[stage.step("One", reserve=Unschedulable("no"))])
    assert stage.heard_actions() == []
    assert [placed.pod.uid for placed in stage.scheduler_state.state.pods] == ["predecessor"]


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_plugin_that_fails_is_named_and_everything_is_undone(stage: Stage, point: str) -> None:
    one, broken = stage.step("One"), stage.step("Broken", **{point: KeyError("licence")})
    points: dict[str, list[Step]] = {"reserve": [one], point: [one, broken]}
    named = f"running {point.capitalize()} plugin \"Broken\": 'licence'"
    with pytest.raises(PluginError, match=named):
        stage.take(0, **points)
    assert stage.said[-1] == "unreserve One"
    assert not stage.is_assumed()
    assert stage.heard_actions() == []


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_result_of_the_wrong_type_fails(stage: Stage, point: str) -> None:
    points = {point: [stage.step("Odd", **{point: "yes"})]}
    with pytest.raises(PluginError, match=f"plugin Odd of acme: {point} returned str"):
        stage.take(0, **points)
    assert not stage.is_assumed()


@pytest.mark.parametrize(("seconds", "deadline"), [(10.0, 10.0), (1e9, 900.0)])
async def test_a_pod_waits_at_permit_for_15_minutes_at_most(
    stage: Stage, seconds: float, deadline: float
) -> None:
    stage.take(permit=[stage.step("Gang", permit=Wait(seconds))])
    (waiting,) = stage.scheduler_state.waiting
    assert waiting.pending == {"Gang": deadline}


async def test_a_pod_waits_for_every_permit_before_it_is_bound(stage: Stage) -> None:
    gangs = [stage.step(name, permit=Wait(10.0)) for name in ("First", "Second")]
    attempted = stage.take(permit=gangs, bind=[stage.step("Binder")])
    binding = asyncio.create_task(stage.bind(attempted))
    stage.scheduler_state.waiting.allow(WEB.uid, "First")
    assert attempted.permitted is not None
    assert not attempted.permitted.done()
    stage.scheduler_state.waiting.allow(WEB.uid, "Second")
    await binding
    assert stage.said[-1] == "bind Binder"
    assert stage.is_assumed()


async def test_a_wait_that_ends_in_a_rejection_forgets_the_pod(stage: Stage) -> None:
    attempted = stage.take(permit=[stage.step("Gang", permit=Wait(10.0))])
    stage.scheduler_state.waiting.expire(10.0)
    with pytest.raises(PodRejected, match="timeout after waiting 10s at plugin Gang"):
        await stage.bind(attempted)
    assert not stage.is_assumed()


async def test_the_first_binder_that_does_not_skip_binds(stage: Stage) -> None:
    names = ("Skips", "Binds", "Never")
    skips, binds, never = (
        stage.step(name, bind=SKIP if name == "Skips" else None) for name in names
    )
    await stage.bind(stage.take(bind=[skips, binds, never]))
    assert stage.said == ["bind Skips", "bind Binds"]


async def test_a_pod_that_every_binder_skips_is_not_bound(stage: Stage) -> None:
    attempted = stage.take(bind=[stage.step("Skips", bind=SKIP)])
    with pytest.raises(BindingFailed, match="no bind plugin took the pod"):
        await stage.bind(attempted)
    assert not stage.is_assumed()


@pytest.mark.parametrize(("point", "gone"), [("bind", True), ("pre_bind", False)])
async def test_only_at_bind_does_not_found_mean_that_the_pod_has_gone(
    stage: Stage, point: str, *, gone: bool
) -> None:
    failing = stage.step("Failing", **{point: NOT_FOUND})
    points: dict[str, list[Step]] = {point: [failing]}
    attempted = stage.take(0, **points)
    with pytest.raises(BindingFailed) as failed:
        await stage.bind(attempted)
    assert failed.value.gone is gone
    assert "no such pod" in str(failed.value)


@pytest.mark.parametrize("point", ["bind", "pre_bind"])
async def test_a_denied_write_is_told_from_a_fault_in_the_words_of_who_denies_it(
    stage: Stage, point: str
) -> None:
    words = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not today"
    denial = InvalidError(Call("create", "pods/binding"), words, status=422)
    points: dict[str, list[Step]] = {point: [stage.step("Denied", **{point: denial})]}
    with pytest.raises(BindingFailed) as failed:
        await stage.bind(stage.take(0, **points))
    assert failed.value.condition == "AdmissionDenied"
    assert words in str(failed.value)


async def test_a_binding_can_be_called_off_only_while_it_is_prepared(stage: Stage) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    volumes = stage.step("Volumes", pre_bind=work)
    attempted = stage.take(reserve=[volumes], pre_bind=[volumes], bind=[stage.step("Binder")])
    binding = asyncio.create_task(stage.bind(attempted))
    await begun.wait()
    stage.scheduler_state.in_pre_bind[WEB.uid]()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert stage.scheduler_state.in_pre_bind == {}
    assert stage.said == ["reserve Volumes", "pre_bind Volumes", "unreserve Volumes"]
    assert not stage.is_assumed()


@pytest.mark.parametrize("plugin", ["ends", "goes on", "fails", "never ends"])
async def test_a_member_of_a_group_that_is_called_off_is_free_whatever_its_plugin_makes_of_that(
    stage: Stage, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.engine.binding._TO_END_SECONDS", 0.0)
    begun, over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            if plugin == "ends":
                raise
            if plugin == "fails":
                raise RuntimeError("not now") from cancelled
            if plugin == "never ends":
                await over.wait()

    step = stage.step("Volumes", pre_bind=work)
    attempted = stage.take(reserve=[step], pre_bind=[step], bind=[step])
    group = PodGroupState(GroupKey(GroupSource.KUBERNETES, "default", "g"))
    group.definition = parse_pod_group(pod_group("g", 2))
    attempted.together = together = GroupBinding(group, 2)
    other = asyncio.create_task(together.all_permitted())
    binding = asyncio.create_task(stage.bind(attempted))
    await begun.wait()
    await other
    together.failed("the other one has gone")
    with pytest.raises(CalledOff, match="the other one has gone"):
        await binding
    assert stage.said == ["reserve Volumes", "pre_bind Volumes", "unreserve Volumes"]
    assert not stage.is_assumed()
    over.set()


async def test_an_error_in_post_bind_is_only_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    failing = stage.step("Failing", post_bind=RuntimeError("too late"))
    attempted = stage.take(bind=[stage.step("Binder")], post_bind=[failing, stage.step("Next")])
    await stage.bind(attempted)
    with caplog.at_level(logging.ERROR):
        await after_binding(attempted)
    assert stage.said[-2:] == ["post_bind Failing", "post_bind Next"]
    assert "plugin Failing of acme: failed at PostBind: RuntimeError: too late" in caplog.text
    assert stage.is_assumed()


async def test_a_plugin_that_swallows_the_cancellation_does_not_bind_a_pod_that_was_called_off(
    stage: Stage,
) -> None:
    """A preemption counts on it: the pod's node is promised to another pod."""
    started = asyncio.Event()

    async def goes_on() -> None:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    step = stage.step("Stubborn", pre_bind=goes_on)
    attempted = stage.take(pre_bind=[step], bind=[step])
    binding = asyncio.create_task(stage.bind(attempted))
    await started.wait()
    stage.scheduler_state.in_pre_bind[WEB.uid]()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert stage.said == ["pre_bind Stubborn"]
    assert not stage.is_assumed()
