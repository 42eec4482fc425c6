"""A cluster on which things go wrong: replicas behind proxies of their own, books beside them.

Mooring is seen from outside only: as a process, through the API server and its HTTPS endpoints.
"""

import json
import os
import queue
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

import replica
from certificates import insecure
from controlplane import Access, ApiError, ControlPlane
from controlplane.access import ADMIN
from controlplane.client import Client
from controlplane.processes import ProcessGroup, Program, free_ports
from controlplane.tls import tls_opener
from e2e.replicas import create_pods, eventually, pod
from faults.books import (
    LEASE,
    Books,
    PodSeen,
    Seen,
    Verdict,
    audit,
    counts,
    differences,
    left_devices,
    placeable,
    read_metrics,
)
from faults.cache import DumpError, cache_differences, read_dump
from faults.control import FaultProxy
from faults.rules import Rule

Raw = dict[str, Any]

LOW: Final = "low"
HIGH: Final = "high"
PRIORITIES: Final[Mapping[str, int]] = {LOW: 10, "middle": 100, HIGH: 1000}
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
ANSWER_SECONDS: Final = 5.0
STOP_SECONDS: Final = 60.0
LOST_SECONDS: Final = 30.0
"""After the last fault a pod that could be placed waits no longer: backoff takes up to 10."""
LOOK_AGAIN: Final = 0.1
RUNNING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def prepare(plane: ControlPlane) -> None:
    """Install Mooring's manifests and the audited priority classes."""
    replica.apply_manifests(plane.access)
    create_priorities(plane.access)


def create_priorities(access: Access) -> None:
    """Create the priority classes that the auditor knows."""
    with access.client() as client:
        for name, value in PRIORITIES.items():
            client.post(CLASSES, {"metadata": {"name": name}, "value": value})


def drained_pod(name: str, priority: str, cpu: str, *, grace: int = 0, **fields: Any) -> Raw:
    """Return a pod of which the auditor understands everything."""
    fields = {"priorityClassName": priority, "terminationGracePeriodSeconds": grace, **fields}
    return pod(name, cpu=cpu, **fields)


