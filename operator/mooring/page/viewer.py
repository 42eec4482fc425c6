"""The user of a request, and which pods it may see.

What is shown of all nodes and of the whole queue needs the right to `get` the path. Names of pods,
their owners and their namespaces are shown only to users who may `get` the pods of the namespace.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from mooring.model.access import Attributes, User, pod_read
from mooring.observe.http import Access

__all__ = ["MOST_NAMESPACES", "Viewer"]

MOST_NAMESPACES: Final = 64
"""Namespaces that are looked up for one answer; each may take a request to the API server."""


class Viewer:
    """The user of one request; the API server's answers are kept for ten seconds."""

    def __init__(self, access: Access, user: User) -> None:
        self._access = access
        self.user = user

    @classmethod
    async def of(cls, access: Access, request: web.Request) -> "Viewer":
        """The user of the request; raises what `Access.user_of` raises."""
        return cls(access, await access.user_of(request))

    async def may(self, attributes: Attributes) -> bool:
        """Whether the user may do this."""
        return await self._access.allows(self.user, attributes)

    async def require(self, attributes: Attributes) -> None:
        """The user may do this; raises HTTPForbidden if not."""
        if not await self.may(attributes):
            text = f'forbidden: User "{self.user.name}" cannot {attributes}\n'
            raise web.HTTPForbidden(text=text)

    async def sees_all_pods(self) -> bool:
        """Whether the user may get the pods of every namespace."""
        return await self.may(pod_read())

    async def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those of the namespaces whose pods the user may get.

        Of a user who may not get all pods, at most `MOST_NAMESPACES` are looked up, the first ones.
        """
        names = tuple(dict.fromkeys(namespaces))
        if await self.sees_all_pods():
            return frozenset(names)
        names = names[:MOST_NAMESPACES]
        answers = await asyncio.gather(*(self.may(pod_read(name)) for name in names))
        return frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)
