"""TLS connections to servers that restart, from blocking code."""

import http.client
import ssl
import traceback
import urllib.request
from functools import partial


class TLSConnection(http.client.HTTPSConnection):
    """A connection that closes its socket if the server resets it just before the handshake.

    CPython's SSLSocket does not, and warns of an unclosed socket later, in whatever runs then.
    """

    def connect(self) -> None:
        """Connect and shake hands; raise OSError where that fails."""
        try:
            super().connect()
        except OSError as error:
            for frame, _ in traceback.walk_tb(error.__traceback__):
                half_open = frame.f_locals.get("self")
                if isinstance(half_open, ssl.SSLSocket):
                    half_open.close()
            raise


class _Handler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(TLSConnection, context=self._tls), req)


def tls_opener(context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    """Return what opens https URLs as `urllib.request.urlopen` does, by such connections."""
    return urllib.request.build_opener(_Handler(context))
