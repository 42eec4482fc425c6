"""An auditor: what happened in the cluster, from a watch of its own, and what was wrong with it.

It reads pods, nodes and the lease straight from the API server, past the proxies, and keeps every
version with its resourceVersion. Afterwards `verdict` replays them in that order, which is the
order in which etcd took them, so that "at any moment" is meant literally. What a replica sent is
in its proxy's journal. No code is shared with Mooring.

It recounts cpu, memory, extended resources, the number of pods, host ports, gpushare's cards and
the devices of claims, and it knows node selectors and `unschedulable`. Whether a pod with another
constraint could be placed it cannot say: such a pod is `constrained`, and is lost only if it waits
where everything fits. A pod with claims for devices is `constrained` too.
"""

import math
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from itertools import pairwise
from typing import Any, Final, Self

from bench.audit import quantity
from controlplane import Access, ApiError
from controlplane.client import Client
from faults.claims import ClaimSeen, DeviceBooks, claims_of

Raw = Mapping[str, Any]

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/mooring-system/leases"
LEASE: Final = f"{LEASES}/mooring"
MOORING: Final = "mooring"
"""The name of the lease, and what audited pods have as schedulerName."""
CONSTRAINED: Final = "constrained"
PROTECTED: Final = "protected"
"""Labels by which a test tells the auditor about its pods."""
GPU_MEMORY: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"
GPUSHARE: Final = "ALIYUN_COM_GPU_MEM"

RECONNECT_SECONDS: Final = 0.2
KNOWN_LATE_SECONDS: Final = 20.0
"""Mooring decides on what it has seen, which a fault may delay by so much. An eviction is needless
only if it was so in every state of the cluster within this time before it."""
CLAIMED_SECONDS: Final = 30.0
"""A pod that is bound to a node within so long after an eviction may have been assumed there
before it, and then its room was not free."""


@dataclass(frozen=True)
class Amount:
    """What a pod needs or a node has."""

    cpu: int = 0
    """In thousandths."""
    memory: int = 0
    """In bytes."""
    pods: int = 0
    others: tuple[tuple[str, int], ...] = ()
    """Extended resources, by name."""

    @classmethod
    def read(cls, raw: Raw, pods: int) -> Self:
        """Return the amounts that these quantities by resource stand for."""
        cpu, memory = quantity(raw.get("cpu", "0")), quantity(raw.get("memory", "0"))
        others = ((name, int(raw[name])) for name in sorted(raw) if "/" in name)
        return cls(math.ceil(cpu * 1000), math.ceil(memory), pods, tuple(others))

    def __add__(self, other: "Amount") -> "Amount":
        cpu, memory, pods = self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods
        return Amount(cpu, memory, pods, self._others(other, 1))

    def __sub__(self, other: "Amount") -> "Amount":
        cpu, memory, pods = self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods
        return Amount(cpu, memory, pods, self._others(other, -1))

    def covers(self, need: "Amount") -> bool:
        """Return whether the need fits."""
        plain = self.cpu >= need.cpu and self.memory >= need.memory and self.pods >= need.pods
        if not (self.others or need.others):
            return plain
        return plain and all(amount >= 0 for _, amount in self._others(need, -1))

    def _others(self, other: "Amount", sign: int) -> tuple[tuple[str, int], ...]:
        if not other.others:
            return self.others
        sums = dict(self.others)
        for name, amount in other.others:
            sums[name] = sums.get(name, 0) + sign * amount
        return tuple(sorted(sums.items()))


