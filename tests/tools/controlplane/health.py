"""Asks the health endpoints of programs."""

import http.client
import ssl
import time
from urllib.parse import urlsplit

from controlplane.errors import with_log
from controlplane.processes import Program
from controlplane.tls import TLSConnection

PROBE_TIMEOUT = 2.0
"""The most seconds of one probe."""

PROBE_INTERVAL = 0.05
"""Seconds between two probes of a program that is starting."""


def is_healthy(url: str) -> bool:
    """Return whether a GET of the URL answers 200 now.

    The certificate is not verified: a starting program has only just generated it.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = TLSConnection(host, port, timeout=PROBE_TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_until_healthy(program: Program, url: str, timeout: float) -> None:
    """Wait for the answer 200; raise ControlPlaneError if the program ends or is too slow."""
    deadline = time.monotonic() + timeout
    while not is_healthy(url):
        if time.monotonic() > deadline:
            raise with_log(f"{program.name} was not healthy within {timeout:.0f} s", program.log)
        program.wait(PROBE_INTERVAL)
        program.require_alive()
