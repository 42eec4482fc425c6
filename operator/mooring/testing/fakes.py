"""A stand-in for the API that remembers what plugins write; a handle, a pipeline, a queued pod."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.framework.handle import Handle
from mooring.framework.pipeline import Pipeline, build_pipeline
from mooring.framework.queued_pod import QueuedPod, StateTimes
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

__all__ = ["FakeApi", "Patch", "handle", "pipeline", "queued_pod"]


def handle(state: ClusterState, api: "FakeApi | None" = None) -> Handle:
    """Return what a plugin is built with, over this state."""
    return Handle(ClusterView(state), WaitingPods(), api or FakeApi(), state)


def pipeline(
    state: ClusterState | None = None, registry: Registry | None = None, **spec: Any
) -> Pipeline:
    """Return the plugins of a profile with this `spec`, by default over no cluster."""
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
    """Return the pod as it waits in the queue since `timestamp`; `fields` are of QueuedPod.

    Without `plugins` it belongs to a profile that changes nothing about the defaults.
    """
    times = StateTimes(timestamp)
    return QueuedPod(
        parse_pod(raw), plugins or pipeline(), timestamp, timestamp, times=times, **fields
    )


@dataclass(frozen=True, slots=True)
class Patch:
    """One merge patch as it was sent; `key` is the object's name, or namespace/name."""

    resource: str
    key: str
    body: Mapping[str, Any]


class FakeApi:
    """Implements `mooring.framework.handle.Api`; returns at once and remembers every call.

    `bindings` lists (namespace/name, node) and `patches` the patches, both in order;
    `annotations` holds by namespace/name what the pod's Binding carries. While
    `failure` is set, every write raises it instead. `objects` are raw objects by resource and key,
    as `("persistentvolumes", "pv-1")`. `events` are functions that change the cluster: a
    wait in `until` runs them one after the other, and then times out.
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

    async def bind(self, pod: Pod, node: str) -> None:
        """Remember the binding."""
        self._raise_failure()
        self.bindings.append((pod.key, node))

    def annotate(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Add the annotations to the pod's; an empty mapping takes all of them back."""
        if annotations:
            self.annotations.setdefault(pod.key, {}).update(annotations)
        else:
            self.annotations.pop(pod.key, None)

    def unix_nanoseconds(self) -> int:
        """Return the start of 2026, always."""
        return 1_767_225_600_000_000_000

    async def patch(
        self, resource: str, namespace: str | None, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Remember the patch and apply it to the object, which is created if it is unknown.

        An object that has a resourceVersion gets the next one.
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

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Return when `done` is True, after running as many of the events as needed."""
        while not done():
            if not self.events:
                raise TimeoutError(f"not done after {seconds:g}s")
            self.events.popleft()()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


def _merged(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target after a JSON merge patch (RFC 7386): null deletes, objects merge."""
    result = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, Mapping):
            result[field] = _merged(result.get(field), value)
        else:
            result[field] = value
    return result