@dataclass(frozen=True)
class PodSeen:
    """One version of a pod, as far as it is audited."""

    key: str
    uid: str
    need: Amount
    priority: int = 0
    node: str = ""
    nominated: str = ""
    preempted: bool = False
    """It has the condition DisruptionTarget by a scheduler, or by the Eviction API."""
    finished: bool = False
    selector: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = "mooring"
    gated: bool = False
    leaving: bool = False
    host_ports: frozenset[int] = frozenset()
    cards: tuple[tuple[int, int], ...] = ()
    """The cards that its annotations name, and how much memory it has of each."""
    wants_cards: bool = False
    constrained: bool = False
    """It has a constraint that the auditor does not know."""
    protected: bool = False
    """Its budget may forbid its eviction."""
    runs: bool = False
    claims: tuple[str, ...] = ()
    """The names of its claims for devices, as far as they exist."""

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """Return the audited part of an API object."""
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        need = Amount(pods=1)
        ports = set[int]()
        for container in spec["containers"]:
            requests = (container.get("resources") or {}).get("requests") or {}
            need += Amount.read(requests, 0)
            shown = (port.get("hostPort") for port in container.get("ports") or ())
            ports.update(filter(None, shown))
        targets = [
            condition["reason"]
            for condition in status.get("conditions") or ()
            if condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        ]
        return cls(
            key=f"{metadata['namespace']}/{metadata['name']}",
            uid=metadata["uid"],
            need=need,
            priority=spec.get("priority") or 0,
            node=spec.get("nodeName") or "",
            nominated=status.get("nominatedNodeName") or "",
            preempted=bool({"PreemptionByScheduler", "EvictionByEvictionAPI"} & {*targets}),
            runs=status.get("phase") == "Running",
            finished=status.get("phase") in {"Succeeded", "Failed"},
            selector=spec.get("nodeSelector") or {},
            scheduler=spec.get("schedulerName") or "",
            gated=bool(spec.get("schedulingGates")),
            leaving=bool(metadata.get("deletionTimestamp")),
            host_ports=frozenset(ports),
            cards=_cards(metadata.get("annotations") or {}),
            wants_cards=any(name == GPU_MEMORY for name, _ in need.others),
            constrained=CONSTRAINED in (metadata.get("labels") or {})
            or bool(spec.get("resourceClaims")),
            protected=PROTECTED in (metadata.get("labels") or {}),
            claims=claims_of(raw),
        )


