"""One cluster with one running scheduler, for the tests that need no more than that."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import replica
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import Baseline, create_namespace, delete_namespace
from e2e.node_pool import NodePool
from e2e.replicas import Replica, Replicas
from faults.scene import Scene


@dataclass(frozen=True)
class Cluster:
    """A control plane without controllers, and Mooring as shipped."""

    access: Access
    scheduler: Replica


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> Baseline:
    """Return the shared server once crds/ and manifests/ are applied."""
    replica.apply_manifests(control_plane.access)
    return Baseline(control_plane.access)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane, installed: Baseline) -> Iterator[ControlPlane]:
    """Yield the shared server with Mooring's manifests, which a module has to itself."""
    yield control_plane
    installed.restore()


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield one scheduler: every test has its own namespace and nodes, and leaves none of them."""
    with Replicas.of(plane.access, tmp_path_factory.mktemp("shared")) as replicas:
        scheduler = replicas.start()
        scheduler.wait_until_leads()
        yield Cluster(plane.access, scheduler)
        assert scheduler.terminate() == 0


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with plane.access.client() as client:
        yield client


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """Yield a namespace of the module's server, emptied and deleted after the test."""
    name = create_namespace(plane.access)
    yield name
    delete_namespace(plane.access, name)


@pytest.fixture
def scene(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene in which every pod is the test's: its namespace begins before it."""
    assert namespace
    with Scene.of(plane, tmp_path) as scene:
        yield scene
        for member in scene.members:
            member.signal(signal.SIGCONT) if member.runs else None
    assert scene.tracebacks() == []


@pytest.fixture
def replicas(plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    """Yield schedulers of the test's own."""
    with Replicas.of(plane.access, tmp_path) as replicas:
        yield replicas


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[NodePool]:
    """Yield a namespace, and nodes that only its pods select."""
    name = create_namespace(cluster.access, "pool")
    with cluster.access.client() as client:
        pool = NodePool(name, cluster.access, client)
        yield pool
        delete_namespace(cluster.access, name)
        for node in client.get(f"/api/v1/nodes?labelSelector=pool={name}")["items"]:
            client.delete(f"/api/v1/nodes/{node['metadata']['name']}")
