"""Binds an assumed pod: waits until Permit allows it, then runs PreBind, Bind and PostBind.

A binding is called off by the cancellation of its task. This does not happen while a Binding is
being sent, because a Binding cannot be undone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import Any, Final

from mooring.extenders.extenders import Extenders
from mooring.extenders.verdicts import ExtenderError, interested
from mooring.framework.plugin import Plugin
from mooring.framework.plugin_failures import ExtensionPoint, PluginFailed
from mooring.framework.registry import SHIPPED_WITH
from mooring.framework.verdicts import SKIP
from mooring.kube.errors import KubeError, NotFoundError, explain
from mooring.model.pod import Pod
from mooring.runtime.extension_points import check_async, status_of
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.plugin_metrics import Measured, Status
from mooring.scheduling.plugin_api import BindAttempt
from mooring.scheduling.pod_status_reporter import PodScheduledReason, failure_reason
from mooring.scheduling.scheduler_state import AssumedPod, SchedulerState

_TO_END_SECONDS: Final = 0.5
"""The maximum seconds to wait for the end of a plugin's call after its cancellation."""


class BindingFailed(Exception):  # noqa: N818 - says what happened; its text is for the user
    """Raised if the pod could not be bound.

    `gone` is True if the pod no longer exists. `condition` is the reason for the pod's PodScheduled
    condition.
    """

    def __init__(
        self,
        reason: str,
        *,
        gone: bool = False,
        condition: PodScheduledReason = PodScheduledReason.SCHEDULER_ERROR,
    ) -> None:
        super().__init__(reason)
        self.gone = gone
        self.condition = condition


async def bind(
    assumed: AssumedPod,
    scheduler: SchedulerState,
    extenders: Extenders,
    reported: Callable[[Pod], Awaitable[None]],
) -> None:
    """Bind the pod to its node; on any exception, unreserve and forget the pod.

    `reported` waits until no report about the pod is being written.

    Raises:
        PodRejected: A Permit plugin rejected the pod while it waited, or it waited too long.
        BindingFailed: A PreBind plugin, a Bind plugin or the extender failed, or the pod was
            deleted.
        CalledOff: Too many other members of the pod's group failed.
    """
    together, may_be_called_off = assumed.together, partial(_may_be_called_off, assumed, scheduler)
    with assumed.undo:
        if assumed.permitted is not None:
            with _its_group_may_call_off(assumed):
                await assumed.permitted
        with may_be_called_off():
            await reported(assumed.pod)
            if together is not None:
                await together.all_at(together.permitted)
            with _measured(assumed, ExtensionPoint.PRE_BIND):
                for plugin in assumed.attempt.pipeline.pre_bind:
                    await _run(assumed, plugin, ExtensionPoint.PRE_BIND, plugin.pre_bind)
            if together is not None:
                await together.all_at(together.ready)
        if together is None:
            await _bind_once(assumed, scheduler, extenders)
        else:
            once = partial(_bind_once, assumed, scheduler, extenders)
            await together.bind(once, BindingFailed, may_be_called_off)
        assumed.attempt.pipeline.api.annotate(assumed.pod, {})
        assumed.undo.pop_all()


async def _bind_once(assumed: AssumedPod, scheduler: SchedulerState, extenders: Extenders) -> None:
    if assumed.attempt.pipeline.extenders and await _bound_by_extender(assumed, extenders):
        return  # no Bind plugin runs then (schedule_one.go, bind)
    uid, together = assumed.pod.uid, assumed.together
    attempt = BindAttempt(assumed.node, lambda: together is None or together.called_off is None)
    scheduler.at_bind[uid] = attempt
    try:
        skipped = True
        with _measured(assumed, ExtensionPoint.BIND):
            for binder in assumed.attempt.pipeline.bind:
                skipped = await _run(assumed, binder, ExtensionPoint.BIND, binder.bind) is SKIP
                if not skipped:
                    break
    except BindingFailed:  # perhaps after the API server has accepted the plugin's Binding
        if not await attempt.is_bound():
            raise
    else:
        # This is asked in any case, so that nothing of it is on its way any more.
        if not await attempt.is_bound() and skipped:
            raise BindingFailed("no bind plugin took the pod; check the profile's bind plugins")
    finally:
        if scheduler.at_bind.get(uid) is attempt:
            del scheduler.at_bind[uid]
        await attempt.end()


async def _bound_by_extender(assumed: AssumedPod, extenders: Extenders) -> bool:
    try:
        caring = interested(assumed.attempt.pipeline, assumed.pod)
        return await extenders.bind(caring, assumed.pod, assumed.node)
    except ExtenderError as error:
        raise BindingFailed(f"{_bind_prefix(ExtensionPoint.BIND)}{error}") from error


