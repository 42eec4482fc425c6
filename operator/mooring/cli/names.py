"""Completes names of pods, pod groups, namespaces and profiles in a shell, from the cluster.

A shell waits for the answer at every press of the tab key, so that it is short, soon there, and
says nothing where there is no cluster.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import click

from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.kube.errors import KubeError, NotFoundError
from mooring.kube.resources import (
    COSCHEDULING_POD_GROUP,
    NAMESPACE,
    POD,
    POD_GROUP,
    SCHEDULING_PROFILE,
    Resource,
)

__all__ = ["complete_namespaces", "complete_pods", "complete_profiles"]

_SECONDS: Final = 3.0
_MOST_NAMES: Final = 5_000
"""That are looked through; of more, the others are not completed."""
_PAGE: Final = 500
_KINDS: Final = ("pod/", "podgroup/")


def complete_pods(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the pods that begin so, as NAME, pod/NAME, podgroup/NAME or NAMESPACE/NAME."""
    kind, slash, begun = incomplete.rpartition("/")
    if not slash:
        names = _names(context, (POD,), _namespace(context), begun)
        return [*names, *(kind for kind in _KINDS if begun and kind.startswith(begun))]
    if kind in ("pod", "pods", "po"):
        found = _names(context, (POD,), _namespace(context), begun)
    elif kind in ("podgroup", "podgroups", "pg"):
        found = _names(context, (POD_GROUP, COSCHEDULING_POD_GROUP), _namespace(context), begun)
    else:
        found = _names(context, (POD,), kind, begun)
    return [f"{kind}/{name}" for name in found]


def complete_namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces that begin so."""
    return _names(context, (NAMESPACE,), None, incomplete)


def complete_profiles(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the SchedulingProfiles of the cluster that begin so."""
    return _names(context, (SCHEDULING_PROFILE,), None, incomplete)


def _namespace(context: click.Context) -> str | None:
    """Return the namespace that -n gives; None without it."""
    found: str | None = context.params.get("namespace")
    return found or None


def _names(
    context: click.Context, resources: Sequence[Resource], namespace: str | None, begun: str
) -> list[str]:
    """Return the sorted names that begin so; without an answer in time those found until then.

    A namespaced resource is looked for in the kubeconfig's namespace if none is given.
    """
    found = set[str]()

    async def look() -> None:
        connection = await load_connection(
            context.params.get("kubeconfig"), context.params.get("context")
        )
        for resource in resources:
            with suppress(NotFoundError):  # not every server has every kind of pod group
                await _collect(connection, resource, namespace, begun, found)

    async def look_for_a_while() -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                await look()
        except (KubeError, TimeoutError):
            return

    asyncio.run(look_for_a_while())
    return sorted(found)


async def _collect(
    connection: Connection,
    resource: Resource,
    namespace: str | None,
    begun: str,
    found: set[str],
) -> None:
    """Add the names of the resource that begin so."""
    within = (namespace or connection.namespace) if resource.namespaced else None
    seen = 0
    async with ApiClient(connection) as client:
        pages = client.list_pages(resource, within, metadata_only=True, limit=_PAGE)
        async with aclosing(pages):
            async for page in pages:
                found.update(name for name in map(_name, page.items) if name.startswith(begun))
                seen += len(page.items)
                if seen >= _MOST_NAMES:
                    return


def _name(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])
