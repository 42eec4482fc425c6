"""A small synchronous JSON client, to create nodes, namespaces and tokens."""

import http.client
import json
import ssl
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from controlplane.tls import TLSConnection

TIMEOUT = 30.0
"""The most seconds of a request."""
JSON = "application/json"
IDLE_SECONDS = 60.0
"""A connection idle for longer is not used again: an API server closes it after 90 seconds."""


class ApiError(Exception):
    """The API server answered with an HTTP status of 400 or more."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Client:
    """One kept-alive connection to an API server; use it as a context manager."""

    def __init__(self, connection: http.client.HTTPConnection, token: str | None = None) -> None:
        """Make a client; without a token, the connection's certificate identifies the user."""
        self._connection = connection
        self._used_at = time.monotonic()
        self._headers = {"Accept": JSON}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def to(cls, url: str, token: str, ca_file: Path) -> Self:
        """Return a client of the API server at the URL; it verifies the server's certificate."""
        parts = urlsplit(url)
        connection = TLSConnection(
            parts.hostname or "",
            parts.port,
            timeout=TIMEOUT,
            context=ssl.create_default_context(cafile=str(ca_file)),
        )
        return cls(connection, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Any:
        """Return the decoded answer; raise ApiError if refused, OSError for a lost connection."""
        payload = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        headers = {**self._headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        self._send(method, path, payload, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(response.status, _message(answer))
        return json.loads(answer)

    def watch(self, path: str) -> Generator[Any, None, None]:
        """Yield the events of a watch until the server or the caller ends it."""
        self._send("GET", path, None, self._headers)
        try:
            response = self._connection.getresponse()
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise ApiError(response.status, _message(response.read()))
            for line in response:
                yield json.loads(line)
        finally:
            # What was not read would stand before the next answer; the next request reconnects.
            self._connection.close()

    def _send(self, method: str, path: str, payload: Any, headers: dict[str, str]) -> None:
        now = time.monotonic()
        if now - self._used_at > IDLE_SECONDS:
            self._connection.close()  # the next request opens it again
        self._used_at = now
        self._connection.request(method, path, payload, headers)

    def get(self, path: str, *, accept: str = JSON) -> Any:
        """Return the object or list at the path, in the encoding `accept`."""
        return self.request("GET", path, accept=accept)

    def post(self, path: str, body: object) -> Any:
        return self.request("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: object) -> Any:
        """Return the object after a JSON merge patch."""
        return self.request("PATCH", path, body, content_type="application/merge-patch+json")

    def delete(self, path: str) -> Any:
        """Return the deleted object, or the status of the deletion."""
        return self.request("DELETE", path)


def _message(answer: bytes) -> str:
    try:
        decoded = json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace").strip()
    return str(decoded.get("message", decoded)) if isinstance(decoded, dict) else str(decoded)
