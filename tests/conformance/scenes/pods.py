"""Pods as such, before they ask for anything, and what becomes of bound ones."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import APPS, HASH, HASHES, PAUSE, TEAMS, TIERS, image


def new_pod(draw: Draw, name: str) -> Raw:
    """Return a pod of one of the teams, with an app's labels and one or two containers."""
    labels = {"app": draw.choice(APPS)}
    if draw.chance(0.6):
        labels["tier"] = draw.choice(TIERS)
    if draw.chance(0.5):
        labels[HASH] = draw.choice(HASHES)
    metadata = {"name": name, "namespace": draw.choice(tuple(TEAMS)), "labels": labels}
    own_image = draw.choice((PAUSE, image("web")))
    containers = [{"name": f"c{n}", "image": own_image} for n in range(draw.randint(1, 2))]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def started(cluster: Cluster, pod: Raw) -> None:
    """Let the bound pod run, with its own start time: else victims would be chosen at random."""
    minute, second = divmod(cluster.moments.pop(), 60)
    status = pod.setdefault("status", {})
    status |= {"phase": "Running", "startTime": f"2026-01-01T00:{minute:02}:{second:02}Z"}


def finished(cluster: Cluster, pod: Raw) -> None:
    """End the bound pod: it holds nothing any more."""
    pod["metadata"].pop("deletionTimestamp", None)
    pod.setdefault("status", {})["phase"] = cluster.draw.choice(("Succeeded", "Failed"))


def leaving(_: Cluster, pod: Raw) -> None:
    """Mark the bound pod as terminating."""
    pod["metadata"]["deletionTimestamp"] = "now"
