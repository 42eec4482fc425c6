"""A small API server for kopf: discovery, and lists and watches of three resources."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kube.api_server import Request
from mooring.handlers.profile_handler import ProfileHandler, ProfileStatusWriter
from mooring.kube.api_resources import (
    NAMESPACE,
    POD,
    PRIORITY_CLASS,
    SCHEDULING_PROFILE,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import ProfileWriter
from mooring.mirroring.discovery import EXPECTED
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.scheduler_state import SchedulerState

KOPF: Final = "kopf-of-test"
"""The User-Agent by which kopf's requests are told from those of Mooring's own client."""

SERVED: Final = (POD, SCHEDULING_PROFILE, PRIORITY_CLASS)
CRD: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
DISCOVERED: Final = (*SERVED, NAMESPACE, CRD)
"""kopf starts only where it finds namespaces and custom resource definitions too."""

FORBIDDEN: Final = 'User "mooring" cannot list resource "{}" in API group "{}" at the cluster scope'


class SmallApi:
    """Answers kopf's requests; the test sets the objects of lists, and the requests to refuse."""

    def __init__(self) -> None:
        self.items: dict[Resource, Any] = {resource: [] for resource in SERVED}
        self.refuses: dict[Resource, int] = {}
        """How many of kopf's next lists and watches of a resource are refused."""
        self.refusal = (503, "ServiceUnavailable")
        self.forbidden: set[Resource] = set()
        self.patched: list[Request] = []
        self.posted: list[Request] = []
        self._watches: dict[Resource, list[Request]] = {resource: [] for resource in SERVED}

    def watches(self, resource: Resource) -> list[Request]:
        """Return kopf's open watches of the resource, oldest first."""
        return [request for request in self._watches[resource] if not request.gone.is_set()]

    def respond(self, request: Request) -> None:
        """Answer one request."""
        resource = next((r for r in SERVED if r.path() == request.path), None)
        if resource is not None:
            self._collection(request, resource)
        elif request.method == "PATCH":
            self.patched.append(request)
            metadata = {"uid": "", "resourceVersion": "1"}
            request.reply({"metadata": metadata})
        elif request.method == "POST":
            self.posted.append(request)
            request.reply({})
        else:
            request.reply(_discovery(request.path))

    def _collection(self, request: Request, resource: Resource) -> None:
        of_kopf = request.headers["User-Agent"] == KOPF
        if resource in self.forbidden:
            words = FORBIDDEN.format(resource.plural, resource.group)
            request.refuse(403, "Forbidden", words)
        elif of_kopf and self.refuses.get(resource, 0) > 0:
            self.refuses[resource] -= 1
            request.refuse(*self.refusal, "etcd has no leader")
        elif "watch" in request.query:
            request.send_bytes(b"\n")
            if of_kopf:
                self._watches[resource].append(request)
        else:
            metadata = {"resourceVersion": "1"}
            kind = f"{resource.kind}List"
            request.reply({"kind": kind, "metadata": metadata, "items": self.items[resource]})


def status_writer(
    shared: SchedulerState,
    pod_enqueuer: PodEnqueuer,
    client: ApiClient,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    recorder: EventRecorder | None = None,
) -> ProfileStatusWriter:
    """Return a writer of profiles' statuses; without `recorder`, its events are not written."""
    handler = ProfileHandler(shared.profiles, pod_enqueuer)
    recorder = recorder or EventRecorder(client, "mooring", "test")
    writer, turn = ProfileWriter(client), shared.turn
    return ProfileStatusWriter(handler, writer, recorder, turn=turn, sleep=sleep)


def _discovery(path: str) -> dict[str, Any]:
    groups = {r.group: r.version for r in DISCOVERED if r.group}
    if path == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        named = [
            {"name": group, "preferredVersion": {"version": v}, "versions": [{"version": v}]}
            for group, v in groups.items()
        ]
        return {"groups": named}
    served = (*DISCOVERED, *EXPECTED.values())
    here = [r for r in served if r.path().rpartition("/")[0] == path]
    return {"resources": [_resource(resource) for resource in here]}


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "kind": resource.kind,
        "namespaced": resource.namespaced,
        "verbs": ["get", "list", "watch", "patch"],
    }