class Member:
    """One `mooring run` behind its proxy."""

    def __init__(
        self, name: str, program: Program, proxy: FaultProxy, port: int, token: str
    ) -> None:
        self.name = name
        self.proxy = proxy
        self.program = program
        self._port = port
        self._token = token

    @property
    def pid(self) -> int:
        return self.program.pid

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self.program.exit_code is None

    @property
    def paused(self) -> bool:
        """Whether the process is stopped by a signal."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    @property
    def text(self) -> str:
        return self.program.log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of one of its endpoints, as admin; status 0 without an answer."""
        url = f"https://127.0.0.1:{self._port}{path}"
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(url, headers=headers)
        try:
            with tls_opener(insecure()).open(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as rejection:
            with rejection:
                return rejection.code, rejection.read().decode()
        except (OSError, HTTPException):
            return 0, ""

    @property
    def watches(self) -> bool:
        """Whether each of its own watches that has failed works again, as its log says."""
        last: dict[str, str] = {}
        for line in self.text.splitlines(keepends=True):
            if '"mooring.kube.reflector"' in line and line.endswith("\n"):
                resource, _, words = json.loads(line)["message"].partition(": ")
                last[resource] = words
        return all(words == "the watch works again" for words in last.values())

    def wait_until_ready(self) -> None:
        """Wait until it has seen the cluster."""
        eventually(lambda: self.get("/readyz"), lambda page: page[0] == 200, f"{self.name} ready")

    def signal(self, number: signal.Signals) -> None:
        """Send the process the signal."""
        os.kill(self.pid, number)

    def terminate(self) -> int | None:
        """Return the exit code after SIGTERM; None if it did not end in a minute."""
        self.signal(signal.SIGTERM)
        return self.program.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Kill the process in the middle of whatever it does."""
        self.signal(signal.SIGKILL)
        self.program.wait()

    def rss_mib(self) -> float:
        """Return the memory that is resident now; 0 once it has ended."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def tasks(self) -> int:
        """Return the number of its asyncio tasks a second ago; 0 while that is not known."""
        with suppress(OSError, ValueError):
            return int(self.program.log.with_suffix(".tasks").read_text())
        return 0


class Kubelets:
    """Deleted pods that have a node end, as their kubelets would end them.

    Protected pods run: the Eviction API asks no budget about a pod that has never run.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._waiting: queue.Queue[PodSeen | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def saw(self, event: Seen) -> None:
        """Note a pod to be ended, because it leaves its node, or a protected one to run."""
        found = event.object
        if not isinstance(found, PodSeen) or event.deleted or not found.node:
            return
        if found.leaving or (found.protected and not found.runs):
            self._waiting.put(found)

    def _run(self) -> None:
        while (found := self._waiting.get()) is not None:
            namespace, _, name = found.key.partition("/")
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            try:
                with self._connect() as client:
                    if found.leaving:
                        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": found.uid}}
                        client.request("DELETE", path, options)
                    else:
                        running = {"metadata": {"uid": found.uid}, "status": RUNNING}
                        client.patch(f"{path}/status", running)
            except ApiError as error:
                if error.status in {404, 409}:
                    continue  # it has gone
            except (OSError, HTTPException):
                pass
            else:
                continue
            self._waiting.put(found)  # the API server is being restarted
            time.sleep(LOOK_AGAIN)


@dataclass(eq=False)
class Injected:
    """A rule that was set at some proxies, perhaps more than once."""

    rule: Rule
    proxies: Collection[FaultProxy]
    at: float
    """CLOCK_MONOTONIC when it was set first."""
    _numbers: list[tuple[FaultProxy, int]] = field(default_factory=list)

    def inject(self) -> None:
        """Put the rule in force at each of the proxies."""
        self._numbers += [(proxy, proxy.inject(self.rule)) for proxy in self.proxies]

    def strikes(self) -> int:
        """Return how often the rule has struck."""
        return sum(proxy.strikes()[number] for proxy, number in self._numbers)


class Scene:
    """The replicas, their proxies, the books; use `of`."""

    def __init__(
        self, plane: ControlPlane, folder: Path, group: ProcessGroup, books: Books, seed: int
    ) -> None:
        self.plane = plane
        self.books = books
        self.members: list[Member] = []
        self.injected: list[Injected] = []
        self._folder = folder
        self._group = group
        self._seed = seed

    @classmethod
    @contextmanager
    def of(cls, plane: ControlPlane, folder: Path, *, seed: int = 0) -> Iterator["Scene"]:
        """Yield a scene without replicas; those that are started end with it."""
        with ExitStack() as stack:
            kubelets = stack.enter_context(Kubelets(plane.access.client))
            books = stack.enter_context(Books(plane.access, kubelets.saw))
            group = stack.enter_context(ProcessGroup())
            yield cls(plane, folder, group, books, seed)

    def start(
        self, *options: str, proxy: FaultProxy | None = None, packages: Path | None = None
    ) -> Member:
        """Start a replica behind a proxy that does nothing yet, or behind the given one.

        It also finds the packages in this folder.
        """
        number = len(self.members) + 1
        name, access = f"mooring-{number}", self.plane.access
        proxy = proxy or FaultProxy.start(
            access, self._folder, self._group, f"proxy-{number}", seed=self._seed + number
        )
        kubeconfig = proxy.kubeconfig(
            access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        )
        (port,) = free_ports(1)
        log = self._folder / f"{name}.log"
        python, _, *command = replica.command(kubeconfig, port, "--log-format=json", *options)
        environment = replica.environment()
        paths = f"{environment['PYTHONPATH']}{os.pathsep}{replica.ROOT / 'tests'}"
        paths += f"{os.pathsep}{packages}" if packages is not None else ""
        program = self._group.spawn(
            name,
            [python, "-m", "faults.counted", str(log.with_suffix(".tasks")), *command],
            log=log,
            env={**environment, "PYTHONPATH": paths},
        )
        self.members.append(Member(name, program, proxy, port, access.tokens[ADMIN]))
        return self.members[-1]

    def start_pair(self, *options: str) -> tuple[Member, Member]:
        """Start two warm replicas; return them, the one that leads first."""
        pair = [self.start(*options), self.start(*options)]
        for member in pair:
            member.wait_until_ready()
        leader = self.wait_for_leader()
        (other,) = (member for member in pair if member is not leader)
        return leader, other

    def holder(self) -> str:
        """Return who holds the lease; empty if nobody does or the API server does not answer."""
        with suppress(ApiError, OSError, HTTPException), self.plane.access.client() as client:
            return client.get(LEASE)["spec"].get("holderIdentity") or ""
        return ""

    def leader(self) -> Member | None:
        """Return the replica that holds the lease, if it runs."""
        holder = self.holder()
        for member in self.members:
            if member.runs and holder and holder in self._identities(member):
                return member
        return None

    def wait_for_leader(self, *, but: Member | None = None) -> Member:
        """Return the replica that holds the lease, once there is one, other than `but`."""
        found = eventually(
            self.leader, lambda member: member is not None and member is not but, "a leader"
        )
        assert found is not None
        return found

    def inject(self, rule: Rule, *members: Member) -> Injected:
        """Set the rule at these members' proxies, at all without any."""
        proxies = {member.proxy for member in members} or self.proxies
        self.injected.append(Injected(rule, proxies, time.monotonic()))
        self.injected[-1].inject()
        return self.injected[-1]

    @property
    def proxies(self) -> set[FaultProxy]:
        """Each replica has one, which its successor after a restart takes over."""
        return {member.proxy for member in self.members}

    def journals(self) -> dict[str, list[Raw]]:
        """Return the writes through each proxy, whose replicas follow one another."""
        return {proxy.name: proxy.writes() for proxy in self.proxies}

    def wait_until_bound(self, number: int) -> None:
        """Wait until so many pods are bound."""
        eventually(
            lambda: counts(self.books.seen)["bound"], lambda n: n >= number, f"{number} bound"
        )

    def settle(self, seconds: float = LOST_SECONDS) -> Verdict:
        """Return the verdict once no fault is in force and every pod that can be placed is.

        If some are not, after `seconds` they are lost; devices that nobody uses are faults then. It
        is a fault, too, if a rule struck nothing each time it was set: what was to be tried has not
        been.
        """
        for proxy in self.proxies:
            proxy.clear()
        quiet = time.monotonic()
        while time.monotonic() - quiet < seconds:
            seen = self.books.seen
            if not placeable(seen) and not left_devices(seen):
                break
            time.sleep(1.0)
        verdict = audit(self.books.seen, self.journals(), quiet_since=quiet)
        return replace(verdict, idle=tuple(self._idle()))

    def _idle(self) -> Iterator[tuple[float, str]]:
        """Yield when a rule that has struck nothing was set first, and the rule."""
        strikes, first = Counter[Rule](), dict[Rule, float]()
        for injected in self.injected:
            strikes[injected.rule] += injected.strikes()
            first.setdefault(injected.rule, injected.at)
        yield from ((at, str(rule)) for rule, at in first.items() if not strikes[rule])

    def save(self) -> None:
        """Write the auditor's events to a file, a line each, for whoever looks into a verdict."""
        lines = (repr(event) for event in self.books.seen)
        (self._folder / "events.txt").write_text("\n".join(lines))

    def differences(self) -> list[str]:
        """Return where cache and counts differ from the API server's for half a minute."""
        leader = self.wait_for_leader()

        def compare() -> list[str]:
            status, page = leader.get("/metrics")
            if status != 200:
                return [f"/metrics answers {status}"]
            with self.plane.access.client() as client:
                counted = differences(read_metrics(page), client)
            found = self.cache_differences(leader)
            return [*counted, *sorted(found if found is not None else ["no dump of the cache"])]

        deadline = time.monotonic() + LOST_SECONDS
        while (found := compare()) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN)
        return found

    def cache_differences(self, member: Member) -> set[str] | None:
        """Return where a replica's cache differs now from what the auditor has seen.

        None if it does not answer, which a replica without an API server cannot.
        """
        status, text = member.get("/debug/cache")
        with suppress(DumpError):
            if status == 200:
                return cache_differences(read_dump(text), self.books.pods, self.books.nodes)
        return None

    def tracebacks(self) -> list[str]:
        """Return the names of logs that hold a traceback."""
        return [member.name for member in self.members if "Traceback" in member.text]

    @contextmanager
    def creating(self, namespace: str, pods: list[Raw]) -> Iterator[Callable[[], int]]:
        """Create the pods one after the other meanwhile, all of them before the end."""
        created = 0

        def create() -> None:
            nonlocal created
            for each in pods:
                self.persist(partial(_create, namespace=namespace, raw=each))
                created += 1

        thread = threading.Thread(target=create, daemon=True)
        thread.start()
        yield lambda: created
        thread.join()

    def persist(self, act: Callable[[Client], None]) -> None:
        """Create or delete an object, though the API server may be away for a while."""
        while True:
            try:
                with self.plane.access.client() as client:
                    return act(client)
            except ApiError as error:
                if error.status in {404, 409}:
                    return None  # deleted or created already: the first try had succeeded
                if error.status < 500 and error.status != 429:
                    raise
            except (OSError, HTTPException):
                pass
            time.sleep(LOOK_AGAIN)

    @staticmethod
    def _identities(member: Member) -> set[str]:
        return {write["holder"] for write in member.proxy.writes() if write.get("holder")}


def _create(client: Client, *, namespace: str, raw: Raw) -> None:
    create_pods(client, namespace, raw)
