"""Observes a scheduler by its own watch, and times events by the monotonic clock at arrival.

The watch asks for metadata only. Neither scheduler uses this encoding, so the API server does the
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
"""Called on the watch's thread with the type of an event and the metadata of its pod."""


class Binds:
    """The times at which pods were first seen bound, in seconds of the monotonic clock."""

    def __init__(
        self, names: Collection[str], then: Callable[[str], object] = lambda _name: None
    ) -> None:
        """Wait for these pods; call `then` with each bound pod's name, on the watch's thread."""
        self._missing = set(names)
        self._then = then
        self._times: dict[str, float] = {}
        self._more = threading.Condition()

    @property
    def times(self) -> dict[str, float]:
        """The times by the names of the pods bound so far, in order."""
        with self._more:
            return dict(self._times)

    def saw(self, name: str) -> GoOn:
        """Note that the pod is bound; return whether other pods are still unbound."""
        now = time.monotonic()
        with self._more:
            if name in self._missing:
                self._missing.remove(name)
                self._times[name] = now
                self._more.notify_all()
                self._then(name)
            return bool(self._missing)

    def wait(self, patience: float) -> bool:
        """Return True once all are bound, False after `patience` seconds without a binding."""
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
    """Yield the future bindings of these pods; call `then` with each bound pod's name.

    The server ends every watch after `seconds`.
    """
    binds = Binds(names, then)

    def on_event(_kind: str, metadata: dict[str, Any]) -> GoOn:
        return binds.saw(metadata["name"])

    with _watching(_Watch(access, _pods_of(namespace), BOUND, on_event, seconds)):
        yield binds


@contextmanager
def watched_bound_pods(access: Access, on_event: OnEvent) -> Iterator[None]:
    """Call `on_event` for each future event about a bound pod of any namespace."""
    with _watching(_Watch(access, "/api/v1/pods", BOUND, on_event, WATCH_SECONDS)):
        yield


@contextmanager
def first_change(access: Access, namespace: str, then: Callable[[], None]) -> Iterator[None]:
    """Call `then` once, at the first future event about a pod of the namespace."""

    def on_event(_kind: str, _metadata: dict[str, Any]) -> GoOn:
        then()
        return False

    with _watching(_Watch(access, _pods_of(namespace), "", on_event, WATCH_SECONDS)):
        yield


@contextmanager
def watched_pods(access: Access, on_event: OnEvent) -> Iterator[None]:
    """Call `on_event` for each future event about a pod, bound or not, of any namespace."""
    with _watching(_Watch(access, "/api/v1/pods", "", on_event, WATCH_SECONDS)):
        yield


def _pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


class _Watch:
    """A watch that resumes where it was if the server ends it, as a server under load does."""

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
        """Read events until `on_event` wants no more, or until `close`."""
        with suppress(OSError, ValueError, http.client.HTTPException):  # shut down by `close`
            while self._read():
                self._connection, self._response = self._opened()
                self._wire = self._connection.sock
                if self._closing.is_set():  # `close` may have seen the wire before this one
                    self._wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the watch, from another thread."""
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
        """Read the open stream to its end; return True if more events are wanted."""
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
