"""Assumes a pod on its node, and runs Reserve and Permit: the first steps of every binding.

If the pod is not bound, an `ExitStack` undoes these steps.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from mooring.claims.model.resource_claims import Allocation
from mooring.framework.plugin_failures import ExtensionPoint, one_line
from mooring.framework.verdicts import Unschedulable, Wait
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.runtime.extension_points import run_permit, run_reserve, run_unreserve, status_of
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.group_binding import GroupBinding
from mooring.scheduling.outcome import PodRejected
from mooring.scheduling.scheduler_state import AssumedPod, CurrentAttempt, SchedulerState
from mooring.state.cluster import ClusterState

_LONGEST_WAIT_SECONDS: Final = 15 * 60.0
"""The maximum number of seconds that a pod waits at Permit, even if a plugin asks for more
(maxTimeout in framework.go)."""


def assume_reserve_and_permit(
    attempt: CurrentAttempt,
    rows: Mapping[Uid, int],
    scheduler: SchedulerState,
    *,
    now: float,
    together: GroupBinding | None = None,
    devices: Mapping[Uid, Mapping[str, Allocation]] | None = None,
) -> list[AssumedPod]:
    """Assume the pods on their nodes in the order of `rows`, and run Reserve and Permit.

    `devices` has each pod's allocations, by pod uid and claim uid. The caller must call `announce`
    for the pods. After an exception, none of the pods is assumed.

    Raises:
        PodRejected: A Reserve or Permit plugin rejects a pod.
        PluginFailed: A Reserve or Permit plugin fails.
    """
    pipeline, state, found = attempt.pipeline, scheduler.state, list[AssumedPod]()
    with ExitStack() as undo:
        for uid, row in rows.items():  # in this order: a pod may need an earlier pod beside it
            if found:
                pause()
            queued = attempt.members[uid]
            held = devices.get(uid) if devices is not None else None
            stack = undo.enter_context(assume_and_reserve(queued.pod, row, pipeline, state, held))
            node = state.nodes.names[row]
            found.append(AssumedPod(attempt, queued, queued.pod, node, stack, together))
        for one in found:
            one.permitted = _permit(one, scheduler.waiting, now)
        undo.pop_all()
    return found


def assume_and_reserve(
    pod: Pod,
    row: int,
    pipeline: Pipeline,
    state: ClusterState,
    devices: Mapping[str, Allocation] | None = None,
) -> ExitStack:
    """Assume the pod on the node at `row` and run Reserve; closing the returned stack undoes both.

    `devices` has the pod's allocations, by claim uid. Raises PodRejected or PluginFailed; the pod
    is not assumed after such an exception.
    """
    node = state.nodes.names[row]
    with ExitStack() as undo:
        state.assume(pod, row)
        undo.callback(state.forget, pod)
        state.hold_claims(pod.uid, devices or {})
        undo.callback(pipeline.api.annotate, pod, {})
        undo.callback(unreserve, pipeline, pod, node)
        with pipeline.metrics.extension_point(ExtensionPoint.RESERVE, pipeline.profile) as point:
            for plugin in pipeline.reserve:
                answer = run_reserve(pipeline, plugin, pod, node)
                if answer is not None:
                    point.status = status_of(answer)
                    raise PodRejected(plugin.name, answer.reason, node, pod)
        return undo.pop_all()


def unreserve(pipeline: Pipeline, pod: Pod, node: str) -> None:
    """Run Unreserve of all Reserve plugins, the last plugin first."""
    with pipeline.metrics.extension_point(ExtensionPoint.UNRESERVE, pipeline.profile):
        for plugin in reversed(pipeline.reserve):
            run_unreserve(pipeline, plugin, pod, node)


def _permit(assumed: AssumedPod, waiting: WaitingPods, now: float) -> "asyncio.Future[None] | None":
    """Run the Permit plugins; return a future if one of them makes the pod wait."""
    pod, node, pipeline = assumed.pod, assumed.node, assumed.attempt.pipeline
    pending: dict[str, float] = {}
    with pipeline.metrics.extension_point(ExtensionPoint.PERMIT, pipeline.profile) as point:
        for plugin in pipeline.permit:
            answer = run_permit(pipeline, plugin, pod, node)
            if answer is not None:
                point.status = status_of(answer)
            if isinstance(answer, Unschedulable):
                raise PodRejected(plugin.name, answer.reason, node, pod)
            if isinstance(answer, Wait):
                pending[plugin.name] = now + min(answer.seconds, _LONGEST_WAIT_SECONDS)
    if not pending:
        return None
    permitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def decided(rejection: Unschedulable | None, plugin: str) -> None:
        if permitted.done():
            return
        if rejection is None:
            permitted.set_result(None)
        else:
            # The plugin chose both, and the queue and the API server must be able to use them.
            known = isinstance(plugin, str) and plugin in pipeline.distributions
            reason = one_line(rejection.reason)
            permitted.set_exception(PodRejected(plugin if known else "", reason, node, pod))

    waiting.enter(pod, node, pending, now, decided)
    assumed.undo.callback(_leave_permit, permitted, waiting, pod)
    return permitted


def _leave_permit(permitted: "asyncio.Future[None]", waiting: WaitingPods, pod: Pod) -> None:
    waiting.leave(pod.uid)
    permitted.cancel()
    if not permitted.cancelled():
        permitted.exception()  # marks it as seen, because nothing else may look at it
