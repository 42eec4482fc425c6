"""Pods without requirements, and the states of bound pods."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import APPS, HASH, HASHES, PAUSE, TEAMS, TIERS, image


def new_pod(draw: Draw, name: str) -> Raw:
    """Return a pod in a random team's namespace, with an app's labels and 1 or 2 containers."""
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
    """Make the bound pod run, with a unique start time: with equal times, victims are random."""
    minute, second = divmod(cluster.moments.pop(), 60)
    status = pod.setdefault("status", {})
    status |= {"phase": "Running", "startTime": f"2026-01-01T00:{minute:02}:{second:02}Z"}


def finished(cluster: Cluster, pod: Raw) -> None:
    """Make the bound pod Succeeded or Failed, so that it uses no resources."""
    pod["metadata"].pop("deletionTimestamp", None)
    pod.setdefault("status", {})["phase"] = cluster.draw.choice(("Succeeded", "Failed"))


def leaving(_: Cluster, pod: Raw) -> None:
    """Make the bound pod terminating."""
    pod["metadata"]["deletionTimestamp"] = "now"