def _cards(annotations: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return the card that gpushare's annotations name, with the memory taken of it."""
    index = annotations.get(f"{GPUSHARE}_IDX", "")
    return ((int(index), int(annotations.get(f"{GPUSHARE}_POD", "0"))),) if index else ()


@dataclass(frozen=True)
class NodeSeen:
    """One version of a node, as far as it is audited."""

    key: str
    uid: str
    allocatable: Amount
    schedulable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def card_memory(self) -> int:
        """The memory of each of its cards; 0 without any."""
        others = dict(self.allocatable.others)
        return others.get(GPU_MEMORY, 0) // max(1, others.get(GPU_COUNT, 0))

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """Return the audited part of an API object."""
        has = raw["status"].get("allocatable") or {}
        spec = raw.get("spec") or {}
        return cls(
            key=raw["metadata"]["name"],
            uid=raw["metadata"]["uid"],
            allocatable=Amount.read(has, int(has.get("pods", "0"))),
            schedulable=not spec.get("unschedulable") and not spec.get("taints"),
            labels=raw["metadata"].get("labels") or {},
        )


@dataclass(frozen=True)
class LeaseSeen:
    """One version of Mooring's lease."""

    key: str
    uid: str
    holder: str

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """Return the audited part of an API object."""
        metadata = raw["metadata"]
        return cls(metadata["name"], metadata["uid"], raw["spec"].get("holderIdentity") or "")


Object = PodSeen | NodeSeen | LeaseSeen | ClaimSeen


@dataclass(frozen=True)
class Seen:
    """An event: this object has this form from resource version `version` on."""

    version: int
    at: float
    """CLOCK_MONOTONIC when the auditor saw it."""
    object: Object
    deleted: bool = False


@dataclass(frozen=True)
class Verdict:
    """What went wrong; each entry is a sentence with its time, CLOCK_MONOTONIC."""

    lost: tuple[tuple[float, str], ...] = ()
    doubled: tuple[tuple[float, str], ...] = ()
    overcommitted: tuple[tuple[float, str], ...] = ()
    needless: tuple[tuple[float, str], ...] = ()
    unauthorised: tuple[tuple[float, str], ...] = ()
    """Writes by a replica after another held the lease."""
    cardless: tuple[tuple[float, str], ...] = ()
    """Pods that were bound without a card that they request."""
    devices: tuple[tuple[float, str], ...] = ()
    """Devices that two claims had at once, pods without theirs, and what nobody uses in the end."""
    idle: tuple[tuple[float, str], ...] = ()
    """Rules of the proxies that were set and struck nothing."""
    bound: int = 0
    evicted: int = 0
    bindings: tuple[float, ...] = ()
    """When pods were bound, in order."""
    waited: tuple[tuple[float, float], ...] = ()
    """Intervals in which a pod waited that could be placed, if need be by preemption."""

    @property
    def faults(self) -> list[str]:
        """Every sentence."""
        named = {
            "lost": self.lost,
            "bound twice": self.doubled,
            "overcommitted": self.overcommitted,
            "needless eviction": self.needless,
            "without the lease": self.unauthorised,
            "without its card": self.cardless,
            "devices": self.devices,
            "struck nothing": self.idle,
        }
        return [f"{name}: {text}" for name, found in named.items() for _, text in found]

    def longest_stall(self, since: float, until: float) -> float:
        """Return the longest time without a Binding while some pod waited needlessly."""
        longest = 0.0
        for begin, end in self.waited:
            begun, ended = max(begin, since), min(end, until)
            if begun >= ended:
                continue
            first = bisect_right(self.bindings, begun)
            last = bisect_right(self.bindings, ended)
            marks = [begun, *self.bindings[first:last], ended]
            gaps = [after - before for before, after in pairwise(marks)]
            longest = max(longest, *gaps)
        return longest


class Books:
    """Follows the API server until closed; `saw` gets every event on the watch's thread."""

    def __init__(self, access: Access, saw: Callable[[Seen], None] | None = None) -> None:
        self.troubles: list[str] = []
        self._access = access
        self._saw = saw
        self._seen: list[Seen] = []
        self._present: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(path, read), daemon=True)
            for path, read in (
                (NODES, NodeSeen.read),
                (PODS, PodSeen.read),
                (LEASES, LeaseSeen.read),
                (CLAIMS, ClaimSeen.read),
            )
        ]
        self._synced = threading.Semaphore(0)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            if not self._synced.acquire(timeout=30):
                raise TimeoutError("the auditor's watches did not begin")
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()  # the threads are daemons that sit in a read

    @property
    def seen(self) -> list[Seen]:
        """Every event so far."""
        with self._lock:
            return list(self._seen)

    @property
    def pods(self) -> list[PodSeen]:
        """The pods that exist now."""
        with self._lock:
            return [found for found in self._present.values() if isinstance(found, PodSeen)]

    @property
    def nodes(self) -> list[NodeSeen]:
        """The nodes that exist now."""
        with self._lock:
            return [found for found in self._present.values() if isinstance(found, NodeSeen)]

    def _follow(self, path: str, read: Callable[[Raw], Object]) -> None:
        known: dict[str, Object] = {}
        version, listed = "0", False
        first = True
        while not self._closing.is_set():
            try:
                with self._access.client() as client:
                    if not listed:
                        version = self._listed(client.get(path), read, known, int(version))
                        listed = True
                    if first:
                        self._synced.release()
                        first = False
                    version, listed = self._watched(client, path, version, read, known)
            except ApiError as error:
                listed = listed and error.status != 410
            except (OSError, HTTPException, ValueError):
                time.sleep(RECONNECT_SECONDS)  # the API server is being restarted
        # nothing to close: every connection is its own context

    def _listed(
        self, listed: Raw, read: Callable[[Raw], Object], known: dict[str, Object], since: int
    ) -> str:
        version: str = listed["metadata"]["resourceVersion"]
        items = listed["items"]
        present = {int(raw["metadata"]["resourceVersion"]): read(raw) for raw in items}
        for changed, found, deleted in relisted(known, present, since):
            self._note(changed, found, deleted=deleted)
        known.clear()
        known.update({found.uid: found for found in present.values()})
        return version

    def _watched(
        self,
        client: Client,
        path: str,
        version: str,
        read: Callable[[Raw], Object],
        known: dict[str, Object],
    ) -> tuple[str, bool]:
        """Return the last version that was seen, and whether a watch can go on from there."""
        query = f"{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3600"
        with suppress(OSError, HTTPException, ValueError):
            for event in client.watch(f"{query}&resourceVersion={version}"):
                if event["type"] == "ERROR":
                    return version, False
                raw = event["object"]
                version = raw["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                found, deleted = read(raw), event["type"] == "DELETED"
                if deleted:
                    known.pop(found.uid, None)
                else:
                    known[found.uid] = found
                self._note(int(version), found, deleted=deleted)
                if self._closing.is_set():
                    break
        self._closing.wait(RECONNECT_SECONDS)  # the API server may be down
        return version, True

    def _note(self, version: int, found: Object, *, deleted: bool = False) -> None:
        event = Seen(version, time.monotonic(), found, deleted)
        with self._lock:
            self._seen.append(event)
            if deleted:
                self._present.pop(found.uid, None)
            else:
                self._present[found.uid] = found
        if self._saw is not None:
            self._saw(event)


def relisted(
    known: Mapping[str, Object], present: Mapping[int, Object], since: int
) -> Iterator[tuple[int, Object, bool]]:
    """Yield what a list changes: a resource version, an object, and whether it was deleted.

    `known` is by uid and as of the resource version `since`, `present` by resource version. What is
    not listed went at some time after `since`; that it went at once is in favour of whoever is
    audited. A name may have returned since, a uid has not.
    """
    uids = {found.uid for found in present.values()}
    for uid, gone in known.items():
        if uid not in uids:
            yield since, gone, True
    for changed, found in present.items():
        if known.get(found.uid) != found:
            yield changed, found, False


class _Replay:
    """The cluster at one moment, and the history that audits need of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeSeen] = {}
        self.pods: dict[str, PodSeen] = {}
        self.free: dict[str, Amount] = {}
        self.history: dict[str, list[tuple[float, Amount, bool]]] = defaultdict(list)
        """By node: from this time on, so much is free, and whether pods may come."""
        self.on_node: dict[str, dict[str, PodSeen]] = defaultdict(dict)
        self.pending: dict[str, PodSeen] = {}
        self.devices = DeviceBooks()
        self.shared: list[tuple[float, str]] = []
        """Devices that two claims had at once."""

    def put(self, event: Seen) -> None:
        """Add an event."""
        found = event.object
        if isinstance(found, ClaimSeen):
            doubled = self.devices.put(found, deleted=event.deleted)
            self.shared += [(event.at, text) for text in doubled]
        if isinstance(found, NodeSeen):
            if event.deleted:
                self.nodes.pop(found.key, None)
            else:
                self.nodes[found.key] = found
            self._count(found.key, event.at)
        elif isinstance(found, PodSeen):
            before = self.pods.pop(found.uid, None)
            if before is not None:
                self.on_node[before.node].pop(before.uid, None)
                self.pending.pop(before.uid, None)
            if not event.deleted:
                self.pods[found.uid] = found
                if found.node and not found.finished:
                    self.on_node[found.node][found.uid] = found
                elif not found.node and not found.gated and not found.leaving:
                    self.pending[found.uid] = found
            for node in {found.node, before.node if before else ""} - {""}:
                self._count(node, event.at)

    def fits(self, pod: PodSeen) -> bool:
        """Return whether some node would take the pod now, beside the room of nominated pods."""
        kept: dict[str, Amount] = defaultdict(Amount)
        for other in self.pending.values():
            if other.nominated and other.priority >= pod.priority and other.uid != pod.uid:
                kept[other.nominated] += other.need
        return any(
            self.takes(node, pod) and (free - kept[name]).covers(pod.need)
            for name, free in self.free.items()
            if (node := self.nodes.get(name)) is not None
        )

    def fits_by_preemption(self, pod: PodSeen) -> bool:
        """Return whether some node would take the pod if all pods of lower priority left it."""
        for name, node in self.nodes.items():
            lower = Amount()
            for other in self.on_node[name].values():
                if other.priority < pod.priority and not other.protected:
                    lower += other.need
            if self.takes(node, pod) and (self.free[name] + lower).covers(pod.need):
                return True
        return False

    @staticmethod
    def takes(node: NodeSeen, pod: PodSeen) -> bool:
        """Return whether the node's labels and state let the pod on it."""
        return node.schedulable and pod.selector.items() <= node.labels.items()

    def _count(self, name: str, at: float) -> None:
        node = self.nodes.get(name)
        if node is None:
            self.free.pop(name, None)
            self.history[name].append((at, Amount(), False))
            return
        used = Amount()
        for pod in self.on_node[name].values():
            used += pod.need
        self.free[name] = node.allocatable - used
        self.history[name].append((at, self.free[name], node.schedulable))


def audit(
    seen: Iterable[Seen],
    journals: Mapping[str, Sequence[Raw]],
    *,
    quiet_since: float,
) -> Verdict:
    """Return what the events and the replicas' journals say.

    Args:
        seen: what Books saw.
        journals: the writes of each replica, by the name of its proxy.
        quiet_since: pods that have waited since this time, CLOCK_MONOTONIC, and could be placed,
            if need be by preemption, are lost.
    """
    events = _in_order(seen)
    replay = _Replay()
    bindings, evictions, waiting = _Bindings(replay), _Evictions(replay), _Waiting()
    created: dict[str, float] = {}
    for event in events:
        replay.put(event)
        found = event.object
        if isinstance(found, PodSeen):
            created.setdefault(found.uid, event.at)
            evictions.look(event, found)
            bindings.look(event, found)
        waiting.look(replay, event)
    for journal in journals.values():
        evictions.hear(journal)
    return Verdict(
        lost=tuple(_lost(replay, created, quiet_since)),
        doubled=(*_bound_again(journals), *bindings.doubled),
        overcommitted=tuple(bindings.overcommitted),
        needless=tuple(evictions.needless()),
        unauthorised=tuple(_unauthorised(events, journals)),
        cardless=tuple(bindings.cardless),
        devices=(*replay.shared, *bindings.without_devices, *_left(replay)),
        bound=len(bindings.times),
        evicted=len(evictions.all),
        bindings=tuple(sorted(bindings.times)),
        waited=waiting.intervals(time.monotonic()),
    )


def _in_order(seen: Iterable[Seen]) -> list[Seen]:
    """Return the events as etcd took them, each with a time by which it had happened.

    A thread reads each watch, and on a busy machine one may be late while another is not. Whatever
    the auditor had seen of later versions by then, an event had happened before it.
    """
    events = sorted(seen, key=lambda event: event.version)
    latest = math.inf
    for index in reversed(range(len(events))):
        latest = min(latest, events[index].at)
        if events[index].at > latest:
            events[index] = replace(events[index], at=latest)
    return events


class _Bindings:
    """When pods were bound, and what was wrong with it."""

    def __init__(self, replay: _Replay) -> None:
        self.times: list[float] = []
        self.doubled: list[tuple[float, str]] = []
        self.overcommitted: list[tuple[float, str]] = []
        self.cardless: list[tuple[float, str]] = []
        self.without_devices: list[tuple[float, str]] = []
        self._replay = replay
        self._nodes_of: dict[str, list[str]] = defaultdict(list)

    def look(self, event: Seen, pod: PodSeen) -> None:
        """Note a pod that is on a node for the first time."""
        nodes = self._nodes_of[pod.uid]
        if not pod.node or pod.node in nodes:
            return
        nodes.append(pod.node)
        if len(nodes) > 1:
            self.doubled.append((event.at, f"{pod.key} was seen on {nodes}"))
        self.overcommitted += _overcommitted(self._replay, pod, event.at)
        if pod.wants_cards and not pod.cards:
            self.cardless.append((event.at, f"{pod.key} on {pod.node}"))
        if pod.scheduler != MOORING:
            return
        self.times.append(event.at)
        if not pod.finished:
            missing = self._replay.devices.not_reserved(pod)
            self.without_devices += [(event.at, text) for text in missing]


class _Waiting:
    """When at least one pod was pending that could be placed, if need be by preemption.

    Asking that at each event is too slow; it is asked four times a second of the run.
    """

    EVERY: Final = 0.25

    def __init__(self) -> None:
        self._looked = 0.0
        self._since: float | None = None
        self._done: list[tuple[float, float]] = []

    def look(self, replay: _Replay, event: Seen) -> None:
        if replay.pending and event.at - self._looked < self.EVERY:
            return
        self._looked = event.at
        specs: dict[Any, PodSeen] = {}
        for pod in replay.pending.values():
            if pod.constrained:
                continue
            key = (pod.need, pod.priority, pod.nominated, tuple(sorted(pod.selector.items())))
            specs.setdefault(key, pod)
        if any(replay.fits(pod) or replay.fits_by_preemption(pod) for pod in specs.values()):
            if self._since is None:
                self._since = event.at
        elif self._since is not None:
            self._done.append((self._since, event.at))
            self._since = None

    def intervals(self, end: float) -> tuple[tuple[float, float], ...]:
        return (*self._done, *([(self._since, end)] if self._since is not None else []))


def _overcommitted(replay: _Replay, bound: PodSeen, at: float) -> Iterator[tuple[float, str]]:
    """Yield what a bound pod's node, or its card, has too little of, and ports used twice."""
    free, there = replay.free.get(bound.node), replay.on_node[bound.node].values()
    if free is not None and not free.covers(Amount()):
        yield at, f"{bound.node} after {bound.key} ({bound.uid}): {free}"
    taken = Counter(port for pod in there for port in pod.host_ports)
    for port in sorted(bound.host_ports):
        if taken[port] > 1:
            yield at, f"{bound.node} after {bound.key} ({bound.uid}): port {port} twice"
    if not bound.cards:
        return
    used = Counter[int]()
    for other in there:
        for card, memory in other.cards:
            used[card] += memory
    node = replay.nodes.get(bound.node)
    for card, _ in bound.cards:
        if node is not None and used[card] > node.card_memory:
            text = f"{used[card]} of {node.card_memory}"
            yield at, f"card {card} of {bound.node} after {bound.key} ({bound.uid}): {text}"


def _bound_again(journals: Mapping[str, Sequence[Raw]]) -> Iterator[tuple[float, str]]:
    """Yield pods for which the API server accepted more than one Binding."""
    accepted: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for name, journal in journals.items():
        for write in journal:
            if write["path"].endswith("/binding") and write["status"] in {200, 201}:
                accepted[write["path"], write["uid"]].append((write["at"], name))
    for (path, _), times in accepted.items():
        if len(times) > 1:
            yield max(times)[0], f"{path} accepted {len(times)} times, by {sorted(times)}"


def placeable(seen: Iterable[Seen]) -> list[PodSeen]:
    """Return pods that are pending at the end of the events, and that some node would take.

    Also those that would be taken once pods of lower priority have left.
    """
    return [*_placeable(_replayed(seen))]


def left_devices(seen: Iterable[Seen]) -> list[str]:
    """Return what holds devices at the end of the events although no pod uses them."""
    return [text for _, text in _left(_replayed(seen))]


def _left(replay: _Replay) -> Iterator[tuple[float, str]]:
    now = time.monotonic()
    return ((now, text) for text in replay.devices.left(replay.pods.values()))


def _placeable(replay: _Replay) -> Iterator[PodSeen]:
    for pod in replay.pending.values():
        if pod.scheduler != MOORING or pod.constrained:
            continue
        if replay.fits(pod) or replay.fits_by_preemption(pod):
            yield pod


def _replayed(seen: Iterable[Seen]) -> _Replay:
    replay = _Replay()
    for event in sorted(seen, key=lambda one: one.version):
        replay.put(event)
    return replay


def _lost(
    replay: _Replay, created: Mapping[str, float], since: float
) -> Iterator[tuple[float, str]]:
    for pod in _placeable(replay):
        at = created[pod.uid]
        if at <= since:
            yield at, f"{pod.key} (priority {pod.priority}, {pod.need}) is still pending"


class _Evictions:
    """Preemptions, and whether their victims were needed.

    A victim was not needed if, in every state that Mooring can have decided on, its node or another
    one had room for all pods with a claim to it: those nominated there, also by a write that a
    fault has struck or by what an event says, and those bound there soon after, which may have been
    assumed there already. The other victims of that node count as gone.
    """

    def __init__(self, replay: _Replay) -> None:
        self.all: list[tuple[float, PodSeen]] = []
        """The time at which each victim left, or began to, and the victim."""
        self._replay = replay
        self._marked: dict[str, float] = {}
        """When each victim was first said to be one."""
        self._left: set[str] = set()
        self._gone: dict[str, float] = {}
        self._pods: dict[str, PodSeen] = {}
        self._nominations: dict[str, list[_Nomination]] = defaultdict(list)
        """Of each node; a pod may have had several."""
        self._open: dict[str, _Nomination] = {}
        self._bound: dict[str, dict[str, tuple[float, PodSeen]]] = defaultdict(dict)

    def look(self, event: Seen, pod: PodSeen) -> None:
        """Note what the event says about preemptions."""
        self._pods[pod.uid] = pod
        if pod.preempted and pod.node:
            self._marked.setdefault(pod.uid, event.at)
        leaves = pod.leaving or event.deleted
        if leaves and pod.uid in self._marked and pod.uid not in self._left:
            self._left.add(pod.uid)
            self.all.append((event.at, pod))
        if pod.node and pod.uid not in self._bound[pod.node]:
            self._bound[pod.node][pod.uid] = (event.at, pod)
        if event.deleted:
            self._gone[pod.uid] = event.at
        before = self._open.get(pod.uid)
        ends = event.deleted or bool(pod.node)
        if before is not None and (ends or before.pod.nominated != pod.nominated):
            before.until = event.at
            del self._open[pod.uid]
        if pod.nominated and not ends and pod.uid not in self._open:
            nomination = _Nomination(pod, event.at)
            self._open[pod.uid] = nomination
            self._nominations[pod.nominated].append(nomination)

    def hear(self, journal: Iterable[Raw]) -> None:
        """Note the nominations that a replica meant, whether or not they have come to be.

        A preemption is abandoned when the API server refuses an eviction, and what was to be
        written of it may have met a fault too, or a newer report.
        """
        for write in journal:
            pod = self._pods.get(write.get("preemptor") or write.get("uid") or "")
            victim = self._pods.get(write.get("victim") or "")
            node = write.get("nominated") or (victim.node if victim is not None else "")
            if pod is not None and node:
                when = write["received"]
                self._nominations[node].append(_Nomination(pod, when, when))

    def needless(self) -> Iterator[tuple[float, str]]:
        """Yield each victim that no preemptor needed, with the time of its eviction.

        It may have been marked for one preemption, which was abandoned, and have left for another.
        """
        for left, victim in self.all:
            why = [self._needless(victim, at) for at in (self._marked[victim.uid], left)]
            if all(why):
                yield left, why[-1]

    def _needless(self, victim: PodSeen, at: float) -> str:
        preemptors = [
            pod
            for pod, _ in self._claims(victim.node, at - KNOWN_LATE_SECONDS, at)
            if pod.priority > victim.priority
        ]
        if not preemptors:
            return f"{victim.key} left {victim.node}, and no preemptor came"
        if self._had_room(victim.node, at, self._others(victim, at)):
            return f"{victim.key} left {victim.node}, which had room for its preemptors"
        nominated = [pod for pod in preemptors if self._was_nominated(pod, victim.node)]
        elsewhere = self._elsewhere(nominated, victim.node, at)
        return f"{victim.key} left {victim.node}, but {elsewhere}" if elsewhere else ""

    def _was_nominated(self, pod: PodSeen, node: str) -> bool:
        return any(nomination.pod.uid == pod.uid for nomination in self._nominations[node])

    def _claims(self, node: str, since: float, at: float) -> list[tuple[PodSeen, float]]:
        """Return the pods with a claim to the node's room, and until when each is not taken."""
        claims = {
            nomination.pod.uid: (nomination.pod, nomination.until)
            for nomination in self._nominations[node]
            if nomination.until >= since and nomination.since <= at + CLAIMED_SECONDS
        }
        for when, pod in self._bound[node].values():
            if since <= when <= at + CLAIMED_SECONDS:
                claims[pod.uid] = pod, when
        return list(claims.values())

    def _others(self, victim: PodSeen, at: float) -> list[PodSeen]:
        """Return the other victims of the victim's node that may belong to the same preemptions."""
        return [
            pod
            for when, pod in self.all
            if pod.node == victim.node
            and pod.uid != victim.uid
            and abs(when - at) <= KNOWN_LATE_SECONDS
        ]

    def _had_room(
        self, node: str, at: float, leaving: Iterable[PodSeen], also: Amount | None = None
    ) -> bool:
        """Return whether all claims fitted in each state, the leaving pods being gone."""
        since = at - KNOWN_LATE_SECONDS
        leave = [(self._gone.get(pod.uid, math.inf), pod.need) for pod in leaving]
        claims = self._claims(node, since, at)
        states = _between(self._replay.history[node], since, at)
        for when, free, may in states:
            left = free - (also or Amount())
            for gone, need in leave:
                left += need if gone > when else Amount()
            for pod, until in claims:
                left -= pod.need if until > when else Amount()
            if not may or not left.covers(Amount()):
                return False
        return bool(states)

    def _elsewhere(self, preemptors: Iterable[PodSeen], node: str, at: float) -> str:
        for pod in preemptors:
            for name, other in self._replay.nodes.items():
                begun = self._replay.history[name][0][0] < at - KNOWN_LATE_SECONDS
                takes = begun and name != node and self._replay.takes(other, pod)
                if takes and self._had_room(name, at, (), pod.need):
                    return f"{name} had room for {pod.key}"
        return ""


@dataclass(eq=False)
class _Nomination:
    """A pod nominated to a node, for a time."""

    pod: PodSeen
    since: float
    until: float = math.inf


def _between(
    history: Sequence[tuple[float, Amount, bool]], since: float, until: float
) -> list[tuple[float, Amount, bool]]:
    """Return the states at some time in the interval, each with the time from which it was so."""
    first = max(0, bisect_right(history, since, key=lambda state: state[0]) - 1)
    return [state for state in history[first:] if state[0] < until]


UNFENCED: Final = ("/events", "/tokenreviews", "/subjectaccessreviews")
"""Requests by POST that any replica may send at any time."""


def _unauthorised(
    events: Sequence[Seen], journals: Mapping[str, Sequence[Raw]]
) -> Iterator[tuple[float, str]]:
    """Yield the writes that a replica sent while the lease was another's, or free.

    The auditor sees a lease a moment after it was written, and a write counts from when the proxy
    received it, so that a replica that has lost the lease sent what is found here too late beyond
    doubt. One that has just taken it may write before the auditor knows: its own request for the
    lease, which was passed on before and succeeded, tells that it was allowed to. Events are left
    out: they tell what has been done. So are reviews of who may read its endpoints: each replica
    asks for them, and nothing is stored.
    """
    holders = [(0.0, "")]
    for event in events:
        if isinstance(event.object, LeaseSeen) and event.object.key == MOORING:
            holder = "" if event.deleted else event.object.holder
            if holders[-1][1] != holder:
                holders.append((event.at, holder))
    for name, journal in journals.items():
        identity, taken = "", list[float]()
        for write in sorted(journal, key=lambda one: one["received"]):
            path = write["path"]
            if "/leases" in path:
                identity = write.get("holder") or identity
                if write.get("holder") and write["status"] in {200, 201}:
                    taken.append(write["at"])
                continue
            index = bisect_right(holders, write["received"], key=lambda one: one[0]) - 1
            since, holder = holders[index]
            allowed = holder == identity or any(since < at <= write["received"] for at in taken)
            counts_as_write = not any(part in path for part in UNFENCED)
            if write["status"] is not None and not allowed and counts_as_write:
                text = f"{name} sent {write['method']} {path} ({write['status']})"
                yield write["received"], f"{text} while {holder or 'nobody'} held the lease"


def counts(seen: Iterable[Seen]) -> Counter[str]:
    """Return how many pods are pending and bound, and how many nodes there are, in the end."""
    replay = _replayed(seen)
    bound = sum(len(pods) for pods in replay.on_node.values())
    return Counter(pending=len(replay.pending), bound=bound, nodes=len(replay.nodes))


def read_metrics(text: str) -> dict[str, float]:
    """Return the samples of a Prometheus page by name and labels."""
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples


def differences(metrics: Mapping[str, float], client: Client) -> list[str]:
    """Return where Mooring's counts differ from the API server's objects; empty if nowhere."""
    listed = client.get(PODS)["items"]
    pods = [PodSeen.read(raw) for raw in listed]
    in_cache = [pod for pod in pods if pod.node and not pod.finished]
    waiting = [pod for pod in pods if not pod.node and pod.scheduler == MOORING]
    waiting = [pod for pod in waiting if not pod.leaving]
    queued = sum(
        value for name, value in metrics.items() if name.startswith("scheduler_pending_pods{")
    )
    ours = {
        "nodes": metrics['scheduler_cache_size{type="nodes"}'],
        "pods": metrics['scheduler_cache_size{type="pods"}'],
        "assumed pods": metrics['scheduler_cache_size{type="assumed_pods"}'],
        "pending pods": queued,
        "bindings in flight": metrics["mooring_bindings_in_flight"],
    }
    theirs = {
        "nodes": len(client.get(NODES)["items"]),
        "pods": len(in_cache),
        "assumed pods": 0,
        "pending pods": len(waiting),
        "bindings in flight": 0,
    }
    return [
        f"{what}: Mooring counts {ours[what]:g}, the API server has {theirs[what]}"
        for what in ours
        if ours[what] != theirs[what]
    ]
