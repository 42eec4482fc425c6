"""The user of a request, which pods it may see, and answers that name no others.

What is shown of all nodes and of the whole queue needs the right to `get` the path. Names of pods,
their owners and their namespaces are shown only to users who may `get` the pods of the namespace.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from mooring.model.access import Attributes, User, pod_read

__all__ = ["MOST_NAMESPACES", "Access", "Viewer"]

MOST_NAMESPACES: Final = 64
"""Namespaces that are looked up for one answer; each may take a request to the API server."""

_DOCUMENTS: Final = ("pod", "report", "path", "details", "now")
_LISTS: Final = ("decisions", "results", "steps")
"""Fields of answers that may name other pods."""
_ALL: Final = ""
"""Stands for all namespaces, as in `pod_read`."""
_HIDDEN: Final = "a pod that you may not get"


class Access(Protocol):
    """What the API server says about the user of a request.

    Both methods raise HTTPUnauthorized if it does not accept the token, and HTTPServiceUnavailable
    if it does not answer.
    """

    async def user_of(self, request: web.Request) -> User:
        """Return the user of the client certificate, else of the token, else the anonymous one."""

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the user may do this."""


class Viewer:
    """The user of one request; the API server's answers are kept for ten seconds."""

    def __init__(self, access: Access, user: User) -> None:
        self._access = access
        self.user = user

    @classmethod
    async def of(cls, access: Access, request: web.Request) -> "Viewer":
        """Return the user of the request; raise what `Access.user_of` raises."""
        return cls(access, await access.user_of(request))

    async def may(self, attributes: Attributes) -> bool:
        """Return whether the user may do this."""
        return await self._access.allows(self.user, attributes)

    async def require(self, attributes: Attributes) -> None:
        """Raise HTTPForbidden unless the user may do this."""
        if not await self.may(attributes):
            text = f'forbidden: User "{self.user.name}" cannot {attributes}\n'
            raise web.HTTPForbidden(text=text)

    async def sees_all_pods(self) -> bool:
        """Return whether the user may get the pods of every namespace."""
        return await self.may(pod_read())

    async def visible(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Return those of the namespaces whose pods the user may get.

        Of a user who may not get all pods, at most `MOST_NAMESPACES` are looked up, the first ones.
        """
        names = tuple(dict.fromkeys(namespaces))
        if await self.sees_all_pods():
            return frozenset(names)
        names = names[:MOST_NAMESPACES]
        answers = await asyncio.gather(*(self.may(pod_read(name)) for name in names))
        return frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)

    async def redacted(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer about a pod, pods or tried pods, without names of pods the user may not get.

        These are victims, preemptors and pods that end, and texts that may name one of them.
        """
        namespaces = _namespaces_in(document)
        return _redacted(document, await self.visible(namespaces)) if namespaces else document


def _namespaces_in(document: Mapping[str, Any]) -> list[str]:
    """The namespaces of the other pods that an answer names, in order."""
    return sorted({key.partition("/")[0] for key in _named(document)})


def _named(document: Mapping[str, Any]) -> Iterator[str]:
    """The keys of the pods that `_redacted` looks at."""
    for name, value in document.items():
        if name in _DOCUMENTS and isinstance(value, Mapping):
            yield from _named(value)
        elif name in (*_LISTS, "suggestions"):
            for each in value:
                yield from _named(each)
        elif name in ("victims", "ended"):
            yield from value
        elif name == "by":
            yield value
    if _may_name_others(document):
        yield _ALL


def _redacted(document: Mapping[str, Any], visible: frozenset[str]) -> dict[str, Any]:
    found = dict(document)
    for name, value in document.items():
        if name in _DOCUMENTS and isinstance(value, Mapping):
            found[name] = _redacted(value, visible)
        elif name in _LISTS:
            found[name] = [_redacted(each, visible) for each in value]
        elif name == "victims":
            found[name] = [_shown(key, visible) for key in value]
        elif name == "by":
            found[name] = _shown(value, visible)
        elif name == "suggestions":
            found[name] = [_redacted_suggestion(each, visible) for each in value]
    if document.get("step") == "preemptionFailed" and not _all_visible(document, visible):
        found["cause"] = f"the eviction of {_HIDDEN} failed"
    return found


def _may_name_others(document: Mapping[str, Any]) -> bool:
    """Return whether a failed preemption's cause may name a pod that `victims` does not."""
    return document.get("step") == "preemptionFailed" and (
        document["victimsInAll"] > len(document["victims"])
    )


def _all_visible(step: Mapping[str, Any], visible: frozenset[str]) -> bool:
    """Return whether all pods that the cause of a failed preemption may name are visible."""
    if _may_name_others(step):
        return _ALL in visible
    return all(_is_visible(key, visible) for key in step["victims"])


def _is_visible(key: str, visible: frozenset[str]) -> bool:
    return key.partition("/")[0] in visible


def _shown(key: str, visible: frozenset[str]) -> str:
    return key if _is_visible(key, visible) else _HIDDEN


def _redacted_suggestion(
    suggestion: Mapping[str, Any], visible: frozenset[str]
) -> Mapping[str, Any]:
    """The suggestion without the names of pods that end, if not all of them may be seen."""
    ended = suggestion["ended"]
    if all(_is_visible(key, visible) for key in ended):
        return suggestion
    which = "a pod" if len(ended) == 1 else f"{len(ended)} pods"
    node = suggestion["examples"][0]
    change = f"when {which} on {node} {'ends' if len(ended) == 1 else 'end'}"
    return {**suggestion, "change": change, "ended": [_shown(key, visible) for key in ended]}
