"""Tests connections that the server resets before the TLS handshake."""

import gc
import socket
import struct
from typing import Any

import pytest

from controlplane.tls import TLSConnection

RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket resets the connection."""


def test_a_connection_that_is_reset_before_the_handshake_leaves_no_open_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = TLSConnection("127.0.0.1", server.getsockname()[1])

        def connect(*arguments: Any) -> socket.socket:
            client = socket.create_connection(*arguments)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            accepted.close()
            return client

        connection._create_connection = connect  # type: ignore[attr-defined]  # not in typeshed
        with pytest.raises(ConnectionResetError):
            connection.request("GET", "/")
        connection.close()
    gc.collect()  # a socket that is left open warns now
