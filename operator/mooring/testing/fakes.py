"""Fakes for tests of plugins: an API that remembers writes, a handle, a pipeline, a queued pod."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from mooring.framework.handle import Handle, ReadAgainError
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.runtime.pipeline import Pipeline, build_pipeline
from mooring.runtime.queued_pod import QueuedPod, StateTimes
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

__all__ = ["FakeApi", "Lost", "Patch", "handle", "pipeline", "queued_pod"]


def handle(state: ClusterState, api: "FakeApi | None" = None) -> Handle:
    """Return a Handle with this state and API, to build a plugin with."""
    return Handle(ClusterView(state), WaitingPods(), api or FakeApi(), state)


def pipeline(
    state: ClusterState | None = None, registry: Registry | None = None, **spec: Any
) -> Pipeline:
    """Return the plugins of a profile with this `spec`; without a state, for an empty cluster."""
    plugins = registry or Registry(SHIPPED, {})
    read_spec = read(SchedulingProfileSpec, spec, "spec")
    profile = SchedulingProfile(DEFAULT_SCHEDULER, read_spec)
    built_with = handle(state or ClusterState())
    return build_pipeline(profile, resolve(read_spec, plugins), plugins, built_with)


def queued_pod(
    raw: Mapping[str, Any],
    plugins: Pipeline | None = None,
    *,
    timestamp: float = 0.0,
    **fields: Any,
) -> QueuedPod:
    """Return the pod as queued since `timestamp`; `fields` are other fields of QueuedPod.

    `plugins` is the pipeline of the pod's profile; by default, it has the default plugins.
    """
    times = StateTimes(timestamp)
    return QueuedPod(
        parse_pod(raw), plugins or pipeline(), timestamp, timestamp, times=times, **fields
    )


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch that was sent; `key` is the object's name or namespace/name."""

    resource: str
    key: str
    body: Mapping[str, Any]


class Lost(Enum):
    """The parts of an update that can be lost."""

    NOTHING = "nothing"
    REQUEST = "request"
    ANSWER = "answer"
    TIME = "time"
    """No answer comes in time; a later call of `arrive` may still make the update."""
    CALLER = "caller"
    """The update is made, but the caller is cancelled while it waits for the answer."""


