"""A model of kube-apiserver: the verbs, subresources and rejections that Mooring relies on.

A request is carried out at once and as a whole, like one transaction of etcd; the network model
decides about everything before and after it. Actors and kubelets write directly with `create`,
`change` and `delete`, without the network.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from mooring.kube import api_resources as resources
from mooring.kube.api_resources import (
    LEASE,
    POD,
    POD_DISRUPTION_BUDGET,
    RESOURCE_CLAIM,
    SCHEDULING_PROFILE,
    Resource,
)
from mooring.kube.timestamps import rfc3339
from simulation.constraints import selects
from simulation.network import Reply, Request, status
from simulation.storage import BY_PATH, KINDS, Change, Raw, Storage, merged, selector
from simulation.watches import Watches

if TYPE_CHECKING:
    from simulation.timeline import Timeline


EPOCH: Final = 1_790_000_000.0
"""The time of day at second 0 of the world."""
_MERGE: Final = "application/merge-patch+json"


class Refused(Exception):  # noqa: N818 - says what happened
    """The server rejects the request."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.reply = Reply(code, status(code, reason, message, **details))


class ApiServer:
    """Stores objects and answers requests.

    `changed` is called after each change.

    Attributes:
        minor: The minor version.
        token: The token that requests need; empty if none is needed.
    """

    def __init__(
        self, timeline: "Timeline", random: Random, changed: Callable[[Change], None]
    ) -> None:
        self._timeline = timeline
        self._random = random
        self._told = changed
        self.storage = Storage(lambda: timeline.now, self._changed)
        self.watches = Watches(timeline, random, self.storage)
        self.not_served: set[Resource] = {resources.COSCHEDULING_POD_GROUP}
        self.minor = 37
        self.token = ""
        self._tokens = 0
        self._generated = 0
        self._pages: dict[str, tuple[list[Raw], int]] = {}

    def answer(self, request: Request) -> Reply | None:
        """Carry out the request; return the answer, or None if a watch was opened."""
        try:
            self._check_token(request)
            return self._answer(request)
        except Refused as refused:
            return refused.reply

    # What actors and kubelets do.

    def create(self, resource: Resource, raw: Raw, by: str) -> Raw | None:
        """Create an object with a new uid; return None if the name is taken."""
        try:
            return self._create(resource, raw, by, "create")
        except Refused:
            return None

    def change(
        self, resource: Resource, raw: Raw, by: str, patch: Mapping[str, Any], what: str = "change"
    ) -> Raw:
        """Merge a patch into the object's current version."""
        return self._put(resource, raw, merged(raw, patch, strategic=True), by, what)

    def delete(self, resource: Resource, raw: Raw, by: str, *, what: str = "delete") -> None:
        """Delete an object; a pod with a node first terminates."""
        if resource is POD and raw["spec"].get("nodeName"):
            if "deletionTimestamp" not in raw["metadata"]:
                metadata = {"deletionTimestamp": self._time()}
                self._put(POD, raw, merged(raw, {"metadata": metadata}), by, what)
        elif raw["metadata"].get("finalizers"):
            if "deletionTimestamp" not in raw["metadata"]:
                patch = {"metadata": {"deletionTimestamp": self._time()}}
                self.change(resource, raw, by, patch, what)
        else:
            self.storage.remove(resource, raw, by, what)

    def remove(self, resource: Resource, raw: Raw, by: str) -> None:
        """Remove an object at once, without termination."""
        self.storage.remove(resource, raw, by, "remove")

    def delete_pod_of(self, path: str) -> None:
        """Remove the pod that a request with this path concerns, if it concerns one."""
        parts = path.split("/")
        if "pods" in parts and parts.index("pods") + 1 < len(parts):
            at = parts.index("pods")
            raw = self.storage.get(POD, parts[at + 1], parts[at - 1])
            if raw is not None:
                self.remove(POD, raw, "somebody")

    def renew_token(self) -> str:
        """Return the new valid token; the former token becomes invalid."""
        self._tokens += 1
        self.token = f"token-{self._tokens}"
        return self.token

    def forget_history(self) -> None:
        """Compact the storage: watches and pages from before now get 410."""
        self.watches.compacted = self.storage.version
        self._pages.clear()

    # Requests.

    def _answer(self, request: Request) -> Reply | None:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if parts == ["version"]:
            version = f"v1.{self.minor}.2"
            return Reply(200, {"major": "1", "minor": str(self.minor), "gitVersion": version})
        group, version, rest = (
            ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        )
        if not rest:
            return self._discovery(group, version)
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource = BY_PATH.get((group, version, rest[0]))
        if resource is None or resource in self.not_served:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        by = request.process.identity
        if len(rest) == 1:
            return self._collection(request, resource, namespace, by)
        raw = self.storage.get(resource, rest[1], namespace)
        if raw is None:
            raise _not_found(resource, rest[1])
        if len(rest) == 3:
            return self._subresource(request, resource, raw, rest[2], by)
        return self._object(request, resource, raw, by)

    def _check_token(self, request: Request) -> None:
        shown = request.headers.get("Authorization", "")
        if self.token and shown != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _collection(
        self, request: Request, resource: Resource, namespace: str | None, by: str
    ) -> Reply | None:
        if request.method == "POST":
            body = request.json()
            if namespace is not None:
                body["metadata"].setdefault("namespace", namespace)
            return Reply(201, self._create(resource, body, by, request.what))
        if "watch" in request.query:
            refusal = self.watches.open(request, resource)
            return Reply(refusal["code"], refusal) if refusal is not None else None
        return self._list(request, resource, namespace)

    def _object(self, request: Request, resource: Resource, raw: Raw, by: str) -> Reply:
        if request.method == "GET":
            return Reply(200, raw)
        body = request.json()
        if request.method == "DELETE":
            self._check_uid(raw, body)
            self.delete(resource, raw, by, what=request.what)
            return Reply(200, raw)
        if request.method == "PUT":
            if body["metadata"].get("resourceVersion") != raw["metadata"]["resourceVersion"]:
                raise _conflict(resource, raw, "the object has been modified")
            return Reply(200, self._put(resource, raw, body, by, request.what))
        self._check_version(resource, raw, body)
        patched = merged(raw, body, strategic=request.headers["Content-Type"] != _MERGE)
        return Reply(200, self._put(resource, raw, patched, by, request.what))

    def _subresource(
        self, request: Request, resource: Resource, raw: Raw, name: str, by: str
    ) -> Reply:
        body = request.json()
        if name == "binding":
            return self._bind(raw, body, by)
        if name == "eviction":
            return self._evict(raw, body, by)
        if resource is SCHEDULING_PROFILE:  # of a custom resource the uid is not compared
            (body.get("metadata") or {}).pop("uid", None)
        uid = (body.get("metadata") or {}).get("uid", raw["metadata"]["uid"])
        if uid != raw["metadata"]["uid"]:
            message = "metadata.uid: Invalid value: field is immutable"
            raise Refused(422, "Invalid", message, name=raw["metadata"]["name"])
        self._check_version(resource, raw, body)
        strategic = request.headers["Content-Type"] != _MERGE
        after = merged(raw.get("status") or {}, body.get("status") or {}, strategic=strategic)
        if resource is RESOURCE_CLAIM:
            _check_claim(raw, after)
        if after == (raw.get("status") or {}):
            return Reply(200, raw)  # nothing is written, and the version stays
        return Reply(200, self._put(resource, raw, {**raw, "status": after}, by, request.what))

    def _bind(self, raw: Raw, body: Raw, by: str) -> Reply:
        metadata, spec = raw["metadata"], raw["spec"]
        self._check_uid(raw, {"preconditions": {"uid": body["metadata"].get("uid")}})
        if "deletionTimestamp" in metadata:
            raise _conflict(POD, raw, f"pod {metadata['name']} is being deleted")
        if spec.get("nodeName"):
            message = f'pod {metadata["name"]} is already assigned to node "{spec["nodeName"]}"'
            raise _conflict(POD, raw, message)
        if spec.get("schedulingGates"):
            raise _conflict(POD, raw, f"pod {metadata['name']} has non-empty .spec.schedulingGates")
        annotations = body["metadata"].get("annotations") or {}
        bound = merged(
            raw,
            {
                "metadata": {"annotations": annotations} if annotations else {},
                "spec": {"nodeName": body["target"]["name"]},
                "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
            },
            strategic=True,
        )
        self._put(POD, raw, bound, by, "bind")
        return Reply(201, status(201, "", ""))

    def _evict(self, raw: Raw, body: Raw, by: str) -> Reply:
        self._check_uid(raw, body.get("deleteOptions"))
        runs = raw["status"].get("phase") == "Running"
        if runs and "deletionTimestamp" not in raw["metadata"]:
            self._charge_budget(raw)
        self.delete(POD, raw, by, what="evict")
        return Reply(201, status(201, "", ""))

    def budgets_of(self, raw: Raw) -> list[Raw]:
        """Return the disruption budgets that select the pod, by the Eviction API's rules."""
        return [
            budget
            for budget in self.storage.all(POD_DISRUPTION_BUDGET)
            if budget["metadata"]["namespace"] == raw["metadata"]["namespace"]
            and selects(budget["spec"].get("selector"), raw)
        ]

    def _charge_budget(self, raw: Raw) -> None:
        """Charge the eviction to the pod's budget; reject it if the pod has several."""
        budgets = self.budgets_of(raw)
        if len(budgets) > 1:
            several = "This pod has more than one PodDisruptionBudget"
            message = f"{several}, which the eviction subresource does not support."
            raise Refused(500, "InternalError", message)
        for budget in budgets:
            allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
            if allowed <= 0:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                causes = [{"reason": "DisruptionBudget", "message": message}]
                raise Refused(429, "TooManyRequests", message, causes=causes)
            disrupted = {raw["metadata"]["name"]: self._time()}
            patch = {"status": {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}
            self.change(POD_DISRUPTION_BUDGET, budget, "eviction", patch)

    def _list(self, request: Request, resource: Resource, namespace: str | None) -> Reply:
        query = request.query
        token = query.get("continue")
        if token:
            if token not in self._pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            items, version = self._pages.pop(token)
        else:
            matches = selector(query.get("fieldSelector", ""), query.get("labelSelector", ""))
            items, version = (
                [
                    raw
                    for raw in self.storage.all(resource)
                    if matches(raw)
                    and (namespace is None or raw["metadata"]["namespace"] == namespace)
                ],
                self.storage.version,
            )
        limit = int(query.get("limit", len(items) or 1))
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        page, left = items[:limit], items[limit:]
        if left:
            metadata["continue"] = f"{version}-{len(left)}"
            self._pages[metadata["continue"]] = (left, version)
        if "PartialObjectMetadataList" in request.headers.get("Accept", ""):
            page = [{"metadata": raw["metadata"]} for raw in page]
        bare = [{f: v for f, v in raw.items() if f not in {"kind", "apiVersion"}} for raw in page]
        kind = f"{resource.kind}List"
        return Reply(
            200,
            {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": bare},
        )

    def _discovery(self, group: str, version: str) -> Reply:
        served = [kind for kind in KINDS if kind not in self.not_served]
        found = [kind for kind in served if (kind.group, kind.version) == (group, version)]
        if not found:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return Reply(200, {"resources": [{"name": kind.plural} for kind in found]})

    def _create(self, resource: Resource, body: Raw, by: str, what: str) -> Raw:
        metadata = body["metadata"]
        if "name" not in metadata:
            self._generated += 1
            metadata = {**metadata, "name": f"{metadata['generateName']}{self._generated}"}
        name, namespace = metadata["name"], metadata.get("namespace")
        if self.storage.get(resource, name, namespace) is not None:
            raise Refused(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        made = {"uid": self.storage.new_uid(), "creationTimestamp": self._time()}
        if resource is SCHEDULING_PROFILE:
            made["generation"] = 1  # type: ignore[assignment]  # the others are texts
        kinds = {"kind": resource.kind, "apiVersion": resource.api_version}
        raw = {**body, **kinds, "metadata": {**metadata, **made}}
        if resource is RESOURCE_CLAIM:
            raw.setdefault("status", {})
        return self.storage.put(resource, raw, by, what)

    def _put(self, resource: Resource, before: Raw, after: Raw, by: str, what: str) -> Raw:
        if resource is SCHEDULING_PROFILE and before["spec"] != after["spec"]:
            generation = before["metadata"]["generation"] + 1
            after = {**after, "metadata": {**after["metadata"], "generation": generation}}
        if resource is RESOURCE_CLAIM and _is_released(after):
            self.storage.remove(resource, after, by, what)
            return after
        return self.storage.put(resource, after, by, what)

    def _check_version(self, resource: Resource, raw: Raw, patch: Raw) -> None:
        """Reject a patch for another version, or for another object of the name."""
        for field in ("resourceVersion", "uid"):
            wanted = (patch.get("metadata") or {}).get(field)
            if wanted and wanted != raw["metadata"][field]:
                raise _conflict(resource, raw, "the object has been modified")

    def _check_uid(self, raw: Raw, options: Mapping[str, Any] | None) -> None:
        uid = ((options or {}).get("preconditions") or {}).get("uid")
        own = raw["metadata"]["uid"]
        if uid and uid != own:
            message = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {own}"
            raise _conflict(POD, raw, message)

    def _changed(self, change: Change) -> None:
        if change.resource is not LEASE:
            self.watches.changed(change)
        self._told(change)

    def _time(self) -> str:
        return rfc3339(EPOCH + self._timeline.now)


def _is_released(raw: Raw) -> bool:
    """Return whether the object is deleted and has no finalizers."""
    return "deletionTimestamp" in raw["metadata"] and not raw["metadata"].get("finalizers")


def _check_claim(raw: Raw, status: Raw) -> None:
    """Reject an invalid change of a claim's status (ValidateResourceClaimStatusUpdate)."""
    before = raw.get("status") or {}
    old, new = before.get("allocation"), status.get("allocation")
    reserved = {consumer["uid"] for consumer in status.get("reservedFor") or ()}
    added = reserved - {consumer["uid"] for consumer in before.get("reservedFor") or ()}
    if old and new and old["devices"] != new["devices"]:
        wrong = "status.allocation: Invalid value: field is immutable"
    elif reserved and not new:
        wrong = "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    elif added and "deletionTimestamp" in raw["metadata"]:
        wrong = "status.reservedFor: Forbidden: new entries may not be added while `deleting`"
    else:
        return
    raise Refused(422, "Invalid", wrong, name=raw["metadata"]["name"])


def _not_found(resource: Resource, name: str) -> Refused:
    return Refused(404, "NotFound", f'{resource} "{name}" not found', name=name)


def _conflict(resource: Resource, raw: Raw, message: str) -> Refused:
    return Refused(409, "Conflict", message, name=raw["metadata"]["name"], kind=resource.plural)
