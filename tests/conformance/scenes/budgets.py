"""Disruption budgets with the statuses that a controller would write."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import APPS, TEAMS


def budgets(cluster: Cluster, _: Raw) -> None:
    """Add up to three budgets in the teams' namespaces; some allow no disruption."""
    draw = cluster.draw
    for number in range(draw.randint(0, 3)):
        namespace = draw.choice(tuple(TEAMS))
        allowed = draw.choice((0, 0, 1, 2))
        disrupted = _disrupted(cluster, namespace) if draw.chance(0.2) else None
        selector = _selector(draw)
        budget = _budget(cluster, f"{cluster.label}-{number}", namespace, allowed, selector)
        if disrupted is not None:
            budget["status"]["disruptedPods"] = disrupted


def _budget(cluster: Cluster, name: str, namespace: str, allowed: int, selector: Raw) -> Raw:
    """Add a budget that allows so many disruptions of the selected pods; return it."""
    return cluster.add(
        "PodDisruptionBudget",
        name,
        namespace,
        spec={"minAvailable": 1, "selector": selector},
        status={
            "disruptionsAllowed": allowed,
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
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


def budgets_of_all(cluster: Cluster, pod: Raw) -> None:
    """Let the pod need victims, and give one team's pods a used-up budget with an empty selector.

    Some bound pods have no labels.
    """
    draw = cluster.draw
    used = {each["spec"]["nodeName"] for each in cluster.pods}
    for node in cluster.nodes:
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts["cpu"] = "2" if node["metadata"]["name"] in used else "1"
    pod["spec"]["priorityClassName"] = "high"
    for container in pod["spec"]["containers"]:
        container["resources"] = {}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    for each in draw.some(cluster.pods, 0, 3):
        del each["metadata"]["labels"]
    _budget(cluster, f"{cluster.label}-all", draw.choice(tuple(TEAMS)), 0, {})
