"""A fixture: an API server that answers the writes of rebalancing."""

from collections.abc import AsyncIterator

import pytest

from kube.api_server import ApiServer
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from rebalancing_stage import Api


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def connected(api: Api) -> AsyncIterator[ApiClient]:
    async with ApiServer(api) as server, ApiClient(Connection(server.url)) as client:
        yield client
