"""Opens TLS connections to servers that restart, for synchronous code."""

import http.client
import ssl
import traceback
import urllib.request
from functools import partial


class TLSConnection(http.client.HTTPSConnection):
    """A connection that closes its socket if the server resets it just before the handshake.

    CPython's SSLSocket leaves it open, and its warning about an unclosed socket hits a later test.
    """

    def connect(self) -> None:
        """Connect and do the TLS handshake; raise OSError if it fails."""
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
    """Return an opener for https URLs that uses such connections, as `urllib.request.urlopen`."""
    return urllib.request.build_opener(_Handler(context))
