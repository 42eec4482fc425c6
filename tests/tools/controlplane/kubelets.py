"""Replaces kubelets if kwok is not built: nodes are ready, and bound pods run at once."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from controlplane.client import ApiError, Client

AT_ONCE: Final = MappingProxyType({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

_LOOK_AGAIN: Final = 0.2
_HEARTBEAT_SECONDS: Final = 10.0
_NODE_GRACE_SECONDS: Final = 1.0
"""The seconds until a new node is ready, or a deleted pod has gone."""

Raw = dict[str, Any]


@contextmanager
def kubelets(
    make_client: Callable[[], Client], *, selector: str = "", namespace: str = ""
) -> Iterator[None]:
    """Do the work of kubelets inside the context, for nodes of a label and pods of a namespace.

    By default for all nodes, and for the pods of all namespaces.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_until_stopped, args=(make_client, selector, namespace, stop), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _until_stopped(
    make_client: Callable[[], Client], selector: str, namespace: str, stop: threading.Event
) -> None:
    nodes = f"/api/v1/nodes?labelSelector={quote(selector)}"
    pods = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    since = datetime.now(UTC)
    while not stop.wait(_LOOK_AGAIN):
        # The server may be starting, or be gone already: on to a new connection.
        with suppress(ApiError, OSError, http.client.HTTPException), make_client() as client:
            _keep_up(client, nodes, pods, since, stop)


def _keep_up(client: Client, nodes: str, pods: str, since: datetime, stop: threading.Event) -> None:
    """Run newly bound pods immediately; check all nodes and pods once a second."""
    beaten: dict[str, float] = {}
    whole_at = 0.0
    bound = quote("status.phase=Pending,spec.nodeName!=")
    while not stop.wait(_LOOK_AGAIN):
        now = time.monotonic()
        for pod in client.get(f"{pods}?fieldSelector={bound}")["items"]:
            _run(client, pod)
        if now < whole_at:
            continue
        whole_at = now + _NODE_GRACE_SECONDS
        for node in client.get(nodes)["items"]:
            name = node["metadata"]["name"]
            if now - beaten.get(name, -_HEARTBEAT_SECONDS) >= _HEARTBEAT_SECONDS:
                beaten[name] = now
                with suppress(ApiError):  # it may be deleted meanwhile
                    client.patch(f"/api/v1/nodes/{name}/status", {"status": _ready(since)})
        for pod in client.get(pods)["items"]:
            if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
                with suppress(ApiError):
                    client.request("DELETE", _path(pod), dict(AT_ONCE))


def _run(client: Client, pod: Raw) -> None:
    """Write to the pod's status that all its containers run."""
    now = _text(datetime.now(UTC))
    states = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    status = {
        "phase": "Running",
        "startTime": now,
        "conditions": [*pod["status"].get("conditions", []), condition],
        "containerStatuses": states,
    }
    with suppress(ApiError):
        client.patch(f"{_path(pod)}/status", {"status": status})


def _path(pod: Raw) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _ready(since: datetime) -> Raw:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "StandIn",
        "message": "a stand-in for a kubelet is running",
        "lastHeartbeatTime": _text(datetime.now(UTC)),
        "lastTransitionTime": _text(since),
    }
    return {"conditions": [condition]}


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
