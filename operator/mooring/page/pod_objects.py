"""Reads a pod and its events from the API server when a user asks for them.

The module uses Mooring's rights. Therefore the caller must first check that the user has the same
right.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from mooring.kube.api_resources import POD, Resource
from mooring.kube.client import Listing
from mooring.kube.errors import ApiError, ForbiddenError, NotFoundError, explain
from mooring.model.fields import integer, mapping, text
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import Uid
from mooring.page.turns import TrialsBusy, Turns

_EVENT: Final = Resource("", "v1", "events", "Event")
"""Events of the core group, which `kubectl describe` reads and users may get."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A valid object name; other text could change the meaning of a path or a selector."""
_MOST_BYTES: Final = 512 * 1024
_MOST_EVENTS: Final = 200
"""The number of events after which no more pages of events are read for an answer."""
_EVENTS_PER_PAGE: Final = 10
"""The most events in one request; the number is small because each event may be large."""
_MOST_EVENT_BYTES: Final = 2 * 2**20
"""The number of bytes after which no more pages of events are read for an answer."""
_MOST_CHARACTERS: Final = 1024
"""The most characters of an event's message, as for new events in the API server; the rest is cut
off."""
_MOST_OF_FIELD: Final = 253
"""The most characters of an event's fields except the message; the rest is cut off."""
_MOST_AT_ONCE: Final = 10
"""The maximum number of requests that may wait or run at the same time; others are refused."""
_SECONDS: Final = 10.0


class NotReadError(Exception):
    """Raised if an object was not read.

    The text is one line with the reason; `status` is the HTTP status.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ObjectClient(Protocol):
    """The methods of `mooring.kube.client.ApiClient` that the page uses."""

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return the object; raise NotFoundError if there is none."""

    def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        selectors: Mapping[str, str] | None = None,
        *,
        limit: int | None,
    ) -> AsyncGenerator[Listing, None]:
        """Yield the collection page by page, with at most `limit` objects per page."""


@dataclass(eq=False, repr=False)
class PodObjects:
    """Reads pods and events with `client`; `uid_of` returns a pod's uid by its key."""

    client: ObjectClient
    uid_of: Callable[[str], Uid | None]

    def __post_init__(self) -> None:
        self._turns = Turns(_SECONDS, most=_MOST_AT_ONCE)

    async def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the pod without managedFields; raise NotReadError if it is absent or too large."""
        async with self._turn(namespace, name):
            raw = await self.client.get(POD, name, namespace)
        metadata = {k: v for k, v in mapping(raw, "metadata").items() if k != "managedFields"}
        found = {"apiVersion": "v1", "kind": "Pod", **raw, "metadata": metadata}
        if len(orjson.dumps(found)) > _MOST_BYTES:
            how = f"kubectl get pod {name} -n {namespace} -o yaml"
            raise NotReadError(413, f"it has more than {_MOST_BYTES // 1024} KiB; use: {how}")
        return found

    async def events(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the events about the pod, the newest first; if there are many, return a part.

        Raises NotReadError as `pod` does, and also if this replica does not know the pod.
        """
        uid = self.uid_of(f"{namespace}/{name}")
        if uid is None:
            raise NotReadError(404, f"pod {namespace}/{name} is not known to this replica")
        about = f"involvedObject.kind=Pod,involvedObject.name={name},involvedObject.uid={uid}"
        selectors = {"fieldSelector": about}
        async with self._turn(namespace, name):
            found, more = list[dict[str, Any]](), False
            size = 0
            pages = self.client.list_pages(_EVENT, namespace, selectors, limit=_EVENTS_PER_PAGE)
            async with aclosing(pages):
                async for page in pages:
                    found += map(_event, page.items)
                    size += sum(len(orjson.dumps(raw)) for raw in page.items)
                    if more := len(found) >= _MOST_EVENTS or size >= _MOST_EVENT_BYTES:
                        break
        found.sort(key=lambda event: str(event["last"]), reverse=True)
        return {"events": found, "more": more}

    @asynccontextmanager
    async def _turn(self, namespace: str, name: str) -> AsyncIterator[None]:
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            raise NotReadError(400, "this is no name of a pod")
        try:
            async with self._turns.turn("try again in some seconds"):
                yield
        except NotFoundError:
            raise NotReadError(404, f"there is no pod {namespace}/{name} any more") from None
        except ForbiddenError as error:
            raise NotReadError(503, explain(error)) from None
        except TrialsBusy as busy:
            raise NotReadError(503, str(busy)) from None
        except (ApiError, ManifestError):
            why = "the API server gives no answer that can be read; try again in some seconds"
            raise NotReadError(503, why) from None


def _event(raw: Mapping[str, Any]) -> dict[str, Any]:
    series = mapping(raw, "series")
    source = text(raw, "reportingComponent") or text(mapping(raw, "source"), "component")
    created = text(mapping(raw, "metadata"), "creationTimestamp")
    first = text(raw, "firstTimestamp") or text(raw, "eventTime") or created
    last = text(series, "lastObservedTime") or text(raw, "lastTimestamp") or first
    # Anybody may write events, so the texts are cut.
    return {
        "type": text(raw, "type")[:_MOST_OF_FIELD],
        "reason": text(raw, "reason")[:_MOST_OF_FIELD],
        "message": text(raw, "message")[:_MOST_CHARACTERS],
        "count": integer(series, "count") or integer(raw, "count") or 1,
        "first": first[:_MOST_OF_FIELD],
        "last": last[:_MOST_OF_FIELD],
        "source": source[:_MOST_OF_FIELD],
    }
