"""The extenders of the suite `extenders`, and pods in which they are interested.

All of them are the deterministic extender, which answers differently under each prefix.
"""

from collections.abc import Sequence
from typing import Any, Final

from conformance.scenes.cluster import Cluster, Raw
from deterministic_extender import SEED

PORT: Final = "PORT"
"""Stands in a URL for the port, which is another one in each run."""
CARD: Final = "example.com/card"
"""Resources that no node has and the scheduler ignores: the extenders look after them."""
DISK: Final = "example.com/disk"
FLAKY: Final = "example.com/flaky"


def _extender(prefix: str, *managed: str, **fields: Any) -> dict[str, Any]:
    resources = [{"name": name, "ignoredByScheduler": True} for name in managed]
    return {
        "urlPrefix": f"http://127.0.0.1:{PORT}/{prefix}",
        **({"managedResources": resources} if resources else {}),
        **fields,
    }


EXTENDERS: Final[Sequence[dict[str, Any]]] = (
    _extender("flaky", FLAKY, filterVerb="missing", nodeCacheCapable=True, ignorable=True),
    _extender(
        "cards",
        CARD,
        filterVerb="filter",
        prioritizeVerb="prioritize",
        weight=2,
        nodeCacheCapable=True,
    ),
    _extender(
        "all",
        filterVerb="filter",
        prioritizeVerb="prioritize",
        preemptVerb="preempt",
        weight=1,
        nodeCacheCapable=True,
    ),
    _extender("disks", DISK, prioritizeVerb="prioritize", preemptVerb="preempt", weight=3),
)
"""The first is ignorable and answers with 404; the last gets whole nodes and victims."""


def at_port(extenders: Sequence[dict[str, Any]], port: int) -> list[dict[str, Any]]:
    return [{**e, "urlPrefix": e["urlPrefix"].replace(PORT, str(port))} for e in extenders]


def extended(cluster: Cluster, pod: Raw) -> None:
    """Give the pod its own seed for the extenders; sometimes request their managed resources."""
    pod["metadata"]["annotations"] = {SEED: str(cluster.draw.randint(0, 10**9))}
    container = pod["spec"]["containers"][0]
    resources = container.setdefault("resources", {})
    for name in cluster.draw.some((CARD, DISK, FLAKY), 0, 3):
        for part in ("requests", "limits"):
            resources.setdefault(part, {})[name] = "1"
