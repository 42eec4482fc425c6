"""Finds names in the cluster: for completion in a shell, and for pods unknown to the leader.

A shell asks at every press of the tab key, so the answer must come soon. It is empty if there is no
cluster.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import click

from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    KAI_POD_GROUP,
    NAMESPACE,
    POD,
    POD_GANG,
    POD_GROUP,
    POD_GROUP_V1,
    SCHEDULING_PROFILE,
    SIGS_POD_GROUP,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, default_namespace, load_connection
from mooring.kube.errors import KubeError, NotFoundError
from mooring.policy.profile_errors import did_you_mean

_SECONDS: Final = 3.0
_MOST_NAMES: Final = 5_000
"""The most names in the cluster that a completion reads; it does not offer further names."""
_PAGE: Final = 500
_KINDS: Final = ("pod/", "podgroup/")
_POD_WORDS: Final = ("pod", "pods", "po")
POD_GROUP_WORDS: Final = (
    *("podgroup", "podgroups", "pg", "pgs"),
    *("podgroup.scheduling.x-k8s.io", "podgroup.scheduling.k8s.io"),  # kubectl get -o name
)
"""The words that may stand before the slash in `podgroup/NAME`, as for kubectl."""


def complete_pods(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of pods and pod groups that begin with `incomplete`.

    A name has the form NAME, pod/NAME, podgroup/NAME or NAMESPACE/NAME.
    """
    kind, slash, begun = incomplete.rpartition("/")
    if not slash:
        names = _names(context, (POD,), _namespace(context), begun)
        return [*names, *(kind for kind in _KINDS if begun and kind.startswith(begun))]
    if kind in _POD_WORDS:
        found = _names(context, (POD,), _namespace(context), begun)
    elif kind in POD_GROUP_WORDS:
        groups = (
            POD_GROUP_V1,
            POD_GROUP,
            COSCHEDULING_POD_GROUP,
            SIGS_POD_GROUP,
            VOLCANO_POD_GROUP,
            KAI_POD_GROUP,
            POD_GANG,
        )
        found = _names(context, groups, _namespace(context), begun)
    else:
        found = _names(context, (POD,), kind, begun)
    return [f"{kind}/{name}" for name in found]


def complete_pods_with_type(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return pods and pod groups that begin with `incomplete`, as pod/NAME or podgroup/NAME.

    If `incomplete` has no slash yet, returns words that may stand before the slash.
    """
    if "/" not in incomplete:
        return [kind for kind in _KINDS if kind.startswith(incomplete)]
    if incomplete.partition("/")[0] not in (*_POD_WORDS, *POD_GROUP_WORDS):
        return []
    return complete_pods(context, parameter, incomplete)


def complete_namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of namespaces that begin with `incomplete`."""
    return _names(context, (NAMESPACE,), None, incomplete)


def complete_profiles(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the cluster's SchedulingProfiles that begin with `incomplete`."""
    return _names(context, (SCHEDULING_PROFILE,), None, incomplete)


def _namespace(context: click.Context) -> str | None:
    if found := context.params.get("namespace"):
        return str(found)
    try:
        return default_namespace(context.params.get("kubeconfig"), context.params.get("context"))
    except KubeError:
        return None


def _names(
    context: click.Context, resources: Sequence[Resource], namespace: str | None, begun: str
) -> list[str]:
    found = set[str]()

    async def look() -> None:
        async with asyncio.timeout(_SECONDS):
            connection = await load_connection(
                context.params.get("kubeconfig"), context.params.get("context")
            )
            for resource in resources:
                with suppress(NotFoundError):  # not every server has every kind of pod group
                    await _collect(connection, resource, namespace, begun, found)

    with suppress(KubeError, TimeoutError):
        asyncio.run(look())
    return sorted(found)


async def _collect(
    connection: Connection,
    resource: Resource,
    namespace: str | None,
    begun: str,
    found: set[str],
) -> None:
    seen = 0
    async with ApiClient(connection) as client:
        pages = client.list_pages(resource, namespace, metadata_only=True, limit=_PAGE)
        async with aclosing(pages):
            async for page in pages:
                found.update(name for name in map(_name, page.items) if name.startswith(begun))
                seen += len(page.items)
                if seen >= _MOST_NAMES:
                    return


def _name(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


def why_unknown(kubeconfig: str | None, context: str | None, key: str) -> str:
    """Return a line that says why the leader has no decision about the pod."""
    namespace, _, name = key.partition("/")

    async def look() -> str:
        async with ApiClient(await load_connection(kubeconfig, context)) as client:
            try:
                spec = (await client.get(POD, name, namespace)).get("spec") or {}
            except NotFoundError:
                listing = await client.list_all(POD, namespace, metadata_only=True)
                return _misspelt(key, [_name(item) for item in listing.items])
        if node := spec.get("nodeName"):
            return f"pod {key} is on {node}, and this replica keeps no decision about it"
        scheduler = spec.get("schedulerName")
        return (
            f"pod {key} waits for the scheduler {scheduler!r}; the leading replica has no decision "
            "about it: is there a profile for that name? kubectl get schedulingprofiles"
        )

    try:
        return asyncio.run(look())
    except KubeError:
        return (
            f"no recent decision about pod {key} is kept by this replica; "
            "only the leading replica decides"
        )


def _misspelt(key: str, names: list[str]) -> str:
    namespace, _, name = key.partition("/")
    if suggestion := did_you_mean(name, names):
        return f"there is no pod {key}{suggestion}"
    return f"there is no pod {key}; kubectl get pods -n {namespace} lists those there are"
