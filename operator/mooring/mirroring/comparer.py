"""Compares the pods and profiles that Mooring knows with those of the API server.

kopf does not report deletions that happened while its watch was down, and a lost event must not
leave a pod unscheduled for ever. Reflectors need no comparison, because they deliver whole lists.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final

from mooring.kube.api_resources import Resource
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.process.time_slices import TimeSlices

logger = logging.getLogger(__name__)

EVERY_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 10.0
"""The seconds between a call of `hint` and its comparison: a new list of kopf causes many calls,
and one comparison is enough for all."""
MOST_FETCHED: Final = 100
"""The most unknown objects of one resource that a comparison reads. If there are more, the next
comparison begins soon."""


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """A resource that kopf watches, and the functions that find and change Mooring's copy of it.

    Attributes:
        resource: The resource to list.
        known: Returns a new set of the uids of Mooring's objects. For each uid that the API
            server's list lacks, `gone` is called.
        knows: Returns whether Mooring has the object with this key and uid, in any state.
        gone: Removes the object with this uid.
        found: Stores an object that Mooring did not have; the argument is the API server's JSON.
        gone_meanwhile: Returns a context with a set, to which the uids of deleted objects are added
            while the context is open.
        selectors: `fieldSelector` and `labelSelector` of the list.
        in_flight: Returns the uids of pods whose attempt is running. `known` omits these pods, but
            they may return to the queue.
    """

    resource: Resource
    known: Callable[[], Collection[str]]
    knows: Callable[[str, str], bool]
    gone: Callable[[str], None]
    found: Callable[[dict[str, Any]], Awaitable[None]]
    gone_meanwhile: Callable[[], AbstractContextManager[Container[str]]]
    selectors: Mapping[str, str] = field(default_factory=dict)
    in_flight: Callable[[], Iterable[str]] = tuple


@dataclass(eq=False, repr=False)
class CacheComparer:
    """Compares Mooring's objects with those of the API server.

    This happens every EVERY_SECONDS, and soon after each call of `hint`. `gone` is called for each
    object of Mooring that the API server's list lacks. If the list has objects that Mooring lacks,
    at most `MOST_FETCHED` per resource are read and given to `found`.
    """

    client: ApiClient
    compared: Sequence[WatchedResource]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._hint = asyncio.Event()
        self._unusable: dict[Resource, dict[str, str]] = {}
        """By resource and uid, the version of each object that was read but cannot be used."""
        self._in_doubt: dict[Resource, set[str]] = {}
        """By resource, the uids of pods in flight that the API server's last list did not have."""
        self._last_read: dict[Resource, str] = {}
        """By resource, the key of the last object that was read. The next comparison continues with
        the key after this one."""

    def hint(self) -> None:
        """Make the next comparison begin soon, because kopf may have missed a deletion."""
        self._hint.set()

    async def run(self) -> None:
        """Compare at intervals and after hints, until cancelled."""
        while True:
            await self._until_due()
            await self.sleep(PAUSE_SECONDS)
            self._hint.clear()
            for compared in self.compared:
                try:
                    await self._compare(compared)
                except ApiError as error:
                    logger.warning("%s are not compared: %s", compared.resource, explain(error))

    async def _until_due(self) -> None:
        left = EVERY_SECONDS
        while left > 0:
            pause = min(left, PAUSE_SECONDS) if any(self._in_doubt.values()) else left
            alarm = asyncio.ensure_future(self.sleep(pause))
            hint = asyncio.ensure_future(self._hint.wait())
            try:
                await asyncio.wait({alarm, hint}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                alarm.cancel()
                hint.cancel()
            known_again = any(self._is_known_again(compared) for compared in self.compared)
            if self._hint.is_set() or known_again:
                return
            left -= pause

    def _is_known_again(self, compared: WatchedResource) -> bool:
        if not (in_doubt := self._in_doubt.get(compared.resource)):
            return False
        known = not in_doubt.isdisjoint(compared.known())
        # Without the pods whose attempt has ended.
        in_doubt.intersection_update(compared.in_flight())
        return known

    async def _compare(self, compared: WatchedResource) -> None:
        known = compared.known()  # of what comes during the request the list may say nothing
        in_flight = {*compared.in_flight()}
        listing = await self.client.list_all(
            compared.resource, selectors=compared.selectors, metadata_only=True
        )
        slices = TimeSlices(clock=self.clock)  # there may be 100,000 of them
        listed = dict[str, Mapping[str, Any]]()
        for item in listing.items:
            listed[item["metadata"]["uid"]] = item["metadata"]
            await slices.pause()
        self._in_doubt[compared.resource] = in_flight.difference(listed)
        missed = 0
        for uid in known:
            if uid not in listed:
                compared.gone(uid)
                missed += 1
            await slices.pause()
        if missed:
            what = compared.resource.kind.lower() if missed == 1 else compared.resource
            logger.info("%d %s had gone unnoticed", missed, what)
        versions = self._unusable.get(compared.resource, {})
        self._unusable[compared.resource] = {u: v for u, v in versions.items() if u in listed}
        if unknown := await self._unknown(compared, listed):
            await self.sleep(PAUSE_SECONDS)
            if unknown := await self._unknown(compared, unknown):
                await self._hand_over(compared, [*unknown.values()])

    async def _unknown(
        self, compared: WatchedResource, listed: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        unusable, slices = self._unusable[compared.resource], TimeSlices(clock=self.clock)
        found = dict[str, Mapping[str, Any]]()
        for uid, metadata in listed.items():
            known = compared.knows(_key(compared.resource, metadata), uid)
            if not known and unusable.get(uid) != metadata["resourceVersion"]:
                found[uid] = metadata
            await slices.pause()
        return found

    async def _hand_over(
        self, compared: WatchedResource, unknown: Sequence[Mapping[str, Any]]
    ) -> None:
        """Read at most `MOST_FETCHED` of the unknown objects, and call `found` with each object."""
        found, last = 0, self._last_read.get(compared.resource, "")
        slices, by_key = TimeSlices(clock=self.clock), dict[str, Mapping[str, Any]]()
        for metadata in unknown:
            by_key[_key(compared.resource, metadata)] = metadata
            await slices.pause()
        await asyncio.sleep(0)  # of 100,000 objects, the next step takes long
        # From the key after `_last_read` on, so that each object is read at some time.
        for key in nsmallest(MOST_FETCHED, by_key, key=lambda key: (key <= last, key)):
            metadata = by_key[key]
            self._last_read[compared.resource] = key
            raw, uid = await self._read(compared, metadata), metadata["uid"]
            if raw is None or compared.knows(key, uid):
                continue  # what is known by now may be newer
            try:
                await compared.found(raw)
            except ApiError:
                raise
            except Exception:
                logger.exception("%s %s is not taken in", compared.resource, key)
            if compared.knows(key, uid):
                found += 1
            else:
                self._unusable[compared.resource][uid] = metadata["resourceVersion"]
        if found:
            logger.warning("%d %s had come unnoticed", found, compared.resource)
        if len(unknown) > MOST_FETCHED:
            self._hint.set()

    async def _read(
        self, compared: WatchedResource, metadata: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        name, namespace, uid = metadata["name"], metadata.get("namespace"), metadata["uid"]
        with compared.gone_meanwhile() as gone:
            try:
                raw = await self.client.get(compared.resource, name, namespace)
            except NotFoundError:
                return None
            # Another object may have the name by now, or this object may have gone.
            return raw if raw["metadata"]["uid"] == uid and uid not in gone else None


def _key(resource: Resource, metadata: Mapping[str, Any]) -> str:
    name = str(metadata["name"])
    return f"{metadata['namespace']}/{name}" if resource.namespaced else name
