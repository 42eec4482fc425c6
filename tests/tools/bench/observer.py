"""A neutral observer: a watch of its own, timed by the monotonic clock when an event arrives.

It asks for metadata only, an encoding that neither scheduler uses, so that the API server does the
same extra work for both.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from controlplane import Access, ControlPlaneError
from controlplane.access import ADMIN
from controlplane.tls import TLSConnection

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
BOUND = "spec.nodeName!="
WATCH_SECONDS = 3600
"""How long the server keeps a watch open."""

GoOn = bool
OnEvent = Callable[[str, dict[str, Any]], GoOn]
"""Called on the watch's thread with an event's type and the metadata of the pod it is about."""


class Binds:
    """When each of the pods was first seen bound, in seconds of the monotonic clock."""

    def __init__(
        self, names: Collection[str], then: Callable[[str], object] = lambda _name: None
    ) -> None:
        """Await these pods; `then` is called with each when it is seen, on the watch's thread."""
        self._missing = set(names)
        self._then = then
        self._times: dict[str, float] = {}
        self._more = threading.Condition()

    @property
    def times(self) -> dict[str, float]:
        """The times so far by the pod's name, in order."""
        with self._more:
            return dict(self._times)

    def saw(self, name: str) -> GoOn:
        """Note that the pod is bound; return whether other pods are still missing."""
        now = time.monotonic()
        with self._more:
            if name in self._missing:
                self._missing.remove(name)
                self._times[name] = now
                self._more.notify_all()
                self._then(name)
            return bool(self._missing)

    def wait(self, patience: float) -> bool:
        """Return True once all are bound, False once none has been for `patience` seconds."""
        with self._more:
            while self._missing:
                if not self._more.wait(patience):
                    return False
        return True


@contextmanager
def watched_binds(
    access: Access,
    namespace: str,
    names: Collection[str],
    *,
    then: Callable[[str], object] = lambda _name: None,
    seconds: int = WATCH_SECONDS,
) -> Iterator[Binds]:
    """Yield the bindings of these pods from now on; `then` is called with each.

    The server ends every watch after `seconds`.
    """
    binds = Binds(names, then)

    def on_event(_kind: str, metadata: dict[str, Any]) -> GoOn:
        return binds.saw(metadata["name"])

    with _watching(_Watch(access, _pods_of(namespace), BOUND, on_event, seconds)):
        yield binds


@contextmanager
def watched_bound_pods(access: Access, on_event: OnEvent) -> Iterator[None]:
    """Call `on_event` for each event about a bound pod of any namespace from now on."""
    with _watching(_Watch(access, "/api/v1/pods", BOUND, on_event, WATCH_SECONDS)):
        yield


@contextmanager
def first_change(access: Access, namespace: str, then: Callable[[], None]) -> Iterator[None]:
    """Call `then` once, when anything changes about any pod of the namespace from now on."""

    def on_event(_kind: str, _metadata: dict[str, Any]) -> GoOn:
        then()
        return False

    with _watching(_Watch(access, _pods_of(namespace), "", on_event, WATCH_SECONDS)):
        yield


def _pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


class _Watch:
    """A watch that goes on where it was when the server ends it, as it does under load."""

    def __init__(
        self, access: Access, path: str, selector: str, on_event: OnEvent, seconds: int
    ) -> None:
        self._access = access
        self._path = path
        self._selector = selector
        self._on_event = on_event
        self._seconds = seconds
        with access.client() as client:
            listed = client.get(f"{self._path}?limit=1")
        self._version: str = listed["metadata"]["resourceVersion"]
        self._closing = threading.Event()
        self._connection, self._response = self._opened()
        self._wire = self._connection.sock

    def follow(self) -> None:
        """Read until nothing more is to be seen, or `close`."""
        with suppress(OSError, ValueError, http.client.HTTPException):  # shut down by `close`
            while self._read():
                self._connection, self._response = self._opened()
                self._wire = self._connection.sock
                if self._closing.is_set():  # `close` may have seen the wire before this one
                    self._wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the reader, from another thread."""
        self._closing.set()
        with suppress(OSError):  # it may have ended
            self._wire.shutdown(socket.SHUT_RDWR)

    def _opened(self) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "timeoutSeconds": self._seconds,
            "fieldSelector": self._selector,
        }
        parts = urlsplit(self._access.url)
        tls = ssl.create_default_context(cafile=str(self._access.ca_file))
        connection = TLSConnection(parts.hostname or "", parts.port, context=tls)
        token = self._access.tokens[ADMIN]
        headers = {"Authorization": f"Bearer {token}", "Accept": METADATA_ONLY}
        connection.request("GET", f"{self._path}?{urlencode(query)}", headers=headers)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            text = f"watching {self._path}: {response.status}: {response.read()!r}"
            raise ControlPlaneError(text)
        return connection, response

    def _read(self) -> GoOn:
        """Read the open stream to its end; return True if there is more to be seen."""
        try:
            while line := self._response.readline():
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise ControlPlaneError(f"watching {self._path}: {event['object']}")
                metadata = event["object"]["metadata"]
                self._version = metadata["resourceVersion"]
                if not self._on_event(event["type"], metadata):
                    return False
        finally:
            self._response.close()
            self._connection.close()
        return not self._closing.is_set()


@contextmanager
def _watching(watch: _Watch) -> Iterator[None]:
    thread = threading.Thread(target=watch.follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.close()
        thread.join()
