"""A real Kubernetes control plane on loopback, for the demo, the tests and the benchmark.

`releases` lists the releases of Kubernetes. `build` compiles the programs that a release's `go.mod`
names, once, into a cache outside the tree. `ControlPlane` runs them. `python -m controlplane`
builds and runs them from a shell. Only the standard library is needed.
"""

from controlplane.access import Access
from controlplane.client import ApiError, Client
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError

__all__ = ["Access", "ApiError", "Client", "ControlPlane", "ControlPlaneError"]
