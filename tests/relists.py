"""Lists of the API server that are taken over at once, with no decision in between."""

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.kube.api_resources import Resource
from mooring.mirroring.mirror import Mirror
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState


def relisted(mirror: Mirror, resource: Resource, raws: Iterable[dict[str, Any]]) -> None:
    """Show the mirror this list of raw objects."""
    relist = mirror.relist(resource)
    for raw in raws:
        relist.add(raw)
    relist.apply()


def replace_all(state: ClusterState, kind: Kind, values: Mapping[str, Any]) -> None:
    """Make these all objects of the kind; for their keys see `ClusterState.put`."""
    state.replacing(kind, values, state.keys(kind))
