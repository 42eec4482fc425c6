"""One soak: churn and faults at once, a line a minute, and a verdict."""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controlplane import ControlPlane
from controlplane.namespaces import create_namespace
from e2e.replicas import eventually
from faults.rules import Kind, Rule
from faults.scene import Member, Scene, prepare
from soak.churn import Churn
from soak.figures import HEADER, Happened, Life, Minute, fault_table, growth
from soak.schedule import Act, Episode, Target, episodes

__all__ = ["Result", "soak"]

LOOK_AGAIN: Final = 0.25
SAMPLE_SECONDS: Final = 1.0
RESTART_SECONDS: Final = 2.0
"""After its end a replica is started again, as a kubelet would."""
PAUSE_SECONDS: Final = 20.0
QUIET_SECONDS: Final = 10.0
REPLICAS: Final = 2
PODS_PER_NODE: Final = 10


@dataclass
class Result:
    """What came of a run: lines to print, and what was wrong."""

    table: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    bound: int = 0
    evicted: int = 0
    episodes: int = 0


def soak(
    minutes: float, *, seed: int, pods: int, say: Callable[[str], None], folder: Path | None = None
) -> Result:
    """Run for so long, after a drain of so many pods; `say` prints a line."""
    with (
        tempfile.TemporaryDirectory(prefix="mooring-soak-") as temporary,
        ControlPlane() as plane,
    ):
        prepare(plane)
        logs = folder or Path(temporary)
        with Scene.of(plane, logs, seed=seed) as scene:
            return _Soak(scene, minutes * 60, seed, pods, say).run()


class _Soak:
    def __init__(
        self, scene: Scene, seconds: float, seed: int, pods: int, say: Callable[[str], None]
    ) -> None:
        self._scene = scene
        self._seconds = seconds
        self._seed = seed
        self._pods = pods
        self._say = say
        self._happened: list[Happened] = []
        self._struck: Counter[str] = Counter()
        self._lives: dict[str, Life] = {}
        self._born: dict[str, float] = {}
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
        churn.begin()
        churn.preempt(self._pods // 20)
        self._scene.settle()
        quiet_tasks = self._quiet_tasks()
        with churn:
            self._go_wrong()
        churn.clear_orphans()
        self._undo()
        verdict = self._scene.settle()
        self._scene.save()
        end = time.monotonic()
        result = Result(bound=verdict.bound, evicted=verdict.evicted, episodes=len(self._happened))
        result.table = fault_table(self._happened, self._counts(), verdict, end)
        result.faults = [
            *verdict.faults,
            *(f"books: {line}" for line in self._scene.differences()),
            *(
                f"growth: {line}"
                for line in growth(self._lives.values(), (quiet_tasks, self._quiet_tasks()))
            ),
            *(f"log: a traceback by {name}" for name in self._scene.tracebacks()),
        ]
        return result

    # Faults

    def _go_wrong(self) -> None:
        """Faults come at their times, and the clock is looked at in between."""
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
        plane, what = self._scene.plane, episode.what
        if isinstance(what, Rule):
            self._scene.inject(what, *([leader] if episode.target is Target.LEADER else []))
            return
        match what:
            case Act.KILL:
                leader.signal(signal.SIGKILL)
            case Act.STOP:
                leader.signal(signal.SIGTERM)
            case Act.PAUSE:
                leader.signal(signal.SIGSTOP)
                self._later.append((time.monotonic() + PAUSE_SECONDS, lambda: _resume(leader)))
            case Act.API_SERVER | Act.ETCD:
                name = "etcd" if what is Act.ETCD else "kube-apiserver"
                plane.stop_component(name)
                plane.start_component(name)

    def _do_what_is_due(self, now: float) -> None:
        for due, act in list(self._later):
            if now >= due:
                self._later.remove((due, act))
                act()

    def _undo(self) -> None:
        """Nothing is paused, and two replicas run."""
        self._do_what_is_due(float("inf"))
        self._revive(float("inf"))

    def _start(self, before: Member | None = None) -> None:
        member = self._scene.start(proxy=before.proxy if before else None)
        self._born[member.name] = time.monotonic()
        self._lives[member.name] = Life(member.name)

    def _revive(self, now: float) -> None:
        """A replica that has ended is started again behind the same proxy."""
        for member in list(self._scene.members):
            if member.name not in self._born or member.runs:
                continue
            if now - self._ended.setdefault(member.name, time.monotonic()) >= RESTART_SECONDS:
                del self._born[member.name]
                self._start(member)

    # Figures

    def _running(self) -> list[Member]:
        return [member for member in self._scene.members if member.runs]

    def _sample(self, now: float) -> None:
        if now - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = now
        for member in self._running():
            if mib := member.rss_mib():
                age = now - self._born[member.name]
                self._lives[member.name].samples.append((age, mib))
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
        """How often each fault has struck: requests of the proxy's kinds, else episodes."""
        total = Counter(episode.name for episode in self._happened if episode.name not in {*Kind})
        for proxy in self._scene.proxies:
            with suppress(OSError):
                total += Counter(
                    {str(k): n for k, n in proxy.counts().items() if k is not Kind.PARTITION}
                )
        return total

    def _quiet_tasks(self) -> int:
        """The fewest tasks of the leader within some quiet seconds."""
        leader = self._scene.wait_for_leader()
        fewest = eventually(leader.tasks, bool, "a number of tasks")
        deadline = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            time.sleep(SAMPLE_SECONDS)
            fewest = min(fewest, leader.tasks())
        return fewest


def _resume(member: Member) -> None:
    if member.runs:
        member.signal(signal.SIGCONT)