async def after_binding(assumed: AssumedPod) -> None:
    """Run the PostBind plugins, and record their failures; the pod stays bound."""
    with _measured(assumed, ExtensionPoint.POST_BIND):
        for plugin in assumed.attempt.pipeline.post_bind:
            with suppress(BindingFailed):
                await _run(assumed, plugin, ExtensionPoint.POST_BIND, plugin.post_bind)


def _measured(assumed: AssumedPod, point: ExtensionPoint) -> Measured:
    return assumed.attempt.pipeline.metrics.extension_point(point, assumed.attempt.pipeline.profile)


@contextmanager
def _may_be_called_off(assumed: AssumedPod, scheduler: SchedulerState) -> Iterator[None]:
    """Allow a preemption or the pod's group to cancel this binding while the context is open."""
    uid, task = assumed.pod.uid, asyncio.current_task()
    if task is None:
        raise RuntimeError("bindings run as tasks")
    under_way = scheduler.being_bound.get(uid)
    if under_way is not None and under_way.left_watch:  # while nobody could call it off
        raise BindingFailed("the pod has gone", gone=True)
    with _its_group_may_call_off(assumed):
        scheduler.in_pre_bind[uid] = task.cancel
        try:
            yield
        finally:
            del scheduler.in_pre_bind[uid]
        if task.cancelling():  # a plugin has swallowed it
            raise asyncio.CancelledError


def _its_group_may_call_off(assumed: AssumedPod) -> AbstractContextManager[None]:
    return assumed.together.may_call_off() if assumed.together is not None else nullcontext()


async def _run(
    assumed: AssumedPod,
    plugin: Plugin,
    point: ExtensionPoint,
    method: Callable[[Pod, str], Awaitable[object]],
) -> object:
    """Call `method` of the plugin for the assumed pod; raise BindingFailed if it fails."""
    pipeline, status = assumed.attempt.pipeline, Status.ERROR
    call = _checked(pipeline, plugin, point, method, assumed.pod, assumed.node)
    began = pipeline.metrics.clock()
    try:
        if pipeline.distributions.get(plugin.name) == SHIPPED_WITH:
            answer = await call
        else:  # it may have no time-out, and may not end when it is cancelled
            answer = await _in_task(call, pipeline.failures.timeout_seconds)
        status = status_of(answer)
    except KubeError as error:
        # Only Bind writes the pod itself.
        gone = point is ExtensionPoint.BIND and isinstance(error, NotFoundError)
        text = f'running {point} plugin "{plugin.name}": {explain(error)}'
        condition = failure_reason(error)
        raise BindingFailed(_bind_prefix(point) + text, gone=gone, condition=condition) from error
    except TimeoutError:
        failure = pipeline.failures.timed_out(pipeline.blamed(plugin.name, point))
        raise BindingFailed(_bind_prefix(point) + str(failure)) from None
    except PluginFailed as failure:
        raise BindingFailed(_bind_prefix(point) + str(failure)) from failure
    finally:
        if assumed.attempt.sampled:
            seconds = pipeline.metrics.clock() - began
            pipeline.metrics.plugin_ran(plugin.name, point, status, seconds)
    return answer


async def _checked(
    pipeline: Pipeline,
    plugin: Plugin,
    point: ExtensionPoint,
    method: Callable[[Pod, str], Awaitable[object]],
    pod: Pod,
    node: str,
) -> object:
    """Await the plugin's `method`; turn an unexpected exception into PluginFailed."""
    try:
        answer = await method(pod, node)
    except KubeError:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
        if cancelled and (task is None or task.cancelling()):
            raise
        raise pipeline.failures.error(pipeline.blamed(plugin.name, point), error) from error
    if point is not ExtensionPoint.POST_BIND:
        check_async(pipeline, plugin, point, answer)
    return answer


async def _in_task(call: Coroutine[Any, Any, object], seconds: float) -> object:
    """Run the call in a separate task; raise TimeoutError after `seconds`."""
    task = asyncio.ensure_future(call)
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await _cancel(task)
        raise
    if not done:
        await _cancel(task)
        raise TimeoutError
    return task.result()


async def _cancel(task: "asyncio.Task[object]") -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=_TO_END_SECONDS)


def _retrieve(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()  # marks it as seen, because perhaps nobody awaits the task


def _bind_prefix(point: ExtensionPoint) -> str:
    return "binding rejected: " if point is ExtensionPoint.BIND else ""
