"""Finds what has gone unnoticed: kopf tells of no deletion that happened while its watch was down.

The mirror needs no such thing: its reflectors hand over whole sets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, explain
from mooring.kube.resources import Resource

__all__ = ["CacheComparer", "Compared"]

logger = logging.getLogger(__name__)

EVERY_SECONDS: Final = 300.0
PAUSE_SECONDS: Final = 10.0
"""From a hint to the census, so that the many hints of one relist lead to one."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A resource, what is known of it (uids by key), and who hears of what has gone (key, uid)."""

    resource: Resource
    known: Callable[[], Mapping[str, str]]
    gone: Callable[[str, str], None]
    selectors: Mapping[str, str] = field(default_factory=dict)


class CacheComparer:
    """Compares what is known with what the API server has, every few minutes and when asked to."""

    def __init__(
        self,
        client: ApiClient,
        counted: Sequence[Compared],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._counted = counted
        self._sleep = sleep
        self._hint = asyncio.Event()

    def hint(self) -> None:
        """A deletion may just have been missed."""
        self._hint.set()

    async def run(self) -> None:
        """Take the census until cancelled."""
        while True:
            await self._until_due()
            await self._sleep(PAUSE_SECONDS)
            self._hint.clear()
            for counted in self._counted:
                await self._count(counted)

    async def _until_due(self) -> None:
        alarm = asyncio.ensure_future(self._sleep(EVERY_SECONDS))
        hint = asyncio.ensure_future(self._hint.wait())
        try:
            await asyncio.wait({alarm, hint}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            hint.cancel()

    async def _count(self, counted: Compared) -> None:
        """What was known before the question and is not in the answer has gone."""
        known = dict(counted.known())
        if not known:
            return
        try:
            listing = await self._client.list_all(
                counted.resource, selectors=counted.selectors, metadata_only=True
            )
        except ApiError as error:
            logger.warning("%s are not counted: %s", counted.resource, explain(error))
            return
        present = {item["metadata"]["uid"] for item in listing.items}
        missed = [(key, uid) for key, uid in known.items() if uid not in present]
        for key, uid in missed:
            counted.gone(key, uid)
        if missed:
            logger.info("%d %s had gone unnoticed", len(missed), counted.resource)
