"""Fixtures of pytest: a shared API server, servers for one test, and a fresh namespace.

A control plane that is not built or does not start is an error of the test, never a skip.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from controlplane.cluster import ControlPlane
from controlplane.namespaces import create_namespace, delete_namespace


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Yield an etcd and kube-apiserver that all tests share; remove nodes and namespaces after.

    No other program runs: nodes need no kubelet (they get no taints), pods need no service account.
    """
    with ControlPlane(users={"ann": [], "bob": []}) as shared:
        yield shared


@pytest.fixture
def fresh_control_plane() -> Iterator[Callable[..., ControlPlane]]:
    """Yield a factory with ControlPlane's arguments; the end of the test stops its servers."""
    with ExitStack() as started:
        yield lambda *args, **kwargs: started.enter_context(ControlPlane(*args, **kwargs))


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Yield a namespace of the shared control plane, emptied and deleted after the test."""
    name = create_namespace(control_plane.access)
    yield name
    delete_namespace(control_plane.access, name)
