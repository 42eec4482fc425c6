"""A real Kubernetes control plane on loopback, for the demo, the tests and the benchmark.

`releases` says which Kubernetes there are; `build` compiles the programs of one, named by its
`go.mod`, once into a cache outside the tree;
`ControlPlane` runs them; `python -m controlplane` does both from a shell. Only the standard
library is needed.
"""

from controlplane.access import Access
from controlplane.client import ApiError, Client
from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError

__all__ = ["Access", "ApiError", "Client", "ControlPlane", "ControlPlaneError"]
