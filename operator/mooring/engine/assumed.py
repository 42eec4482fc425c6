"""Assumes a pod on its node, and runs Reserve and Permit: what all ways of binding begin with.

What undoes these steps is on one stack. Unless a successful binding dismisses the stack, it runs,
whatever happened: there is no other rollback.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mooring.engine.group_binding import GroupBinding
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import ExtensionPoint, one_line
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.runtime import run_permit, run_reserve, run_unreserve, status_of
from mooring.framework.verdicts import Unschedulable, Wait
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState

__all__ = [
    "AssumedPod",
    "PodRejected",
    "assume_and_reserve",
    "assume_reserve_and_permit",
    "permit",
    "unreserve",
]

_LONGEST_WAIT_SECONDS: Final = 15 * 60.0
"""At Permit, whatever the plugin says (maxTimeout in framework/runtime/framework.go)."""


class PodRejected(Exception):  # noqa: N818 - a verdict of a plugin, not a fault
    """A Reserve or Permit plugin rejected the pod on the chosen node."""

    def __init__(self, plugin: str, reason: str, node: str, pod: Pod | None = None) -> None:
        super().__init__(reason)
        self.plugin = plugin
        self.reason = reason
        self.node = node
        self.pod = pod
        """The pod; None if it was rejected after the decision about it had ended."""

    @property
    def message(self) -> str:
        """The sentence a user reads; the chosen node is the only one it is about."""
        return f"0/1 nodes are available: 1 {self.reason}."


@dataclass(slots=True, eq=False)
class AssumedPod:
    """An assumed pod, and the stack that unreserves and forgets it."""

    queued: QueuedPod
    pod: Pod
    node: str
    pipeline: Pipeline
    undo: ExitStack
    permitted: "asyncio.Future[None] | None" = None
    together: GroupBinding | None = None
    """The binding of the group that the pod was assumed with, if any."""
    sampled: bool = False
    """Whether each call of a plugin in this attempt is measured."""

    def failed(self, reason: str) -> None:
        """Tell the group that the pod was assumed with, if any, that it will not be bound."""
        if self.together is not None:
            self.together.failed(f"member {self.pod.key} failed: {reason}")

    def ended(self, bound: Pod | None) -> None:
        """Tell the group that the binding has ended; only the first call counts.

        `bound` is the pod if it is bound, else None.
        """
        together, self.together = self.together, None
        if together is not None:
            together.ended(bound, self.pipeline)


def assume_reserve_and_permit(
    queued: QueuedPod, row: int, pipeline: Pipeline, scheduler: SchedulerState, *, now: float
) -> AssumedPod:
    """Assume the pod on the row, reserve it, and run Permit, which may have it wait.

    Raises:
        PodRejected: by a Reserve or Permit plugin; the pod is forgotten and unreserved again, and
            no event about it was delivered.
        PluginFailed: if one of them fails; the same.
    """
    pod, state = queued.pod, scheduler.state
    with assume_and_reserve(pod, row, pipeline, state) as undo:
        assumed = AssumedPod(queued, pod, state.nodes.names[row], pipeline, undo)
        assumed.sampled = pipeline.metrics.sampled
        assumed.permitted = permit(assumed, scheduler.waiting, now)
        state.announce(pod)
        assumed.undo = undo.pop_all()
    return assumed


def assume_and_reserve(pod: Pod, row: int, pipeline: Pipeline, state: ClusterState) -> ExitStack:
    """Assume the pod on the row and reserve it; closing the stack undoes both.

    Raises:
        PodRejected: by a Reserve plugin; the pod is forgotten and unreserved again.
        PluginFailed: if a Reserve plugin fails; the same.
    """
    node = state.nodes.names[row]
    with ExitStack() as undo:
        state.assume(pod, row)
        undo.callback(state.forget, pod)
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
    """Undo the Reserve plugins, the last one first."""
    with pipeline.metrics.extension_point(ExtensionPoint.UNRESERVE, pipeline.profile):
        for plugin in reversed(pipeline.reserve):
            run_unreserve(pipeline, plugin, pod, node)


def permit(assumed: AssumedPod, waiting: WaitingPods, now: float) -> "asyncio.Future[None] | None":
    """Return None if every Permit plugin agrees at once, else a future of the end of the wait."""
    pod, node, pipeline = assumed.pod, assumed.node, assumed.pipeline
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
            permitted.set_exception(PodRejected(plugin if known else "", reason, node))

    waiting.enter(pod, node, pending, now, decided)
    assumed.undo.callback(_leave_permit, permitted, waiting, pod)
    return permitted


def _leave_permit(permitted: "asyncio.Future[None]", waiting: WaitingPods, pod: Pod) -> None:
    """End the pod's wait at Permit without a verdict."""
    waiting.leave(pod.uid)
    permitted.cancel()
    if not permitted.cancelled():
        permitted.exception()  # marks it as seen, because nothing else may look at it
