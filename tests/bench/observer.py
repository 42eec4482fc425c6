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
from urllib.parse import urlencode, urlsplit

import orjson

from controlplane import Access, ControlPlaneError
from controlplane.access import ADMIN

__all__ = ["Binds", "first_change", "watched_binds"]

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
BOUND = "spec.nodeName!="
WATCH_SECONDS = 3600
"""How long the server keeps a watch open."""

GoOn = bool
OnEvent = Callable[[str], GoOn]
"""Called on the watch's thread with the name of the pod that an event is about."""


class Binds:
    """When each of the pods was first seen bound, in seconds of the monotonic clock."""

    def __init__(self, names: Collection[str]) -> None:
        self._missing = set(names)
        self._times: list[float] = []
        self._more = threading.Condition()

    @property
    def times(self) -> list[float]:
        """The times so far, in order."""
        with self._more:
            return list(self._times)

    def saw(self, name: str) -> GoOn:
        """The pod is bound."""
        now = time.monotonic()
        with self._more:
            if name in self._missing:
                self._missing.remove(name)
                self._times.append(now)
                self._more.notify_all()
            return bool(self._missing)

    def wait(self, patience: float) -> bool:
        """True once all are bound, False once none has been for `patience` seconds."""
        with self._more:
            while self._missing:
                if not self._more.wait(patience):
                    return False
        return True


@contextmanager
def watched_binds(access: Access, namespace: str, names: Collection[str]) -> Iterator[Binds]:
    """The bindings of these pods, from now on."""
    binds = Binds(names)
    with _watch(access, namespace, BOUND, binds.saw):
        yield binds


@contextmanager
def first_change(access: Access, namespace: str, then: Callable[[], None]) -> Iterator[None]:
    """`then` is called once, when anything changes about any pod of the namespace from now on."""

    def on_event(_name: str) -> GoOn:
        then()
        return False

    with _watch(access, namespace, "", on_event):
        yield


@contextmanager
def _watch(access: Access, namespace: str, selector: str, on_event: OnEvent) -> Iterator[None]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with access.client() as client:
        version = client.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
    query = {
        "watch": "1",
        "resourceVersion": version,
        "timeoutSeconds": WATCH_SECONDS,
        "fieldSelector": selector,
    }
    connection = _connection(access)
    headers = {"Authorization": f"Bearer {access.tokens[ADMIN]}", "Accept": METADATA_ONLY}
    connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
    response = connection.getresponse()
    if response.status != http.HTTPStatus.OK:
        raise ControlPlaneError(f"watching {path}: {response.status}: {response.read()!r}")
    wire = connection.sock
    thread = threading.Thread(target=_read, args=(connection, response, on_event), daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):  # the thread may have closed it
            wire.shutdown(socket.SHUT_RDWR)
        thread.join()


def _connection(access: Access) -> http.client.HTTPSConnection:
    parts = urlsplit(access.url)
    tls = ssl.create_default_context(cafile=str(access.ca_file))
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, context=tls)


def _read(
    connection: http.client.HTTPSConnection,
    response: http.client.HTTPResponse,
    on_event: OnEvent,
) -> None:
    with suppress(OSError, ValueError, http.client.HTTPException):  # shut down by the watcher
        while line := response.readline():
            name = orjson.loads(line)["object"]["metadata"]["name"]
            if not on_event(name):
                break
    response.close()
    connection.close()
