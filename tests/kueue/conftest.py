"""One cluster with Kueue and Mooring, and a team of each test's own."""

from collections.abc import Iterator

import pytest

from kueue.team import Cluster, Team, running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster as most are: without the feature gates of native PodGroups."""
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def team(cluster: Cluster) -> Iterator[Team]:
    """Yield a namespace with nodes and queues of its own; both stay until the cluster ends."""
    with cluster.team() as team:
        yield team
