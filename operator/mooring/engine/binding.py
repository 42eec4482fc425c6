"""From a chosen node to a bound pod: assume, Reserve, Permit, PreBind, Bind, PostBind.

What undoes each step is on one stack. Unless a successful binding dismisses the stack, it runs,
whatever happened: there is no other rollback.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import ReservePlugin
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.verdicts import SKIP, PluginError, Unschedulable, Wait
from mooring.framework.waiting_pods import WaitingPods
from mooring.kube.errors import KubeError, NotFoundError, explain
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState

__all__ = [
    "AssumedPod",
    "BindingFailed",
    "PodRejected",
    "after_binding",
    "assume_and_reserve",
    "assume_reserve_and_permit",
    "bind",
]

logger = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS: Final = 15 * 60.0
"""At Permit, whatever the plugin says (maxTimeout in framework/runtime/framework.go)."""

_Answer = TypeVar("_Answer")


class PodRejected(Exception):  # noqa: N818 - a verdict of a plugin, not a fault
    """A Reserve or Permit plugin rejected the pod on the chosen node."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(reason)
        self.plugin = plugin
        self.reason = reason

    @property
    def message(self) -> str:
        """The sentence a user reads; the chosen node is the only one it is about."""
        return f"0/1 nodes are available: 1 {self.reason}."


class BindingFailed(Exception):  # noqa: N818 - says what happened; its text is for the user
    """The pod could not be bound; `gone` is True if there is no such pod left to bind."""

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.gone = gone


@dataclass(slots=True, eq=False)
class AssumedPod:
    """An assumed pod, and the stack that unreserves and forgets it."""

    queued: QueuedPod
    pod: Pod
    node: str
    pipeline: Pipeline
    undo: ExitStack
    permitted: "asyncio.Future[None] | None" = None


def assume_reserve_and_permit(
    queued: QueuedPod, row: int, pipeline: Pipeline, scheduler: SchedulerState, *, now: float
) -> AssumedPod:
    """The pod is assumed on the row, reserved, and permitted or waiting to be.

    Raises:
        PodRejected: by a Reserve or Permit plugin; the pod is forgotten and unreserved again, and
            no event about it was delivered.
        PluginError: if one of them fails; the same.
    """
    pod, state = queued.pod, scheduler.state
    with assume_and_reserve(pod, row, pipeline, state) as undo:
        assumed = AssumedPod(queued, pod, state.nodes.names[row], pipeline, undo)
        assumed.permitted = _permit(assumed, scheduler.waiting, now)
        state.announce(pod)
        assumed.undo = undo.pop_all()
    return assumed


def assume_and_reserve(pod: Pod, row: int, pipeline: Pipeline, state: ClusterState) -> ExitStack:
    """The pod is assumed on the row and reserved; closing the stack undoes both.

    Raises:
        PodRejected: by a Reserve plugin; the pod is forgotten and unreserved again.
        PluginError: if a Reserve plugin fails; the same.
    """
    node = state.nodes.names[row]
    with ExitStack() as undo:
        state.assume(pod, row)
        undo.callback(state.forget, pod)
        for plugin in pipeline.reserve:
            undo.callback(_unreserve, plugin, pod, node)
        for plugin in pipeline.reserve:
            with _failing_as(f'running Reserve plugin "{plugin.name}"'):
                answer = _one_of(plugin.reserve(pod, node), Unschedulable)
            if answer is not None:
                raise PodRejected(plugin.name, answer.reason)
        return undo.pop_all()


def _unreserve(plugin: ReservePlugin, pod: Pod, node: str) -> None:
    """Runs the plugin's unreserve; if it fails, the other plugins' run all the same."""
    try:
        plugin.unreserve(pod, node)
    except Exception:
        logger.exception("plugin %s failed to unreserve %s for %s", plugin.name, node, pod.key)


def _permit(assumed: AssumedPod, waiting: WaitingPods, now: float) -> "asyncio.Future[None] | None":
    """None if every Permit plugin agrees at once, else a future of the end of the wait."""
    pod, node = assumed.pod, assumed.node
    pending: dict[str, float] = {}
    for plugin in assumed.pipeline.permit:
        with _failing_as(f'running Permit plugin "{plugin.name}"'):
            answer = _one_of(plugin.permit(pod, node), Unschedulable, Wait)
        if isinstance(answer, Unschedulable):
            raise PodRejected(plugin.name, answer.reason)
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
            permitted.set_exception(PodRejected(plugin, rejection.reason))

    waiting.enter(pod, node, pending, now, decided)
    return permitted


@contextmanager
def _failing_as(step: str) -> Iterator[None]:
    """Whatever a plugin raises in here becomes PluginError with the name of the step."""
    try:
        yield
    except Exception as error:
        raise PluginError(f"{step}: {error}") from error


def _one_of(answer: _Answer, *types: type) -> _Answer:
    """The answer of a plugin, if it is None or of these types; else TypeError."""
    if answer is not None and not isinstance(answer, types):
        expected = " or ".join(("None", *(expected.__name__ for expected in types)))
        raise TypeError(f"it answered {answer!r}, not {expected}")
    return answer


async def bind(assumed: AssumedPod, in_pre_bind: MutableMapping[str, Callable[[], object]]) -> None:
    """Binds the pod to its node; on any exception it is unreserved and forgotten.

    While PreBind plugins work, `in_pre_bind` holds by the pod's uid what calls the binding off.

    Raises:
        PodRejected: by a Permit plugin while the pod waited, or because it waited too long.
        BindingFailed: a PreBind or Bind plugin failed.
    """
    pod, node, pipeline = assumed.pod, assumed.node, assumed.pipeline
    with assumed.undo:
        if assumed.permitted is not None:
            await assumed.permitted
        with _called_off_through(in_pre_bind, pod):
            for plugin in pipeline.pre_bind:
                with _step(f'running PreBind plugin "{plugin.name}"'):
                    await plugin.pre_bind(pod, node)
        for binder in pipeline.bind:
            with _step(f'binding rejected: running Bind plugin "{binder.name}"', binds=True):
                if await binder.bind(pod, node) is not SKIP:
                    break
        else:
            raise BindingFailed("no bind plugin took the pod; check the profile's bind plugins")
        assumed.undo.pop_all()


async def after_binding(assumed: AssumedPod) -> None:
    """Runs the PostBind plugins; their failures are only logged."""
    for plugin in assumed.pipeline.post_bind:
        try:
            await plugin.post_bind(assumed.pod, assumed.node)
        except Exception:
            logger.exception("plugin %s failed after %s was bound", plugin.name, assumed.pod.key)


@contextmanager
def _called_off_through(
    in_pre_bind: MutableMapping[str, Callable[[], object]], pod: Pod
) -> Iterator[None]:
    """Inside, `in_pre_bind` holds by the pod's uid what cancels the task that is to bind it."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("bindings run as tasks")
    in_pre_bind[pod.uid] = task.cancel
    try:
        yield
    finally:
        del in_pre_bind[pod.uid]
    if task.cancelling():  # a plugin has swallowed it
        raise asyncio.CancelledError


@contextmanager
def _step(name: str, *, binds: bool = False) -> Iterator[None]:
    """Whatever a plugin raises in here becomes BindingFailed with the name of the step.

    Only where the pod itself is written does "not found" mean that the pod has gone.
    """
    try:
        yield
    except Exception as error:
        text = explain(error) if isinstance(error, KubeError) else str(error)
        gone = binds and isinstance(error, NotFoundError)
        raise BindingFailed(f"{name}: {text}", gone=gone) from error
