"""kopf at the rim: pods without a node, SchedulingProfiles, PriorityClasses.

Only `on.event` handlers are used: they write nothing to the objects, no annotation and no
finalizer. The storages that kopf would keep its progress and diffs in do nothing for the same
reason, which also saves most of its cost per event.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import kopf

from mooring.engine.intake import Intake
from mooring.handlers.profiles import ProfileHandler
from mooring.handlers.sessions import KopfSessions
from mooring.kube.backoff import Backoff
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, explain
from mooring.kube.resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, Resource
from mooring.model.errors import ManifestError
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.state.cluster import ClusterState

__all__ = ["UNSCHEDULED", "KopfOperator", "is_kopfs"]

logger = logging.getLogger(__name__)

_KOPF: Final = Path(kopf.__file__).parent
_STOP_ROUNDS: Final = 20
_STOP_SECONDS: Final = 0.25
_RETRIES: Final = (1, 2, 4)
"""Seconds between kopf's tries of a request, after which it gives up."""

UNSCHEDULED: Final = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"


class _NoProgress(kopf.ProgressStorage):
    """Keeps no progress: event handlers have none."""

    def fetch(self, **_: Any) -> None: ...

    def store(self, **_: Any) -> None: ...

    def purge(self, **_: Any) -> None: ...

    def touch(self, **_: Any) -> None: ...

    def clear(self, *, essence: Any) -> Any:
        """The essence as it is, without a copy."""
        return essence


class _NoDiffs(kopf.DiffBaseStorage):
    """Keeps no last-seen state: nobody asks what changed."""

    def build(self, **_: Any) -> Any:
        """Nothing is compared, so nothing is copied."""
        return {}

    def fetch(self, **_: Any) -> None: ...

    def store(self, **_: Any) -> None: ...


class KopfOperator:
    """Runs kopf inside our event loop for as long as this replica leads."""

    def __init__(
        self,
        intake: Intake,
        profile_handler: ProfileHandler,
        state: ClusterState,
        connection: Connection,
        client: ApiClient,
        *,
        listed: Callable[[], None],
    ) -> None:
        self._intake = intake
        self._profile_handler = profile_handler
        self._state = state
        self._connection = connection
        self._client = client
        self._listed = listed

    async def run(self, restore_signals: Callable[[], None]) -> NoReturn:
        """Serve until cancelled; `restore_signals` takes back the handlers that kopf replaces.

        kopf's own runner would also end every task started after it, bindings included, so its
        tasks are run here. Where kopf gives up, as it does when it is refused a right, it is
        started again.
        """
        backoff = Backoff(Random())  # noqa: S311 - spreads load, hides nothing
        while True:
            await self._until_allowed(backoff)
            for error in await self._serve(restore_signals):
                logger.error("kopf gave up and is started again: %s", error)
            await asyncio.sleep(backoff.pause())

    async def _until_allowed(self, backoff: Backoff) -> None:
        """All that kopf will list can be listed; it would tell of a missing right at length."""
        said = ""
        for resource in (POD, SCHEDULING_PROFILE, PRIORITY_CLASS):
            while (trouble := await self._trouble_with(resource)) is not None:
                if trouble != said:
                    logger.error("nothing can be scheduled: %s", trouble)
                said = trouble
                await asyncio.sleep(backoff.pause())

    async def _trouble_with(self, resource: Resource) -> str | None:
        try:
            await self._client.request("GET", resource.path(), params={"limit": "1"})
        except ApiError as error:
            return explain(error)
        return None

    async def _serve(self, restore_signals: Callable[[], None]) -> list[str]:
        """Serve until cancelled or until kopf gives up; why it did."""
        sessions = KopfSessions(self._connection)
        tasks = await kopf.spawn_tasks(
            registry=self._registry(sessions),
            settings=_settings(),
            clusterwide=True,
            standalone=True,
        )
        restore_signals()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sessions.hang_up()
            errors = await _stop(tasks)
            await sessions.close()
        return errors

    def _registry(self, sessions: KopfSessions) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(sessions.log_in)
        for resource, handler in (
            (POD, self._on_pod),
            (SCHEDULING_PROFILE, self._on_profile),
            (PRIORITY_CLASS, self._on_priority_class),
        ):
            where = (resource.group, resource.version, resource.plural)
            kopf.on.event(*where, registry=registry)(handler)
        return registry

    async def _on_pod(self, event: Mapping[str, Any], **_: Any) -> None:
        raw = event["object"]
        self._note_listing(event)
        if event["type"] == "DELETED":
            self._intake.gone(object_key(Kind.POD, raw), raw["metadata"].get("uid", ""))
        elif (pod := _parsed(Kind.POD, raw)) is not None:
            self._intake.pending(pod)

    async def _on_profile(self, event: Mapping[str, Any], patch: kopf.Patch, **_: Any) -> None:
        raw = event["object"]
        self._note_listing(event)
        if event["type"] == "DELETED":
            self._profile_handler.gone(raw["metadata"]["name"], raw["metadata"]["uid"])
        elif (status := self._profile_handler.applied(raw)) is not None:
            patch.status.update(status)

    async def _on_priority_class(self, event: Mapping[str, Any], **_: Any) -> None:
        raw = event["object"]
        key = object_key(Kind.PRIORITY_CLASS, raw)
        if event["type"] == "DELETED":
            self._state.delete(Kind.PRIORITY_CLASS, key)
        elif (value := _parsed(Kind.PRIORITY_CLASS, raw)) is not None:
            self._state.put(Kind.PRIORITY_CLASS, key, value)

    def _note_listing(self, event: Mapping[str, Any]) -> None:
        """Kopf has listed anew, and does not say what is no longer in the list."""
        if event["type"] is None:
            self._listed()


def _parsed(kind: Kind, raw: Mapping[str, Any]) -> Any | None:
    try:
        return parse_object(kind, raw)
    except ManifestError as error:
        logger.warning("an object is left out because it is malformed: %s", error)
        return None


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.watching.field_selectors["pods"] = UNSCHEDULED
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _RETRIES
    return settings


async def _stop(tasks: Collection[asyncio.Task[Any]]) -> list[str]:
    """The tasks have ended, and those kopf lost track of too; the words of those that failed."""
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_STOP_ROUNDS):
        left = [task for task in asyncio.all_tasks() if _is_of_kopf(task)]
        if not left:
            break
        for task in left:  # again and again, because kopf's streams swallow some cancellations
            task.cancel()
        await asyncio.wait(left, timeout=_STOP_SECONDS)
    errors = [result for result in results if isinstance(result, Exception)]
    return [str(next(iter(error.args), error)) for error in errors]


def _is_of_kopf(task: asyncio.Task[Any]) -> bool:
    """Whether kopf created the task: a watcher that fails leaves the others running."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(_KOPF)


def is_kopfs(error: BaseException) -> bool:
    """Whether the error was raised by kopf's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(_KOPF)
