"""Disruption budgets with the statuses that a controller would write."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import APPS, TEAMS


def budgets(cluster: Cluster, _: Raw) -> None:
    """Add up to three budgets in the teams' namespaces; some allow no disruption."""
    draw = cluster.draw
    for number in range(draw.randint(0, 3)):
        namespace = draw.choice(tuple(TEAMS))
        status: Raw = {
            "disruptionsAllowed": draw.choice((0, 0, 1, 2)),
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 3,
            "observedGeneration": 1,
        }
        if draw.chance(0.2):
            status["disruptedPods"] = _disrupted(cluster, namespace)
        cluster.add(
            "PodDisruptionBudget",
            f"{cluster.label}-{number}",
            namespace,
            spec={"minAvailable": 1, "selector": _selector(draw)},
            status=status,
        )


def _selector(draw: Draw) -> Raw:
    """Return a selector, mostly of one app, sometimes of several apps or empty."""
    if draw.chance(0.1):
        return {}
    if draw.chance(0.3):
        several = {"key": "app", "operator": "In", "values": draw.some(APPS, 2, 3)}
        return {"matchExpressions": [several]}
    return {"matchLabels": {"app": draw.choice(APPS)}}


def _disrupted(cluster: Cluster, namespace: str) -> dict[str, str]:
    there = [
        pod["metadata"]["name"] for pod in cluster.pods if pod["metadata"]["namespace"] == namespace
    ]
    return dict.fromkeys(cluster.draw.some(there, 0, 2), "2026-01-01T00:00:00Z")
