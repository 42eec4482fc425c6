"""Finds the user of a request and the pods that this user may see; hides other pods in answers.

A user with the right to `get` the path sees all nodes and the whole queue. Names of pods, owners
and namespaces are only for users who may `get` the namespace's pods.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from aiohttp import web

from mooring.framework.decision import PodRef
from mooring.model.access import Attributes, User, pod_read
from mooring.observe.documents import dumps

MOST_NAMESPACES: Final = 64
"""The most namespaces that are checked for one answer, because each may need a request; the pods of
further namespaces are hidden."""


class Access(Protocol):
    """Asks the API server about the user of a request.

    Both methods raise HTTPUnauthorized if the API server rejects the token, and
    HTTPServiceUnavailable if the API server does not answer.
    """

    async def user_of(self, request: web.Request) -> User:
        """Return the user of the client certificate, else of the bearer token, else ANONYMOUS."""

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the API server allows the user this access."""


class Viewer:
    """The user of one request; the API server's answers are cached for ten seconds."""

    def __init__(self, access: Access, user: User) -> None:
        self._access = access
        self.user = user

    @classmethod
    async def of(cls, access: Access, request: web.Request) -> "Viewer":
        """Return the viewer for a request; raise the errors of `Access.user_of`."""
        return cls(access, await access.user_of(request))

    async def may(self, attributes: Attributes) -> bool:
        """Return whether the API server allows the viewer's user this access."""
        return await self._access.allows(self.user, attributes)

    async def require(self, attributes: Attributes) -> None:
        """Raise HTTPForbidden unless the API server allows the viewer's user this access."""
        if not await self.may(attributes):
            text = f'forbidden: User "{self.user.name}" cannot {attributes}\n'
            raise web.HTTPForbidden(text=text)

    async def sees_all_pods(self) -> bool:
        """Return whether the user may get the pods of every namespace."""
        return await self.may(pod_read())

    async def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Return the namespaces among `namespaces` in which the user may get pods.

        If the user may not get the pods of every namespace, only the first `MOST_NAMESPACES` are
        checked.
        """
        names = tuple(dict.fromkeys(namespaces))
        if await self.sees_all_pods():
            return frozenset(names)
        names = names[:MOST_NAMESPACES]
        answers = await asyncio.gather(*(self.may(pod_read(name)) for name in names))
        return frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)

    async def shown(
        self, document: Any, may_get: Callable[[PodRef], bool] = lambda _: False
    ) -> bytes:
        """Return the document as JSON, without the names of pods that the user may not get.

        `may_get` returns True for pods that an earlier check allowed.
        """
        namespaces = set[str]()

        def note(pod: PodRef) -> bool:
            if not may_get(pod):
                namespaces.add(pod.namespace)
            return True

        whole = dumps(document, note)
        visible = await self.visible(sorted(namespaces)) if namespaces else frozenset()
        if visible >= namespaces:
            return whole
        return dumps(document, lambda pod: may_get(pod) or pod.namespace in visible)
