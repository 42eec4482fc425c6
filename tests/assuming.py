"""Two nodes, on which one pod is assumed with plugins that record their calls."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

from extending import GivenObjects
from mooring.extenders.extenders import Extenders
from mooring.framework.verdicts import Skip, Unschedulable, Wait
from mooring.model.events import Action, ClusterEvent
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.assumed import assume_reserve_and_permit
from mooring.scheduling.binding import bind
from mooring.scheduling.scheduler_state import AssumedPod, CurrentAttempt
from mooring.testing.builders import node, pod
from mooring.testing.fakes import FakeApi
from scheduler_states import put_profile, scheduler_state

WEB = parse_pod(pod("web"))
NO_EXTENDERS = Extenders(GivenObjects())


async def nothing_said(_pod: Pod) -> None:
    """Return at once: no report about the pod is being written."""


class Step:
    """A plugin for all extension points from Reserve on; it appends each call to `said`.

    `as_told` maps an extension point to the plugin's result, or to the error that it raises.
    """

    depends_on_node_only: ClassVar[bool] = True

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
    """A cluster of two nodes and a pod; `said` has the calls of plugins, `heard` the events."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.scheduler_state = scheduler_state(node("a"), node("b"), api=self.api)
        self.profile = put_profile(self.scheduler_state)
        self.scheduler_state.queue.add(WEB, self.profile.pipeline, 0.0)
        self.said: list[str] = []
        self.heard: list[ClusterEvent] = []
        self.scheduler_state.state.on_events(self.heard.extend)

    def take(self, row: int = 0, **points: list[Step]) -> AssumedPod:
        """Assume and reserve the pod; the profile has only these plugins at `points`."""
        queued = self.scheduler_state.queue.get(WEB.uid)
        assert queued is not None
        none = dict.fromkeys(("reserve", "permit", "pre_bind", "bind"), ())
        chosen: dict[str, Any] = none | {point: tuple(steps) for point, steps in points.items()}
        distributions = {step.name: "acme" for steps in points.values() for step in steps}
        pipeline = replace(self.profile.pipeline, **chosen, distributions=distributions)
        attempt = CurrentAttempt(pipeline, 0.0, {WEB.uid: queued})
        (assumed,) = assume_reserve_and_permit(
            attempt, {WEB.uid: row}, self.scheduler_state, now=0.0
        )
        self.scheduler_state.state.announce(WEB)
        return assumed

    async def bind(self, attempted: AssumedPod) -> None:
        """Bind the assumed pod in a task of its own, as the loop does."""
        await asyncio.create_task(bind(attempted, self.scheduler_state, NO_EXTENDERS, nothing_said))

    def step(self, name: str, **as_told: Any) -> Step:
        """Return a plugin that appends its calls to `said`; `as_told` has its results."""
        return Step(name, self.said, **as_told)

    def is_assumed(self) -> bool:
        """Return whether the pod is counted on the node."""
        return self.scheduler_state.state.pods.get(WEB.uid) is not None

    def heard_actions(self) -> list[Action]:
        """Return the actions of the delivered events."""
        return [change.action for change in self.heard]
