"""The command `python -m bench.baseline KUBECONFIG NODES DEVICES`: a client that decides nothing.

For each pod the client makes the same writes as a scheduler, for 64 pods at a time. Every pod gets
the next node and the next devices, even if they are in use. Without DEVICES (`null`) pods get only
a node. The client's rate is the API server's limit.
"""

import asyncio
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.devices import RESOURCES, allocation, claim_spec
from bench.loader import send, session_to
from bench.workloads import Devices
from mooring.claims.model.resource_claims import FINALIZER

Raw = Mapping[str, Any]

NAME = "baseline"
"""The spec.schedulerName of the pods that this program binds."""
MOST_BYTES = 1 << 20
"""The most bytes of an event of the watch."""


async def serve(config: Raw, nodes: int, devices: Devices | None) -> None:
    """Bind every pod of this program, until the watch ends."""
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca_file = Path(cluster["certificate-authority"])
    numbers, placed = count(), set[str]()
    async with (
        session_to(cluster["server"], user["token"], ca_file) as session,
        session_to(cluster["server"], user["token"], ca_file) as watching,
        asyncio.TaskGroup() as tasks,
    ):
        path = f"/api/v1/pods?watch=1&fieldSelector=spec.schedulerName%3D{NAME}"
        async with watching.get(path, read_bufsize=MOST_BYTES) as events:
            async for line in events.content:
                event = orjson.loads(line)
                pod = event["object"]
                uid = pod["metadata"]["uid"]
                if event["type"] == "DELETED" or uid in placed:
                    continue
                if devices is not None and not _has_claim(pod):
                    continue
                placed.add(uid)
                tasks.create_task(_place(session, pod, devices, nodes, next(numbers)))


def _has_claim(pod: Raw) -> bool:
    """Return whether the pod needs no claim of the claim controller, or the claim exists."""
    return not pod["spec"].get("resourceClaims") or bool(_claims_of(pod))


def _claims_of(pod: Raw) -> list[str]:
    statuses = pod["status"].get("resourceClaimStatuses", ())
    return [each["resourceClaimName"] for each in statuses]


async def _place(
    session: aiohttp.ClientSession, pod: Raw, devices: Devices | None, nodes: int, number: int
) -> None:
    """Make the writes of a scheduler: for the devices, the binding and the event."""
    metadata = pod["metadata"]
    node = f"node-{number % nodes:05}"
    if devices is not None:
        await _allocate_devices(session, pod, devices, allocation(devices, nodes, number))
    target = {"kind": "Node", "name": node}
    binding = {"metadata": {"name": metadata["name"]}, "target": target}
    await send(session, "POST", f"{_pod_path(pod)}/binding", binding)
    events = f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events"
    await send(session, "POST", events, _event(pod, node))


async def _allocate_devices(
    session: aiohttp.ClientSession, pod: Raw, devices: Devices, allocation: Raw
) -> None:
    """Write finalizer and status of each claim of the pod, or create a claim for its resources."""
    for claim in _claims_of(pod):
        path = _claims_path(pod, claim)
        await send(session, "PATCH", path, {"metadata": {"finalizers": [FINALIZER]}})
        await _allocate(session, pod, claim, allocation)
    if not pod["spec"].get("resourceClaims"):
        await _back_resources(session, pod, devices, allocation)


async def _allocate(session: aiohttp.ClientSession, pod: Raw, claim: str, allocation: Raw) -> None:
    metadata = pod["metadata"]
    consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    status = {"allocation": allocation, "reservedFor": [consumer]}
    await send(session, "PATCH", f"{_claims_path(pod, claim)}/status", {"status": status})


async def _back_resources(
    session: aiohttp.ClientSession, pod: Raw, devices: Devices, allocation: Raw
) -> None:
    """Create the claim for the pod's extended resource, and write its name to the pod's status."""
    claim = {
        "metadata": {
            "generateName": f"{pod['metadata']['name']}-extended-resources-",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
        },
        "spec": claim_spec(devices),
    }
    created = orjson.loads(await send(session, "POST", _claims_path(pod), claim))
    name = created["metadata"]["name"]
    await _allocate(session, pod, name, allocation)
    container = pod["spec"]["containers"][0]
    resource = next(iter(container["resources"]["limits"]))
    mapping = {"containerName": container["name"], "resourceName": resource, "requestName": "r0"}
    told = {"resourceClaimName": name, "requestMappings": [mapping]}
    status = {"status": {"extendedResourceClaimStatus": told}}
    await send(session, "PATCH", f"{_pod_path(pod)}/status", status)


def _event(pod: Raw, node: str) -> Raw:
    metadata = pod["metadata"]
    about = {"kind": "Pod", **{key: metadata[key] for key in ("namespace", "name", "uid")}}
    return {
        "metadata": {"generateName": f"{metadata['name']}-"},
        "regarding": about,
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}",
        "reportingController": NAME,
        "reportingInstance": NAME,
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }


def _pod_path(pod: Raw) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _claims_path(pod: Raw, name: str = "") -> str:
    claims = f"{RESOURCES}/namespaces/{pod['metadata']['namespace']}/resourceclaims"
    return f"{claims}/{name}" if name else claims


if __name__ == "__main__":
    file, number_of_nodes, of_devices = sys.argv[1:]
    kubeconfig = orjson.loads(Path(file).read_bytes())
    fields = orjson.loads(of_devices)
    asyncio.run(
        serve(kubeconfig, int(number_of_nodes), None if fields is None else Devices(**fields))
    )
