"""A server with one Lease and optimistic locking; tests can make it fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kube.api_server import Request

COLLECTION: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PATH: Final = f"{COLLECTION}/mooring"


class LeaseServer:
    """A responder; `lease` is the stored Lease, or None before the first write."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes: list[dict[str, Any]] = []
        self.held_back: list[Request] = []
        self.holding = asyncio.Event()
        self.fails = False
        self.failed = 0
        """How many requests were answered with an error because of `fails`."""
        self.hangs = False
        self.loses_answers = False
        self.lost = asyncio.Event()
        self.overtaken_by = ""
        """Who renews the lease once, after it was read and before the next write of it arrives."""
        self._version = 0

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def respond(self, request: Request) -> None:
        """Answer now, answer with an error, or wait for `answer_held_back`."""
        if self.hangs:
            self.held_back.append(request)
            self.holding.set()
        elif self.fails:
            self.failed += 1
            request.refuse(500, "InternalError", "etcd has no leader")
        else:
            self._answer(request)

    def answer_held_back(self) -> None:
        self.hangs = False
        for request in self.held_back:
            self._answer(request)
        self.held_back.clear()

    def write(self, holder: str, *, seconds: int = 15, **changes: Any) -> None:
        """Write the lease as another replica would."""
        old = self.lease["spec"] if self.lease else {"leaseTransitions": 3}
        spec = {**old, "holderIdentity": holder, "leaseDurationSeconds": seconds, **changes}
        self._store({"metadata": {"name": "mooring", "namespace": "kube-system"}, "spec": spec})

    def _answer(self, request: Request) -> None:
        match request.method, request.path:
            case "GET", path if path == PATH and self.lease:
                request.reply(self.lease)
            case "POST", path if path == COLLECTION and not self.lease:
                self._accept(request, 201)
            case "PUT", path if path == PATH and self.lease:
                if self.overtaken_by:
                    self.write(self.overtaken_by)
                    self.overtaken_by = ""
                metadata = self.lease["metadata"]
                if request.body["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
                    self._accept(request, 200)
                else:
                    request.refuse(409, "Conflict", "the object has been modified")
            case "POST", _:
                request.refuse(409, "AlreadyExists", "leases exists")
            case _:
                request.refuse(404, "NotFound", "leases not found")

    def _accept(self, request: Request, status: int) -> None:
        self.writes.append(request.body["spec"])
        self._store(request.body)
        if self.loses_answers:
            self.lost.set()
            return
        request.reply(self.lease, status)

    def _store(self, lease: dict[str, Any]) -> None:
        self._version += 1
        metadata = {**lease["metadata"], "resourceVersion": str(self._version)}
        self.lease = {**lease, "metadata": metadata}
