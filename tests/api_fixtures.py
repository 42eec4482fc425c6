"""Fixtures: an API server whose answers a test gives, and clients of this server."""

from collections.abc import AsyncIterator

import pytest

from engines import Bindings
from kube.api_server import ApiServer
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield a server whose requests the test answers."""
    async with ApiServer() as running:
        yield running


@pytest.fixture
def bindings() -> Bindings:
    """Return the handler that answers the requests of the fixture `client`."""
    return Bindings()


@pytest.fixture
async def client(bindings: Bindings) -> AsyncIterator[ApiClient]:
    async with ApiServer(bindings) as running, ApiClient(Connection(running.url)) as connected:
        yield connected
