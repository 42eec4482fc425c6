"""pytest fixtures: a shared API server, servers of one's own, a fresh namespace.

A control plane that is not built or does not start is an error of the test, never a skip.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from controlplane.cluster import ControlPlane
from controlplane.namespaces import create_namespace, delete_namespace


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """An etcd and kube-apiserver shared by the whole run: leave no nodes and no namespaces behind.

    Nothing else runs: nodes need no kubelet (they get no taints), pods no service account.
    """
    with ControlPlane() as shared:
        yield shared


@pytest.fixture
def fresh_control_plane() -> Iterator[Callable[..., ControlPlane]]:
    """A factory with ControlPlane's own arguments; what it starts, the test's end stops."""
    with ExitStack() as started:
        yield lambda *args, **kwargs: started.enter_context(ControlPlane(*args, **kwargs))


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """The name of a namespace in the shared control plane, emptied and deleted after the test."""
    name = create_namespace(control_plane.access)
    yield name
    delete_namespace(control_plane.access, name)
