"""Delegated authentication and authorization: the API server identifies users and their rights.

As in kube-scheduler, a token is checked with a TokenReview and an access with a
SubjectAccessReview. Answers are cached for ten seconds (k8s.io/apiserver
pkg/server/options/authentication.go and authorization.go).
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import orjson

from mooring.kube.api_resources import Resource
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.model.access import Attributes, ReviewError, User
from mooring.model.bounded_cache import BoundedCache
from mooring.model.fields import strings
from mooring.model.manifest_error import ManifestError

CACHE_SECONDS: Final = 10.0
"""The seconds for which an answer, yes or no, is used again; kube-scheduler's default."""
_CACHE_BYTES: Final = 8 * 2**20
"""The most bytes of each of the two caches: about 5,000 users, and as many answers. The least
recently used entries are dropped."""
REVIEW_SECONDS: Final = 10.0
"""The most seconds that a request waits for its review, including the wait for other reviews."""
AT_ONCE: Final = 8
"""The most reviews at the same time, so that false tokens cannot flood the API server; others
wait."""
_LATE: Final = f"no answer from the API server within {REVIEW_SECONDS:g} s"

TOKEN_REVIEW: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SUBJECT_ACCESS_REVIEW: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
CONFIG_MAP: Final = Resource("", "v1", "configmaps", "ConfigMap")

_K = TypeVar("_K")
_V = TypeVar("_V")


class _Cache(Generic[_K, _V]):
    """Keeps values for CACHE_SECONDS; beyond `most_bytes`, drops the least recently used values."""

    def __init__(self, clock: Callable[[], float], most_bytes: int) -> None:
        self._clock = clock
        self._entries: BoundedCache[_K, tuple[float, _V]] = BoundedCache(most_bytes)

    def get(self, key: _K) -> tuple[_V] | None:
        """Return the value in a tuple, because it may be None; return None if no value is kept."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= self._clock():
            return None
        return (entry[1],)

    def put(self, key: _K, value: _V) -> None:
        self._entries.put(key, (self._clock() + CACHE_SECONDS, value))


class Reviews:
    """Asks the API server who a user is and which rights it has; the answers are cached.

    Every method raises `ReviewError` if the API server gives no answer; then the caller must grant
    no request.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Keyed by a digest with a key of this process, so that neither the memory nor the time of
        # a look-up tells anything about a token.
        self._key = secrets.token_bytes(32)
        self._users: _Cache[bytes, User | None] = _Cache(clock, cache_bytes)
        self._answers: _Cache[tuple[User, Attributes], bool] = _Cache(clock, cache_bytes)

    async def user_of(self, token: str) -> User | None:
        """Return the user of the bearer token; None if the API server does not accept it."""
        if not token.isascii():
            return None
        key = hmac.new(self._key, token.encode(), hashlib.sha256).digest()
        return await self._cached(self._users, key, lambda: self._review_token(token))

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the API server allows the user this access."""
        return await self._cached(
            self._answers, (user, attributes), lambda: self._review_access(user, attributes)
        )

    async def client_ca(self) -> str | None:
        """Return the CA certificates (PEM) for client certificates; None if the cluster has none.

        Raises ReviewError if the ConfigMap with these certificates cannot be read.
        """
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                found = await self._client.get(
                    CONFIG_MAP, "extension-apiserver-authentication", "kube-system"
                )
        except NotFoundError:
            return None
        except ApiError as error:
            raise ReviewError(explain(error)) from error
        except TimeoutError as error:
            raise ReviewError(_LATE) from error
        try:
            return strings(found, "data").get("client-ca-file") or None
        except ManifestError as error:
            raise ReviewError(
                f"ConfigMap kube-system/{found['metadata']['name']} {error}"
            ) from None

    async def _cached(
        self, cache: _Cache[_K, _V], key: _K, review: Callable[[], Awaitable[_V]]
    ) -> _V:
        known = cache.get(key)
        if known is not None:
            return known[0]
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._slots:
                known = cache.get(key)
                if known is None:
                    known = (await review(),)
                    cache.put(key, known[0])
        except ApiError as error:
            raise ReviewError(explain(error)) from error
        except TimeoutError as error:
            raise ReviewError(_LATE) from error
        return known[0]

    async def _review_token(self, token: str) -> User | None:
        status = await self._reviewed(TOKEN_REVIEW, {"token": token})
        return User.parse(status.get("user") or {}) if status.get("authenticated") is True else None

    async def _review_access(self, user: User, attributes: Attributes) -> bool:
        spec = {**user.spec(), **attributes.spec()}
        status = await self._reviewed(SUBJECT_ACCESS_REVIEW, spec)
        return status.get("allowed") is True and not status.get("denied")

    async def _reviewed(self, resource: Resource, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self._client.request(
            "POST", resource.path(), body=orjson.dumps(body), retries=0
        )
        try:
            status = orjson.loads(answer).get("status")
        except (orjson.JSONDecodeError, AttributeError) as error:
            raise ReviewError(f"the answer to a {resource.kind} is none") from error
        if not isinstance(status, dict):
            raise ReviewError(f"the answer to a {resource.kind} has no status")
        return status
