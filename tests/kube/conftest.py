"""Fixtures: a server whose answers the test gives, and a client of this server."""

from collections.abc import AsyncIterator

import pytest

from kube.api_server import ApiServer
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(Connection(server.url)) as session:
        yield session