class FakeApi:
    """Implements `mooring.framework.handle.Api`; returns immediately and remembers every write.

    An `update` fails if the object has another version than the patch.

    Attributes:
        objects: Raw objects by resource and key, for example `("persistentvolumes", "pv-1")`.
        events: Functions that change the cluster. `until` calls them one by one.
        bindings: Pairs of namespace/name and node, in order.
        patches: The patches and created objects, in order.
        annotations: The annotations for each pod's Binding, by the pod's namespace/name.
        failure: An error that every write raises, or None.
        writes: The writes given to `later`, until `write_all` runs them.
        lost: How the next calls of `update` fail, one item for each call.
        recorded: The pod's key, the reason and the note of each Event that `record` got.
    """

    def __init__(
        self,
        objects: Mapping[tuple[str, str], dict[str, Any]] | None = None,
        events: Iterable[Callable[[], object]] = (),
    ) -> None:
        self.objects = dict(objects or {})
        self.events = deque(events)
        self.bindings: list[tuple[str, str]] = []
        self.patches: list[Patch] = []
        self.annotations: dict[str, dict[str, str]] = {}
        self.failure: Exception | None = None
        self.writes: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.lost: deque[Lost] = deque()
        self._late: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self.recorded: list[tuple[str, str, str]] = []

    async def bind(self, pod: Pod, node: str) -> None:
        """Append the pod's namespace/name and the node to `bindings`."""
        self._raise_failure()
        self.bindings.append((pod.key, node))

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add to the pod's entry in `annotations`; an empty mapping removes the entry."""
        if annotations:
            self.annotations.setdefault(pod.key, {}).update(annotations)
        else:
            self.annotations.pop(pod.key, None)

    def unix_nanoseconds(self) -> int:
        """Return a constant: the start of 2026."""
        return 1_767_225_600_000_000_000

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Remember the patch and apply it to the object; create the object if it is unknown.

        An object with a resourceVersion gets the next resourceVersion.
        """
        self._raise_failure()
        key = f"{namespace}/{name}" if namespace else name
        self.patches.append(Patch(resource, key, patch))
        known = self.objects.get((resource, key), {})
        merged = _merged(known, patch)
        version = known.get("metadata", {}).get("resourceVersion")
        if version is not None:
            merged["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.objects[resource, key] = merged
        return merged

    def record(self, pod: Pod, reason: str, note: str) -> None:
        """Append the pod's key, the reason and the note to `recorded`."""
        self.recorded.append((pod.key, reason, note))

    async def read(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the object; None if there is none."""
        return self.objects.get((resource, f"{namespace}/{name}"))

    async def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add the object, then raise `failure` if it is set; generated names end with 0, 1, ..."""
        metadata = dict(body["metadata"])
        made = sum(name == resource for name, _ in self.objects)
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{made}")
        metadata |= {"uid": f"uid-{metadata['name']}", "resourceVersion": "1"}
        created = {**body, "metadata": metadata}
        key = f"{metadata['namespace']}/{metadata['name']}"
        self.objects[resource, key] = created
        self.patches.append(Patch(resource, key, body))
        self._raise_failure()
        return created

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object with this uid; an object with finalizers only gets a deletion time."""
        self._raise_failure()
        known = self.objects.get((resource, f"{namespace}/{name}"))
        if known is None or known["metadata"]["uid"] != uid:
            return
        if known["metadata"].get("finalizers"):
            known["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            del self.objects[resource, f"{namespace}/{name}"]

    async def set_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Remember the status as a patch of `pods/status`."""
        self._raise_failure()
        self.patches.append(Patch("pods/status", pod.key, status))

    async def update(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: dict[str, Any],
        *,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """Remember the patch and apply it; raise ReadAgainError if the object has changed.

        The next value in the attribute `lost` says which part of the update is lost.
        """
        lost = self.lost.popleft() if self.lost else Lost.NOTHING
        if lost is Lost.REQUEST:
            raise ReadAgainError("the request is lost")
        if lost is Lost.TIME:
            late = partial(self.update, resource, namespace, name, patch, subresource=subresource)
            self._late.append(late)
            raise ReadAgainError("no answer in time")
        known = self.objects.get((resource, f"{namespace}/{name}"))
        version = patch["metadata"]["resourceVersion"]
        if known is None or known["metadata"]["resourceVersion"] != version:
            raise ReadAgainError("the object has been modified")
        path = resource if subresource is None else f"{resource}/{subresource}"
        self._raise_failure()
        self.patches.append(Patch(path, f"{namespace}/{name}", patch))
        merged = _merged(known, patch)
        merged["metadata"]["resourceVersion"] = str(int(version) + 1)
        self.objects[resource, f"{namespace}/{name}"] = merged
        if lost is Lost.ANSWER:
            raise ReadAgainError("the answer is lost")
        if lost is Lost.CALLER:
            raise asyncio.CancelledError
        return merged

    async def arrive(self) -> None:
        """Make the updates that timed out (`Lost.TIME`), except for objects changed since then."""
        while self._late:
            with suppress(ReadAgainError):
                await self._late.pop(0)()

    def alone(self, _key: str) -> AbstractAsyncContextManager[object]:
        """Return a context that does nothing, because a test has only one caller at a time."""
        return nullcontext()

    def later(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Append the write to `writes`; `write_all` runs it."""
        self.writes.append(write)

    async def write_all(self) -> None:
        """Run the writes that `later` has remembered."""
        while self.writes:
            await self.writes.pop(0)()

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Call the functions in `events` until `done()`; after the last one, raise TimeoutError."""
        while not done():
            if not self.events:
                raise TimeoutError(f"not done after {seconds:g}s")
            self.events.popleft()()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def _merged(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, Mapping):
            result[field] = _merged(result.get(field), value)
        else:
            result[field] = value
    return result
