"""Applies lists of the API server at once, without a decision in between."""

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.kube.api_resources import Resource
from mooring.mirroring.mirror import Mirror
from mooring.model.events import Kind
from mooring.state.cluster import ClusterState


def relisted(mirror: Mirror, resource: Resource, raws: Iterable[dict[str, Any]]) -> None:
    """Pass this list of raw objects to the mirror."""
    relist = mirror.relist(resource)
    for raw in raws:
        relist.add(raw)
    relist.apply()


def replace_all(state: ClusterState, kind: Kind, values: Mapping[str, Any]) -> None:
    """Replace all objects of the kind by `values`; for their keys see `ClusterState.put`."""
    state.replacing(kind, values, state.keys(kind))
