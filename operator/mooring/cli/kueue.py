"""Shows why Kueue gates a pod: the conditions of the pod's Workload.

The command reads the conditions with the rights of the user.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from mooring.kube.api_resources import KUEUE_WORKLOAD, KUEUE_WORKLOAD_V1BETA1, POD, Resource
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import ForbiddenError, KubeError, NotFoundError
from mooring.kube.errors import explain as explain_error
from mooring.runtime.queued_pod import PodState

_GATES: Final = "kueue.x-k8s.io/"
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_JOB: Final = "kueue.x-k8s.io/job-uid"
_SHOWN: Final = ("QuotaReserved", "Admitted", "Evicted")


def is_gated_by_kueue(report: Mapping[str, Any]) -> bool:
    """Return whether a scheduling gate of Kueue holds this pod back."""
    return report["state"] == PodState.GATED and _GATES in (report.get("heldBack") or "")


def kueue_workload(kubeconfig: str | None, context: str | None, key: str) -> dict[str, Any]:
    """Return the name and conditions of the pod's Workload, or an `error` if it cannot be read."""
    try:
        return asyncio.run(_workload_of(kubeconfig, context, key))
    except ForbiddenError as refusal:
        why = f"{refusal}; Kueue's ClusterRole kueue-batch-user-role grants it"
        return {"error": " ".join(why.split())}
    except KubeError as error:
        return {"error": explain_error(error)}


def kueue_lines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield lines about the Workload: its conditions, or why it cannot be read."""
    if found is None:
        return
    if "error" in found:
        yield f"  Kueue's Workloads cannot be read: {found['error']}"
    elif not found["name"]:
        yield (
            "  Kueue has no Workload for it: its controller does not run, or pods of its group are "
            "missing"
        )
    else:
        yield f"  Kueue's Workload {found['name']}{':' if found['conditions'] else ' is new'}"
    for each in found.get("conditions", ()):
        yield f"    {each['type']} {each['status']}, {each['reason']}: {each['message']}"


async def _workload_of(kubeconfig: str | None, context: str | None, key: str) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    async with ApiClient(await load_connection(kubeconfig, context)) as client:
        selectors = _selectors((await client.get(POD, name, namespace))["metadata"])
        try:
            found = await _first(client, KUEUE_WORKLOAD, namespace, selectors)
        except NotFoundError:
            found = await _first(client, KUEUE_WORKLOAD_V1BETA1, namespace, selectors)
    conditions = (found.get("status") or {}).get("conditions") or ()
    return {
        "name": found["metadata"]["name"] if found else None,
        "conditions": [each for each in conditions if each["type"] in _SHOWN],
    }


def _selectors(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """Return query parameters that select the Kueue Workload of the pod with this metadata."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if name := annotations.get(_WORKLOAD) or labels.get(_GROUP):
        # Escaped as by fields.EscapeValue: an annotation is any text.
        escaped = "".join(f"\\{each}" if each in "\\,=" else each for each in name)
        return {"fieldSelector": f"metadata.name={escaped}"}
    return {"labelSelector": f"{_JOB}={metadata['uid']}"}


async def _first(
    client: ApiClient, resource: Resource, namespace: str, selectors: Mapping[str, str]
) -> dict[str, Any]:
    async with aclosing(client.list_pages(resource, namespace, selectors, limit=1)) as pages:
        async for page in pages:
            for found in page.items:
                return found
    return {}
