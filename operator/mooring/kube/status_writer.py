"""Writes the statuses of objects; of several statuses of one object, only the newest is written.

Each kind of object has its own few workers, so that no kind delays another one or the bindings.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

import orjson

from mooring.kube.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    explain,
)
from mooring.kube.writes import ProfileWriter
from mooring.process.turn import Turn

Look = tuple[float, Callable[[], Iterable[Any]]]
"""An interval in seconds, and a function whose objects are passed to `note` at each interval."""


logger = logging.getLogger(__name__)

RETRIED: Final = (UnreachableError, ServerError, TooManyRequestsError, UnauthorizedError)
"""After these errors a status is written again, because they do not depend on the object."""
SECTION_SECONDS: Final = 10.0
"""The seconds between two checks whether a section of a profile's status has changed."""
_PAUSE_SECONDS: Final = 1.0
"""The seconds between two tries for one status, and after a try that did not reach the server."""

_Key = TypeVar("_Key", bound="Hashable")


class StatusWriter(Generic[_Key]):
    """Calls `write` for every object passed to `note`, while `run` runs.

    `write` computes the object's status, and patches the object if its status differs. It raises
    ApiError if this fails. After an error in `RETRIED` it is called again; after any other error,
    `note` must be called again. Equal errors of several objects are logged once.

    Args:
        what: A word for the objects, such as `pods`, for the log.
        lanes: How many calls may run at the same time; never two for one object.
        turn: The lock of the state: no status is computed while another task holds it.
    """

    def __init__(
        self,
        what: str,
        write: Callable[[_Key], Awaitable[None]],
        *,
        lanes: int,
        turn: Turn | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._turn = turn if turn is not None else Turn()
        self._what = what
        self._write = write
        self._lanes = lanes
        self._sleep = sleep
        self._due: dict[_Key, None] = {}
        self._failed: dict[_Key, None] = {}
        self._writing: dict[_Key, asyncio.Event] = {}
        self._digests: dict[_Key, bytes] = {}
        """By object, a digest of the status that `patch` has sent last."""
        self._trouble: tuple[type, int | None, str] | None = None
        """The kind of the error that was logged last; None once a status is written."""
        self._more = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    def note(self, *keys: _Key) -> None:
        """Queue the statuses of these objects for writing."""
        if keys:
            self._due |= dict.fromkeys(keys)
            self._settled.clear()
            self._more.set()

    def forget(self, key: _Key) -> None:
        """Forget the object: its queued writes and its last sent status."""
        self._due.pop(key, None)
        self._failed.pop(key, None)
        self._digests.pop(key, None)

    async def run(self, *looks: Look) -> None:
        """Write statuses until cancelled; the functions in `looks` find more objects to write."""
        async with asyncio.TaskGroup() as tasks:
            for seconds, look in ((_PAUSE_SECONDS, self._take_failed), *looks):
                tasks.create_task(self._turn.between(self._look, seconds, look))
            for _ in range(self._lanes):
                tasks.create_task(self._turn.between(self._write_due))

    async def written(self, key: _Key) -> None:
        """Wait while the status of this object is being written."""
        while (ended := self._writing.get(key)) is not None:
            await ended.wait()

    async def settled(self) -> None:
        """Wait until the status of every noted object is written or has failed."""
        await self._settled.wait()

    async def write(self, key: _Key) -> None:
        """Write the status now, even if it is unchanged; raise ApiError if that fails."""
        async with self._alone(key):
            self._digests.pop(key, None)
            await self._write(key)

    async def patch(
        self, key: _Key, status: Mapping[str, Any], send: Callable[[], Awaitable[object]]
    ) -> None:
        """Call `send` if the status, without its times, differs from the last sent status."""
        digest = _digest(status)
        if self._digests.get(key) != digest:
            await send()
            self._digests[key] = digest

    def has_patched(self, key: _Key) -> bool:
        """Return whether `patch` has sent a status of the object."""
        return key in self._digests

    async def _look(self, seconds: float, look: Callable[[], Iterable[_Key]]) -> None:
        while True:
            await self._sleep(seconds)
            self.note(*look())
            await self.settled()

    def _take_failed(self) -> Iterable[_Key]:
        failed, self._failed = self._failed, {}
        return failed

    async def _write_due(self) -> None:
        while True:
            key = next((key for key in self._due if key not in self._writing), None)
            if key is None:
                if not self._due and not self._writing:
                    self._settled.set()
                self._more.clear()
                await self._more.wait()
            else:
                del self._due[key]
                await self._try(key)

    async def _try(self, key: _Key) -> None:
        try:
            async with self._alone(key):
                await self._write(key)
        except (NotFoundError, ConflictError):
            pass  # the object is gone, or its next version will be shown
        except RETRIED as error:
            self._log(error)
            self._failed[key] = None
            if isinstance(error, UnreachableError):
                await self._sleep(_PAUSE_SECONDS)
        except ApiError as error:
            self._log(error)
        else:
            self._trouble = None

    @asynccontextmanager
    async def _alone(self, key: _Key) -> AsyncIterator[None]:
        """Wait for a running write of the object's status; allow no other in this context."""
        # Otherwise the older of two writes might arrive last.
        await self.written(key)
        ended = self._writing[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._writing[key]
            ended.set()
            self._more.set()

    def _log(self, error: ApiError) -> None:
        if error.kind != self._trouble:
            logger.warning("the status of %s is not written: %s", self._what, explain(error))
        self._trouble = error.kind


class ProfileSectionWriter(StatusWriter[str]):
    """Writes one field of each profile's status when the field has changed.

    Args:
        field: The name of the field.
        names: Returns the names of the profiles that have the field now.
        status: Returns the field's value for the profile of this name; None: write nothing.
    """

    def __init__(
        self,
        writer: ProfileWriter,
        field: str,
        names: Callable[[], Iterable[str]],
        status: Callable[[str], Mapping[str, Any] | None],
        *,
        turn: Turn | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__("profiles", self._write_section, lanes=1, turn=turn, sleep=sleep)
        self._writer = writer
        self._field = field
        self._names = names
        self._status = status

    async def run(self, *looks: Look) -> None:
        """Until cancelled, write the field of each profile whenever the field has changed."""
        await super().run((SECTION_SECONDS, self._all_names), *looks)

    def _all_names(self) -> Iterable[str]:
        return {**self._digests, **dict.fromkeys(self._names())}

    async def _write_section(self, name: str) -> None:
        status = self._status(name)
        if status is None:
            self.forget(name)
        else:
            await self.patch(
                name, status, lambda: self._writer.patch_status(name, {self._field: status})
            )


def _digest(status: Mapping[str, Any]) -> bytes:
    conditions = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in status.get("conditions", ())
    ]
    timeless = {**status, "conditions": conditions, "observedTime": None}
    return sha256(orjson.dumps(timeless)).digest()
