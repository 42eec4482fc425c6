"""One cluster with one running scheduler, for all tests that need nothing else."""

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
    """Return the shared server after crds/ and manifests/ were applied."""
    replica.apply_manifests(control_plane.access)
    return Baseline(control_plane.access)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane, installed: Baseline) -> Iterator[ControlPlane]:
    """Yield the shared server with Mooring's manifests, for one module at a time."""
    yield control_plane
    installed.restore()


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield one scheduler for all tests; each test has its own namespace and nodes."""
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
    """Yield a scene in the test's namespace; all pods on the server belong to the test."""
    assert namespace
    with Scene.of(plane, tmp_path) as scene:
        yield scene
        for member in scene.members:
            member.signal(signal.SIGCONT) if member.runs else None
    assert scene.tracebacks() == []


@pytest.fixture
def replicas(plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    """Yield an object that starts replicas for one test."""
    with Replicas.of(plane.access, tmp_path) as replicas:
        yield replicas


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[NodePool]:
    """Yield a namespace with nodes that only its pods select."""
    name = create_namespace(cluster.access, "pool")
    with cluster.access.client() as client:
        pool = NodePool(name, cluster.access, client)
        yield pool
        delete_namespace(cluster.access, name)
        for node in client.get(f"/api/v1/nodes?labelSelector=pool={name}")["items"]:
            client.delete(f"/api/v1/nodes/{node['metadata']['name']}")
