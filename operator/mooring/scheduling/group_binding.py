"""Binds the members of a group together, once enough members can be bound.

Each member has a task. The tasks wait for each other twice: before PreBind, until all members are
permitted, and before Bind, until PreBind of all members has ended. If too many members fail, the
others are called off. A Binding that was sent cannot be undone, so its task waits for the answer.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from typing import Final, TypeVar

from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod

_Result = TypeVar("_Result")

_MOST_REQUESTS: Final = 64
"""The maximum number of members of one group that are bound at the same time; others wait."""
_MOST_AT_ONCE: Final = 64
"""The maximum number of members of one group that continue, or are called off, at the same time."""
_PAUSES_SECONDS: Final = (0.2, 1.0, 3.0)
"""The seconds to wait before each repetition of a failed Binding."""


class CalledOff(Exception):  # noqa: N818 - says what happened; its text is for the user
    """Raised if a member is not bound because too many others of its group cannot be bound."""


class GroupBinding:
    """The binding of members of one group that were assumed together.

    If the group cannot reach its minimum, the bindings of the remaining members are cancelled.
    Members that are assumed later may join.
    """

    def __init__(self, group: PodGroupState, members: Iterable[Pod] = ()) -> None:
        self.group = group
        self._others = group.scheduled_pods_count
        self._left = 0
        """The number of members of this binding that are bound or may still be bound."""
        self._needed = group.minimum - self._others
        """The smallest `_left` with which the group reaches its minimum."""
        self._of_roles = Counter(group.roles_on_nodes)
        """The number of members of each role that are on nodes, are bound or may be bound."""
        self._roles = dict(group.roles)
        self._tasks = set[asyncio.Task[object]]()
        """The tasks of members that can still be called off."""
        self.permitted = Meeting()
        """Ends when every member that has not failed is permitted."""
        self.ready = Meeting()
        """Ends when PreBind has succeeded for every member that has not failed."""
        self._requests = asyncio.Semaphore(_MOST_REQUESTS)
        self.called_off: str | None = None
        """Why the remaining members are called off; None until the group is called off."""
        self._unfinished = 0
        self.bound = list[Pod]()
        """The members that this binding has bound so far."""
        self.join(members)

    @property
    def over(self) -> bool:
        """Whether the binding of every member has ended."""
        return not self._unfinished

    def join(self, members: Iterable[Pod]) -> None:
        """Add members that were assumed for this binding."""
        for pod in members:
            self._left += 1
            self._unfinished += 1
            self._of_roles[self.group.role_of(pod)] += 1

    @contextmanager
    def may_call_off(self) -> Iterator[None]:
        """Return a context that cancels the member's task if the group is called off.

        Raises:
            CalledOff: The group is called off, and nothing else has cancelled the task.
        """
        self._check()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("bindings run as tasks")
        before = task.cancelling()
        self._tasks.add(task)
        try:
            yield
        finally:
            # Whatever a plugin makes of its cancellation, the member is called off.
            called_off = task not in self._tasks
            self._tasks.discard(task)
            if called_off and task.uncancel() <= before:
                raise CalledOff(self.called_off) from None

    async def all_at(self, meeting: "Meeting") -> None:
        """Wait at the meeting until it is over; raise CalledOff if the group is called off."""
        meeting.came += 1
        self._call_off_if_too_few(f"the minimum of the group is {self.group.minimum} now")
        self._look()
        try:
            await meeting.wait()
        except asyncio.CancelledError:
            meeting.came -= 1
            raise
        self._check()

    async def bind(
        self,
        call: Callable[[], Awaitable[_Result]],
        worth_repeating: type[Exception],
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> _Result:
        """Return the result of `call`; repeat it a few times if it raises `worth_repeating`.

        The call is not repeated if the exception has an attribute `gone` that is True.

        Args:
            call: Binds the member.
            worth_repeating: The type of exceptions after which a repetition may help.
            waiting: Returns a context that is open while `bind` waits before a call.

        Raises:
            CalledOff: Too many other members have failed.
        """
        pauses = iter(_PAUSES_SECONDS)
        while True:
            async with AsyncExitStack() as request:
                with waiting():
                    await request.enter_async_context(self._requests)
                self._check()
                try:
                    return await call()
                except worth_repeating as failure:
                    if getattr(failure, "gone", False):
                        raise
                    if (pause := next(pauses, None)) is None:
                        self._check()  # perhaps it has failed because it was not sent any more
                        raise
            with waiting():
                await asyncio.sleep(pause)

    def ended(self, bound: Pod | None) -> None:
        """Count a binding as ended; `bound` is its member, or None if the binding has failed."""
        self._unfinished -= 1
        if bound is not None:
            self.bound.append(bound)

    def failed(self, reason: str, member: Pod) -> None:
        """Count the member as failed; if too few members remain, cancel their bindings.

        `reason` says why the bindings are cancelled.
        """
        self._left -= 1
        self._of_roles[self.group.role_of(member)] -= 1
        self._call_off_if_too_few(reason)
        self._look()

    def _call_off_if_too_few(self, reason: str) -> None:
        if not self.ready.over:  # the minimum may grow until the first member is bound
            self._needed = max(self._needed, self.group.minimum - self._others)
            for role, minimum in self.group.roles.items():
                self._roles[role] = max(self._roles.get(role, 0), minimum)
        too_few = self._left < self._needed
        too_few |= any(self._of_roles[role] < least for role, least in self._roles.items())
        if too_few and self.called_off is None:
            self.called_off = reason
            # Not at once: a task that runs now would be cancelled where it waits next.
            asyncio.get_running_loop().call_soon(self._call_off_some)

    def _call_off_some(self) -> None:
        for _ in range(min(_MOST_AT_ONCE, len(self._tasks))):
            self._tasks.pop().cancel()
        if self._tasks:
            asyncio.get_running_loop().call_soon(self._call_off_some)

    def _look(self) -> None:
        for meeting in (self.permitted, self.ready):
            if self.called_off is None and meeting.came >= self._left:
                meeting.end()

    def _check(self) -> None:
        if self.called_off is not None:
            raise CalledOff(self.called_off)


class Meeting:
    """A point where members wait for each other.

    When it ends, a few members continue at a time, because the next steps of thousands of members
    would block everything else.
    """

    def __init__(self) -> None:
        self.came = 0
        """The number of members that wait here or have passed."""
        self.over = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until the meeting is over."""
        if self.over and not self._waiting:
            return
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(passed)
        await passed

    def end(self) -> None:
        """End the meeting: the members continue, and members that come later do not wait."""
        if not self.over:
            self.over = True
            self._let_pass()

    def _let_pass(self) -> None:
        for _ in range(min(_MOST_AT_ONCE, len(self._waiting))):
            passed = self._waiting.popleft()
            if not passed.done():
                passed.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_pass)
