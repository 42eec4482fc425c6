"""Runs one soak: changes and faults at the same time, a line per minute, and a verdict."""

import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from controlplane import ControlPlane
from controlplane.namespaces import create_namespace
from deterministic_extender import application
from e2e.replicas import eventually
from faults.books import PodSeen
from faults.cache import Standing
from faults.rules import Rule
from faults.scene import Injected, Member, Scene, prepare
from http_servers import served_by_thread
from soak.churn import Churn
from soak.controllers import Controllers
from soak.figures import HEADER, Happened, Life, Minute, fault_table, growth
from soak.schedule import Act, Episode, Target, episodes
from soak.workloads import install_plugin, put_profiles

LOOK_AGAIN: Final = 0.25
SAMPLE_SECONDS: Final = 1.0
RESTART_SECONDS: Final = 2.0
"""The seconds until a replica that ended starts again, as with a kubelet."""
PAUSE_SECONDS: Final = 20.0
QUIET_SECONDS: Final = 10.0
ENDED_SECONDS: Final = 40.0
"""The most seconds until a replica has ended after SIGTERM."""
ROOM_SECONDS: Final = 60.0
"""The most seconds until all pods are bound if all fit; then the last backoff is over, too."""
AUDIT_SECONDS: Final = 5.0
REPLICAS: Final = 2
PODS_PER_NODE: Final = 10


@dataclass
class Result:
    """The result of a run: lines to print, and errors."""

    table: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    bound: int = 0
    evicted: int = 0
    episodes: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    """The number of actions of the users, by kind."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of bound pods, by kind."""
    strict: Counter[int] = field(default_factory=Counter)
    """The number of answers of the Eviction API, by status."""


def soak(
    minutes: float, *, seed: int, pods: int, say: Callable[[str], None], folder: Path | None = None
) -> Result:
    """Run for `minutes`, after a drain of `pods` pods; `say` prints a line."""
    with (
        tempfile.TemporaryDirectory(prefix="mooring-soak-") as temporary,
        ControlPlane() as plane,
        served_by_thread(application()) as extender_port,
    ):
        prepare(plane)
        put_profiles(plane, extender_port)
        packages = install_plugin(Path(temporary) / "packages")
        logs = folder or Path(temporary)
        with Scene.of(plane, logs, seed=seed) as scene:
            return _Soak(scene, minutes * 60, seed, pods, say, packages).run()


class _CacheAudit:
    """A thread that compares the leader's cache with the API server's objects all the time."""

    def __init__(self, scene: Scene) -> None:
        self.standing = Standing()
        self.looked = 0
        self._scene = scene
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def faults(self) -> list[str]:
        """Return the differences that the comparisons found."""
        if not self.looked:
            return ["the leader's cache was never compared"]
        return [f"cache, for a while: {line}" for line in self.standing.found]

    def _run(self) -> None:
        try:
            self._compare()
        except BaseException as error:  # noqa: BLE001 - raised again by __exit__
            self._failure = error

    def _compare(self) -> None:
        before: Member | None = None
        while not self._stopping.wait(AUDIT_SECONDS):
            leader = self._scene.leader()
            if leader is not before:
                self.standing.look(time.monotonic(), ())  # another cache
            before = leader
            found = self._scene.cache_differences(leader) if leader is not None else None
            if found is not None:
                self.looked += 1
                self.standing.look(time.monotonic(), found)


