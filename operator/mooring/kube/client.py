"""The verbs of the API: raw JSON in and out, without conversion to models."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from enum import Enum
from typing import Any, Final, NamedTuple

import orjson

from mooring.kube.api_resources import ApiCall, Resource
from mooring.kube.errors import GoneError, NotFoundError, ServerError
from mooring.kube.nesting import cut_nesting
from mooring.kube.response_checks import items_of
from mooring.kube.transport import JSON, Transport
from mooring.model.fields import mappings, required, text
from mooring.model.kubernetes_rules import minor_version
from mooring.model.manifest_error import ManifestError

PAGE_SIZE: Final = 500
"""The number of objects per page of a list, as in kubectl; it limits an answer's memory."""

SMALL_PAGE_SIZE: Final = 100
"""The number of objects per page if each object is parsed as it comes: 100 pods take 20 ms.

A large page would leave large gaps in memory between the parts of pods that are kept.
"""

_PARTS: Final = ("Major", "Minor")

METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
"""The Accept header for a list without specs; a server without this format sends all fields."""


class PatchType(Enum):
    """The formats of a patch; each value is the media type of the request's body."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Listing(NamedTuple):
    """The objects of a list or of one page, without the fields apiVersion and kind.

    `version` is the list's resourceVersion.
    """

    items: list[dict[str, Any]]
    version: str


class ApiClient(Transport):
    """A session with one API server; its methods raise only `ApiError`."""

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return the object; raise NotFoundError if it does not exist."""
        path = resource.path(namespace, name)
        raw = await self._json("GET", path)
        try:
            required(raw, "metadata")
        except ManifestError as error:
            raise self._malformed(path, error) from None
        return raw

    async def served_in(self, group: str, version: str) -> frozenset[str]:
        """Return the plural names of this API version's resources; empty if it is not served."""
        path = f"/apis/{group}/{version}"
        try:
            known = await self._json("GET", path)
            names = [text(entry, "name", "resources") for entry in mappings(known, "resources")]
        except NotFoundError:
            return frozenset()
        except ManifestError as error:
            raise self._malformed(path, error) from None
        return frozenset(names)

    async def server_version(self) -> str:
        """Return the version of the server, or the older version that it emulates, such as 1.37."""
        path = "/version"
        answer = await self._json("GET", path)
        parts = [answer.get(f"emulation{part}") or answer.get(part.lower()) for part in _PARTS]
        version = minor_version(".".join(map(str, parts)))
        if version is None:
            shown = ", ".join(map(repr, parts))
            shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
            what = f"must be numbers such as 1 and 37, not {shown}"
            raise self._malformed(path, ManifestError("major, minor", what))
        major, minor = version
        return f"{major}.{minor}"

    async def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        selectors: Mapping[str, str] | None = None,
        *,
        metadata_only: bool = False,
        limit: int | None,
    ) -> AsyncGenerator[Listing, None]:
        """Yield the objects page by page, all pages at one resourceVersion.

        With `limit` None, one page has all objects. `selectors` may have the keys `fieldSelector`
        and `labelSelector`. Raises GoneError if the resourceVersion expires before the last page.
        """
        path = resource.path(namespace)
        # A server that cannot send only the metadata sends whole objects.
        accept = METADATA_ONLY if metadata_only else JSON
        params = dict(selectors or {})
        if limit is not None:
            params["limit"] = str(limit)
        while True:
            page = await self._page(path, params, accept)
            yield Listing(page["items"], page["metadata"]["resourceVersion"])
            if not page["metadata"].get("continue"):
                return
            params["continue"] = page["metadata"]["continue"]
            del page  # before the next one is read: a large cluster has hundreds

    async def list_all(
        self,
        resource: Resource,
        namespace: str | None = None,
        selectors: Mapping[str, str] | None = None,
        *,
        metadata_only: bool = False,
        on_page: Callable[[list[dict[str, Any]]], None] | None = None,
    ) -> Listing:
        """Return all objects as one Listing; for the arguments see `list_pages`.

        `on_page` is called with the objects of each page, and may remove fields from them.
        """
        limit: int | None = PAGE_SIZE
        while True:
            items, version = list[dict[str, Any]](), ""
            pages = self.list_pages(
                resource, namespace, selectors, metadata_only=metadata_only, limit=limit
            )
            try:
                async with aclosing(pages):
                    async for page in pages:
                        if on_page is not None:
                            on_page(page.items)
                        items += page.items
                        version = page.version
            except GoneError:
                if not version:
                    raise
                # The pages took longer than the server keeps a version: read one page instead.
                limit = None
            else:
                return Listing(items, version)

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create the object in the namespace of its metadata, and return it."""
        path = resource.path(body["metadata"].get("namespace"))
        return await self._json("POST", path, body=orjson.dumps(body))

    async def update(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the object; raise ConflictError if its resourceVersion is not the newest."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return await self._json("PUT", path, body=orjson.dumps(body))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | list[dict[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        params: Mapping[str, str] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Patch the object and return it; for APPLY, `params` has `fieldManager` and `force`.

        Raises NotWantedError, and sends nothing, if `wanted` returns False.
        """
        path = resource.path(namespace, name, subresource)
        return await self._json(
            "PATCH",
            path,
            params=params,
            body=orjson.dumps(patch),
            content_type=patch_type.value,
            wanted=wanted,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Begin to delete the object.

        Raises ConflictError if `uid` is given and the object has another uid. Raises
        NotWantedError, and sends nothing, if `wanted` returns False.
        """
        body = orjson.dumps({"preconditions": {"uid": uid}}) if uid else None
        await self.request("DELETE", resource.path(namespace, name), body=body, wanted=wanted)

    async def _page(self, path: str, params: Mapping[str, str], accept: str) -> dict[str, Any]:
        page = await self._json("GET", path, params=params, accept=accept)
        try:
            page["items"] = items_of(page)
        except ManifestError as error:
            raise self._malformed(path, error) from None
        return page

    def _malformed(self, path: str, error: ManifestError) -> ServerError:
        words = f"the answer is malformed: {error}"
        return ServerError(ApiCall.parse("GET", path), words, server=self.url)

    async def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.request(method, path, **options)
        try:
            parsed: Any = orjson.loads(cut_nesting(answer))
        except orjson.JSONDecodeError as error:
            words = "the answer is not JSON; is this the URL of an API server?"
            raise ServerError(ApiCall.parse(method, path), words, server=self.url) from error
        if not isinstance(parsed, dict):
            words = f"the answer is malformed: it must be an object, not {str(parsed)[:40]}"
            raise ServerError(ApiCall.parse(method, path), words, server=self.url)
        return parsed
