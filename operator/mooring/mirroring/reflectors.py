"""Runs one reflector per mirrored resource, and reports the problems of each."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NoReturn

from mooring.kube.api_resources import POD, Resource
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, ForbiddenError, explain
from mooring.kube.reflector import Reflector, Sink
from mooring.mirroring.discovery import EXPECTED, Discovery
from mooring.mirroring.mirror import ASSIGNED_PODS, DEVICE_KINDS, MIRRORED
from mooring.model.events import Kind
from mooring.process.turn import Turn

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""The interval, in seconds, at which the API server is asked for its version and its kinds."""

DEAD_SECONDS: Final = 60.0
"""The most seconds for which a watch may fail; then it counts as dead."""

_FORBIDDEN: Final = (
    "Mooring may not list and watch {} of resource.k8s.io; apply the ClusterRole of its version: "
    "kubectl apply -k manifests/, or upgrade the Helm release"
)
_UNSERVED: Final = (
    "the API server does not serve {} of resource.k8s.io/v1; from Kubernetes 1.34 on it does, "
    "unless --runtime-config says otherwise"
)
_FAILING: Final = "{} of resource.k8s.io cannot be watched; Mooring's log says why"
_UNLISTED: Final = "{} of resource.k8s.io are not listed yet"
"""The reason why no device is allocated yet; {} is replaced by the names of resources."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """When a list or watch began to fail, and its last error."""

    since: float
    words: str
    is_forbidden: bool


@dataclass(frozen=True, slots=True)
class _Served:
    """A served kind with its reflector."""

    kind: Kind
    resource: Resource
    reflector: Reflector
    troubled: asyncio.Event
    """Set when listing or watching fails, and when the server stops serving the kind."""
    ended: asyncio.Event
    """Set when the kind is no longer served."""
    task: asyncio.Task[NoReturn]

    @property
    def is_expected(self) -> bool:
        """Whether API servers usually serve the kind."""
        return self.kind in EXPECTED

    @property
    def is_listed(self) -> bool:
        """Whether the reflector has listed all objects of the kind at least once."""
        return self.reflector.synced.is_set()

    @property
    def is_waited_for(self) -> bool:
        """Whether a replica waits until the kind is listed, even if listing fails at first."""
        return self.is_expected and self.kind not in DEVICE_KINDS

    def counts(self) -> bool:
        """Return whether a failing list or watch of this kind makes the replica unready."""
        if self.kind in DEVICE_KINDS:
            return False
        return self.is_expected or self.is_listed or not self.troubled.is_set()


@dataclass(eq=False, repr=False)
class Reflectors:
    """Runs one reflector for each served resource; the reflectors write to `sink`.

    Every `look_seconds` the API server is asked for its kinds. A kind that it does not serve has no
    objects. If the first list of a kind of `MIRRORED_IF_SERVED` fails, the replica is ready
    nevertheless; only pods that name an unknown PodGroup wait. The kinds of `DEVICE_KINDS` never
    make a replica unready; while one of them is unknown, no device is allocated.

    `devices_known` is called with the reason why no device is allocated, and with None when all
    device kinds are known. `relisted` is called with a resource's name after each list but the
    first, `versioned` with the server's version, `outdated` with the reason for a restart.
    """

    client: ApiClient
    sink: Sink
    relisted: Callable[[str], None]
    versioned: Callable[[str], None] = lambda _version: None
    outdated: Callable[[str], None] = lambda _why: None
    devices_known: Callable[[str | None], None] = lambda _why_not: None
    turn: Turn | None = None
    clock: Callable[[], float] = time.monotonic
    random: Random | None = None
    look_seconds: float = LOOK_SECONDS

    def __post_init__(self) -> None:
        self._turn = self.turn if self.turn is not None else Turn(self.clock)
        self._devices_logged = set[tuple[str, str]]()
        """The pairs of reason and unknown device resource that were logged."""
        self._troubles: dict[Resource, _Trouble] = {}
        self._reflectors = {
            resource: self._reflector(resource) for resource in MIRRORED if not resource.group
        }
        self._served: dict[Kind, _Served] = {}
        self._discovery = Discovery(
            self.client, versioned=lambda version: self._turn.post(partial(self.versioned, version))
        )
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """List and watch all resources until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tell_of_devices()
            await self._discovery.look()
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            while True:
                for kind, resource in {**EXPECTED, **self._discovery.served}.items():
                    await self._follow(kind, resource, group)
                self._looked.set()
                self._tell_of_devices()
                await asyncio.sleep(self.look_seconds)
                await self._discovery.look()

    async def synced(self) -> None:
        """Wait until each resource is listed or known as not served.

        Kinds of `MIRRORED_IF_SERVED` and `DEVICE_KINDS` that cannot be listed are not waited for.
        """
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self._looked.wait()
        for served in tuple(self._served.values()):
            given_up = served.ended if served.is_waited_for else served.troubled
            await _any_of(served.reflector.synced, given_up)

    def served(self) -> Mapping[Kind, Resource]:
        """Return the resource in use for each kind of `MIRRORED_IF_SERVED` that is served."""
        return {
            kind: served.resource for kind, served in self._served.items() if not served.is_expected
        }

    def unserved(self) -> Mapping[Kind, Resource]:
        """Return, by kind, a resource that Mooring could read but the server does not serve."""
        return self._discovery.unserved()

    def problem(self) -> str | None:
        """Return a text with the resources that are not listed or not watched; None without any."""
        counted = self._counted()
        unlisted = [r for r, reflector in counted.items() if not reflector.synced.is_set()]
        if not self._looked.is_set():
            unlisted += [
                resource
                for kind, resource in EXPECTED.items()
                if resource not in counted and kind not in DEVICE_KINDS
            ]
        if unlisted:
            return f"not listed yet: {', '.join(map(self._described, unlisted))}"
        if not self._troubles:
            return None
        dead = [resource for resource in counted if self._lag(resource) > DEAD_SECONDS]
        if dead:
            longest = max(map(self._lag, dead))
            return f"not watched for {longest:.0f} seconds: {', '.join(map(self._described, dead))}"
        return None

    def is_current(self) -> bool:
        """Return whether all needed resources are listed and watched; also call `devices_known`.

        A kind of `DEVICE_KINDS` is not needed if its watch fails for over `DEAD_SECONDS`.
        """
        self._tell_of_devices()
        if self.problem() is not None:
            return False
        if not self._troubles:
            return True
        if not self._troubles.keys().isdisjoint(self._counted()):
            return False
        devices = (served for kind in DEVICE_KINDS if (served := self._served.get(kind)))
        return not any(
            served.resource in self._troubles and self._knows(served) for served in devices
        )

    def _counted(self) -> dict[Resource, Reflector]:
        # A ready replica needs these resources.
        return self._reflectors | {
            served.resource: served.reflector for served in self._served.values() if served.counts()
        }

    def lags(self) -> Mapping[str, float]:
        """Return, by resource, for how many seconds its watch has failed; 0 if the watch works."""
        served = (served.resource for served in self._served.values())
        return {str(resource): self._lag(resource) for resource in (*self._reflectors, *served)}

    def _unknown_devices(self) -> dict[str, list[str]]:
        """Return, by reason, the device resources (plural names) whose objects are not known."""
        unknown: dict[str, list[str]] = {_FORBIDDEN: [], _FAILING: [], _UNSERVED: [], _UNLISTED: []}
        for kind in DEVICE_KINDS:
            served = self._served.get(kind)
            if served is None and kind in EXPECTED:
                is_missing = kind in self._discovery.unserved()
                unknown[_UNSERVED if is_missing else _UNLISTED].append(EXPECTED[kind].plural)
            elif served is not None and not self._knows(served):
                unknown[self._why_unknown(served.resource)].append(served.resource.plural)
        return {reason: kinds for reason, kinds in unknown.items() if kinds}

    def _why_unknown(self, resource: Resource) -> str:
        trouble = self._troubles.get(resource)
        if trouble is None:
            return _UNLISTED
        return _FORBIDDEN if trouble.is_forbidden else _FAILING

    def _knows(self, served: _Served) -> bool:
        return served.is_listed and self._lag(served.resource) <= DEAD_SECONDS

    def _tell_of_devices(self) -> None:
        unknown = self._unknown_devices()
        texts = [reason.format(_listing(kinds)) for reason, kinds in unknown.items()]
        problem = f"devices cannot be allocated: {'; '.join(texts)}" if texts else None
        self._turn.post(partial(self.devices_known, problem))
        fails = {(why, kind) for why in (_FORBIDDEN, _FAILING) for kind in unknown.get(why, ())}
        # Not before all kinds are listed or failing, so that one line names all.
        if not fails <= self._devices_logged and _UNLISTED not in unknown:
            logger.warning("pods with claims for devices wait: %s", problem)
            self._devices_logged |= fails
        elif problem is None and self._devices_logged:
            logger.info("the claims, slices and classes of devices are known again")
            self._devices_logged.clear()

    async def _follow(
        self, kind: Kind, resource: Resource | None, group: asyncio.TaskGroup
    ) -> None:
        served = self._served.get(kind)
        if served is not None and resource not in (None, served.resource):
            before = served.resource.version
            self.outdated(f"{resource} ({resource.version}) is served instead of {before}")
        elif served is not None and resource is None:
            served.task.cancel()
            await asyncio.wait([served.task])
            served.troubled.set()
            served.ended.set()
            del self._served[kind]
            self._troubles.pop(served.resource, None)
            self._tell_of_devices()  # before claims are forgotten, and with them what is in use
            await self._turn.run(lambda: self.sink.relist(served.resource).apply())
        elif served is None and resource is not None:
            reflector = self._reflector(resource)
            self._served[kind] = _Served(
                kind,
                resource,
                reflector,
                troubled=asyncio.Event(),
                ended=asyncio.Event(),
                task=group.create_task(reflector.run()),
            )

    def _reflector(self, resource: Resource) -> Reflector:
        return Reflector(
            self.client,
            resource,
            self.sink,
            selectors={"fieldSelector": ASSIGNED_PODS} if resource is POD else None,
            on_trouble=self._on_trouble,
            on_synced=self._tell_of_devices,
            on_relist=lambda resource: self.relisted(str(resource)),
            turn=self._turn,
            clock=self.clock,
            random=self.random,
        )

    def _described(self, resource: Resource) -> str:
        trouble = self._troubles.get(resource)
        return f"{resource} ({trouble.words})" if trouble is not None else str(resource)

    def _lag(self, resource: Resource) -> float:
        trouble = self._troubles.get(resource)
        return 0.0 if trouble is None else self.clock() - trouble.since

    def _on_trouble(self, resource: Resource, error: ApiError | None) -> None:
        if error is None:
            self._troubles.pop(resource, None)
            self._tell_of_devices()
            return
        for served in self._served.values():
            if served.resource == resource:
                served.troubled.set()
        known = self._troubles.get(resource)
        since = known.since if known is not None else self.clock()
        is_forbidden = isinstance(error, ForbiddenError)
        self._troubles[resource] = _Trouble(since, explain(error), is_forbidden)
        self._tell_of_devices()


def _listing(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


async def _any_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
