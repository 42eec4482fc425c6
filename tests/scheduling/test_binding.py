"""The binding of an assumed pod, and its undoing after a failure."""

import asyncio
import logging
from contextlib import suppress

import pytest

from assuming import WEB, Stage, Step
from mooring.framework.verdicts import SKIP, Wait
from mooring.groups.model.pod_group import GroupKey, GroupSource, parse_pod_group
from mooring.groups.state.pod_groups import PodGroupState
from mooring.kube.api_resources import ApiCall
from mooring.kube.errors import InvalidError, NotFoundError
from mooring.model.events import Action
from mooring.scheduling.binding import BindingFailed, after_binding
from mooring.scheduling.group_binding import CalledOff, GroupBinding
from mooring.scheduling.outcome import PodRejected
from mooring.testing.builders import pod_group

NOT_FOUND = NotFoundError(ApiCall("create", "pods/binding"), "no such pod", status=404)


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
    """Otherwise the next Binding, perhaps to another node, would carry the annotations."""
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
    denial = InvalidError(ApiCall("create", "pods/binding"), words, status=422)
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
    monkeypatch.setattr("mooring.scheduling.binding._TO_END_SECONDS", 0.0)
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
    attempted.together = together = GroupBinding(group, (attempted.pod, attempted.pod))
    other = asyncio.create_task(together.all_at(together.permitted))
    binding = asyncio.create_task(stage.bind(attempted))
    await begun.wait()
    await other
    together.failed("the other one has gone", attempted.pod)
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
    """Preemption relies on this: another pod is nominated to the node."""
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