class _Soak:
    def __init__(
        self,
        scene: Scene,
        seconds: float,
        seed: int,
        pods: int,
        say: Callable[[str], None],
        packages: Path,
    ) -> None:
        self._scene = scene
        self._packages = packages
        self._seconds = seconds
        self._seed = seed
        self._pods = pods
        self._say = say
        self._happened: list[Happened] = []
        self._injected: list[tuple[str, Injected]] = []
        self._struck: Counter[str] = Counter()
        """How often each fault that is none of the proxy's has struck."""
        self._lives: dict[str, Life] = {}
        self._born: set[str] = set()
        self._ended: dict[str, float] = {}
        self._leaders = 0
        self._holder = ""
        self._sampled = 0.0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def run(self) -> Result:
        namespace = create_namespace(self._scene.plane.access, "soak")
        for _ in range(REPLICAS):
            self._start()
        self._scene.wait_for_leader()
        self._begun = time.monotonic()
        nodes = max(4, self._pods // PODS_PER_NODE)
        churn = Churn(self._scene, namespace, seed=self._seed, nodes=nodes, size=self._pods)
        self._say(HEADER)
        with Controllers(self._scene.plane.access, namespace):
            churn.begin()
            churn.preempt(self._pods // 20)
            self._scene.settle()
            quiet_tasks = self._quiet_tasks()
            audit = _CacheAudit(self._scene)
            with churn, audit:
                self._go_wrong()
            churn.clear_orphans()
            self._undo()
            verdict = self._scene.settle()
            different = self._scene.differences()
            churn.make_room()
            waiting = self._still_waiting(churn)
        self._scene.save()
        end = time.monotonic()
        result = Result(bound=verdict.bound, evicted=verdict.evicted, episodes=len(self._happened))
        result.acts, result.kinds = churn.acts, churn.bound()
        result.strict = self._evictions()
        result.table = fault_table(self._happened, self._counts(), verdict, end)
        tasks = (quiet_tasks, self._quiet_tasks())
        result.faults = [
            *verdict.faults,
            *(f"struck nothing: {name}" for name in self._idle()),
            *audit.faults(),
            *(f"cache: {line}" for line in different),
            *(f"lost: {line}" for line in waiting),
            *(f"growth: {line}" for line in growth(self._lives.values(), tasks)),
            *(f"log: a traceback by {name}" for name in self._scene.tracebacks()),
        ]
        return result

    # Faults

    def _go_wrong(self) -> None:
        """Inject faults at their times; check the clock in between."""
        begun = time.monotonic()
        planned = list(episodes(self._seed, self._seconds - (begun - self._begun)))
        minute = 1
        while (now := time.monotonic()) < self._begun + self._seconds:
            if planned and now - begun >= planned[0].at:
                self._inject(planned.pop(0))
            self._do_what_is_due(now)
            self._revive(now)
            self._sample(now)
            if now - self._begun >= minute * 60:
                self._say(str(self._line(minute)))
                minute += 1
            time.sleep(LOOK_AGAIN)
        self._say(str(self._line(minute)))

    def _inject(self, episode: Episode) -> None:
        leader = self._scene.leader()
        if leader is None:
            return  # the lease is free at the moment: enough is wrong already
        self._happened.append(Happened(time.monotonic(), episode.name))
        if isinstance(episode.what, Rule):
            targets = [leader] if episode.target is Target.LEADER else []
            injected = self._scene.inject(episode.what, *targets)
            self._injected.append((episode.name, injected))
            again = time.monotonic() + episode.what.seconds
            self._later.append((again, partial(_inject_again, injected)))
        else:
            self._act(episode.what, leader)

    def _act(self, what: Act, leader: Member) -> None:
        """Inject the fault; count it only if it has visibly struck."""
        plane = self._scene.plane
        match what:
            case Act.KILL:
                leader.kill()
                self._struck[what] += leader.program.exit_code == -signal.SIGKILL
            case Act.STOP:
                leader.signal(signal.SIGTERM)
                self._later.append(
                    (time.monotonic() + ENDED_SECONDS, partial(self._has_ended, leader))
                )
            case Act.PAUSE:
                leader.signal(signal.SIGSTOP)
                eventually(lambda: leader.paused, bool, f"{leader.name} paused")
                self._struck[what] += 1
                self._later.append((time.monotonic() + PAUSE_SECONDS, lambda: _resume(leader)))
            case Act.API_SERVER | Act.ETCD:
                name = "etcd" if what is Act.ETCD else "kube-apiserver"
                plane.stop_component(name)
                plane.start_component(name)
                self._struck[what] += 1

    def _has_ended(self, member: Member) -> None:
        self._struck[Act.STOP] += member.program.wait(ENDED_SECONDS) is not None

    def _idle(self) -> list[str]:
        """Return the episodes, except the proxies', that did not strike every time.

        The verdict reports rules of proxies that never struck.
        """
        times = Counter(episode.name for episode in self._happened)
        return [act for act in Act if self._struck[act] < times[act]]

    def _evictions(self) -> Counter[int]:
        writes = (write for journal in self._scene.journals().values() for write in journal)
        return Counter(
            write["status"]
            for write in writes
            if write["path"].endswith("/eviction") and write["status"] is not None
        )

    def _still_waiting(self, churn: Churn) -> list[str]:
        """Return the pods without a node although all fit, with Mooring's reasons."""
        deadline = time.monotonic() + ROOM_SECONDS
        event_due = time.monotonic() + ROOM_SECONDS / 4
        while waiting := [pod for pod in self._scene.books.pods if not pod.node]:
            if time.monotonic() > deadline:
                said = [f"{pod.key} waits where everything fits" for pod in waiting]
                return [
                    f"{text}: {self._why(pod)}" for text, pod in zip(said, waiting, strict=True)
                ]
            if time.monotonic() > event_due:
                # The plugin Hold names no events: what it did not allow waits for any of them.
                churn.add_pod()
                event_due = deadline
            time.sleep(LOOK_AGAIN)
        return []

    def _why(self, pod: PodSeen) -> str:
        """Return the pod's condition PodScheduled from the API server."""
        namespace, _, name = pod.key.partition("/")
        with self._scene.plane.access.client() as client:
            raw = client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        conditions = raw.get("status", {}).get("conditions", [])
        found = (each for each in conditions if each["type"] == "PodScheduled")
        return next((each.get("message", each["status"]) for each in found), "no condition")

    def _do_what_is_due(self, now: float) -> None:
        for due, act in list(self._later):
            if now >= due:
                self._later.remove((due, act))
                act()

    def _undo(self) -> None:
        """Resume paused processes, and start missing replicas."""
        self._do_what_is_due(float("inf"))
        self._revive(float("inf"))

    def _start(self, before: Member | None = None) -> None:
        proxy = before.proxy if before else None
        member = self._scene.start(proxy=proxy, packages=self._packages)
        self._born.add(member.name)
        self._lives[member.name] = Life(member.name)

    def _revive(self, now: float) -> None:
        """Start each replica that has ended, behind the same proxy."""
        for member in list(self._scene.members):
            if member.name not in self._born or member.runs:
                continue
            if now - self._ended.setdefault(member.name, time.monotonic()) >= RESTART_SECONDS:
                self._born.remove(member.name)
                self._start(member)

    # Figures

    def _running(self) -> list[Member]:
        return [member for member in self._scene.members if member.runs]

    def _sample(self, now: float) -> None:
        if now - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = now
        if leader := self._scene.leader():
            for member in self._running():
                if mib := member.rss_mib():
                    self._lives[member.name].note(now, mib, leads=member is leader)
        holder = self._scene.holder()
        if holder and holder != self._holder:
            self._leaders += bool(self._holder)
            self._holder = holder

    def _line(self, minute: int) -> Minute:
        pods = self._scene.books.pods
        running = self._running()
        return Minute(
            minute,
            sum(bool(found.node) for found in pods),
            sum(not found.node for found in pods),
            sum(self._counts().values()),
            self._leaders,
            [member.rss_mib() for member in running],
            [member.tasks() for member in running],
        )

    def _counts(self) -> Counter[str]:
        """Return how often each fault has struck: requests for proxies' rules, else processes."""
        total = Counter(self._struck)
        for name, injected in self._injected:
            total[name] += injected.strikes()
        return total

    def _quiet_tasks(self) -> int:
        """Return the leader's least number of tasks within some quiet seconds."""
        leader = self._scene.wait_for_leader()
        fewest = eventually(leader.tasks, bool, "a number of tasks")
        deadline = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            time.sleep(SAMPLE_SECONDS)
            fewest = min(fewest, leader.tasks())
        return fewest


def _inject_again(injected: Injected) -> None:
    """Inject rules again that struck nothing, perhaps because no replica led."""
    if not injected.strikes():
        injected.inject()


def _resume(member: Member) -> None:
    if member.runs:
        member.signal(signal.SIGCONT)
