"""Acts as the cluster's users and its administrator, at random from a seed.

Names of pods and of nodes return all the time; the new pods have other requests.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self

from controlplane.client import Client
from controlplane.nodes import node_object
from e2e.replicas import PROFILES, create_pods
from faults.books import CONSTRAINED, PROTECTED, PodSeen
from faults.scene import HIGH, LOW, Scene, drained_pod
from policies import profile
from soak import workloads
from soak.workloads import constrained_pod

Raw = dict[str, Any]

TICK_SECONDS: Final = 0.2
CPUS: Final = ("100m", "250m", "500m", "1", "2")
SET_CPUS: Final = ("250m", "500m", "1")
NODE_CPU: Final = "8"
APPS: Final = 20
PROTECTED_APPS: Final = 6
"""The number of apps whose pods have a budget."""
SET_SIZE: Final = 10
SINGLE: Final = (
    *workloads.SHARES,
    *workloads.DISKS,
    *workloads.DEVICES,
    *workloads.PLACED_APART,
    *workloads.EXTENDED,
    *workloads.HELD,
)
FIXED: Final = (*SINGLE, *(name for gang in workloads.GANGS for name in gang))
STRICT: Final = tuple(f"strict-{number}" for number in range(4))


class Churn:
    """A thread that acts all the time; `size` is roughly the number of pods."""

    def __init__(self, scene: Scene, namespace: str, *, seed: int, nodes: int, size: int) -> None:
        self.acts: Counter[str] = Counter()
        self._scene = scene
        self._namespace = namespace
        self._draw = random.Random(seed)  # noqa: S311 - has to be repeatable
        self._nodes = [f"node-{number}" for number in range(round(nodes * 1.1))]
        self._fewest_nodes = nodes
        self._size = size
        self._names = [[f"app{app}-{n}" for n in range(3 * size // APPS)] for app in range(APPS)]
        self._sets = [f"web{n // SET_SIZE}-{n % SET_SIZE}" for n in range(size * 3 // 10)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for node in self._scene.books.nodes:
            self._scene.persist(partial(_cordon, name=node.key, on=False))
        self._scene.persist(partial(_put_profile, spec={}))
        if self._failure is not None:
            raise self._failure

    def begin(self) -> None:
        """Create the nodes, and pods that nearly fill them."""
        self._persist(partial(_post, at=workloads.budget(self._namespace)))
        for name in (*self._nodes[: self._fewest_nodes], *workloads.NODES):
            self._create_node(name)
        for name in self._sets:
            self._create(self._set_pod(name))
        for name in workloads.DISKS:
            self._create_disk(name)
        for name in workloads.DEVICES:
            self._create_claim(name)
        self._create_constrained(FIXED)
        for _ in range(self._size - len(self._sets)):
            self._add_pod(LOW if self._draw.random() < 0.8 else "middle")

    def preempt(self, number: int) -> None:
        """Create `number` pods of high priority at once."""
        for _ in range(number):
            self._add_pod(HIGH, cpu="1")

    def bound(self) -> Counter[str]:
        """Return the number of bound pods by kind; a pod's name begins with its kind."""
        pods = (event.object for event in self._scene.books.seen)
        placed = (found for found in pods if isinstance(found, PodSeen) and found.node)
        kinds = {found.uid: _name(found).rstrip("-0123456789") for found in placed}
        return Counter(kinds.values())

    def make_room(self) -> None:
        """Leave only the pods with fixed names, and all nodes: then every pod fits."""
        for found in self._scene.books.pods:
            if _name(found).startswith("app"):
                self._delete(found, now=True)
        there = {node.key for node in self._scene.books.nodes}
        for name in (*self._nodes[: self._fewest_nodes], *workloads.NODES):
            if name not in there:
                self._create_node(name)
        there = {_name(found) for found in self._scene.books.pods}
        self._create_constrained(name for name in FIXED if name not in there)

    def add_pod(self) -> None:
        """Create an ordinary pod; its binding is an event."""
        self._add_pod(LOW)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(TICK_SECONDS):
                self._act()
        except BaseException as error:  # noqa: BLE001 - raised again by __exit__
            self._failure = error

    def _act(self) -> None:
        pods = self._scene.books.pods
        apps = [found for found in pods if _name(found).startswith("app")]
        crowded = len(pods) > self._size * 1.1
        acts: list[tuple[float, Callable[[], None]]] = [
            (4.0 if crowded else 10.0, self._create_some),
            (10.0 if crowded else 4.0, partial(self._delete_some, apps)),
            (2.0, partial(self._scale, apps)),
            (1.5, self._preempt_some),
            (8.0, partial(self._replace_set_pods, pods)),
            (3.0, partial(self._replace_single, pods)),
            (1.0, partial(self._replace_gang, pods)),
            (0.4, partial(self._replace_disk, pods)),
            (0.6, partial(self._replace_claim, pods)),
            (1.0, partial(self._preempt_strictly, pods)),
            (0.4, self._add_node),
            (0.4, self._remove_node),
            (0.3, self._replace_node),
            (0.6, self._cordon),
            (0.3, self._change_profile),
        ]
        weights = [weight for weight, _ in acts]
        (act,) = self._draw.choices([act for _, act in acts], weights)
        name = act.func.__name__ if isinstance(act, partial) else act.__name__
        self.acts[name] += 1
        act()

    def _persist(self, act: Callable[[Client], None]) -> None:
        self._scene.persist(act)

    # Apps, whose pods have names of a pool

    def _add_pod(self, priority: str, cpu: str | None = None, app: int | None = None) -> None:
        app = self._draw.randrange(APPS) if app is None else app
        labels = {"app": f"app{app}", **({PROTECTED: ""} if app < PROTECTED_APPS else {})}
        raw = drained_pod(
            self._draw.choice(self._names[app]),
            priority,
            cpu or self._draw.choice(CPUS),
            grace=self._draw.choice((0, 0, 1)),
            labels=labels,
        )
        self._create(raw)  # nothing happens if there is a pod of this name

    def _create(self, raw: Raw) -> None:
        self._persist(partial(_create, namespace=self._namespace, raw=raw))

    def _create_some(self) -> None:
        for _ in range(self._draw.randint(1, 8)):
            self._add_pod(self._draw.choice((LOW, LOW, LOW, "middle")))

    def _delete_some(self, apps: Sequence[PodSeen]) -> None:
        for found in self._draw.sample(apps, min(len(apps), self._draw.randint(1, 8))):
            self._delete(found)

    def _scale(self, apps: Iterable[PodSeen]) -> None:
        """Give a random app another number of pods."""
        app = self._draw.randrange(APPS)
        its = [found for found in apps if _name(found).startswith(f"app{app}-")]
        wanted = self._draw.randint(0, 2 * self._size // APPS)
        for found in its[wanted:]:
            self._delete(found)
        for _ in range(min(20, wanted - len(its))):
            self._add_pod(LOW, "250m", app)

    def _preempt_some(self) -> None:
        for _ in range(self._draw.randint(1, 6)):
            self._add_pod(HIGH, self._draw.choice(("500m", "1", "2")))

    def _delete(self, found: PodSeen, *, now: bool = False) -> None:
        graceful = not now and self._draw.random() < 0.5
        options = {} if graceful else {"gracePeriodSeconds": 0}
        self._persist(partial(_delete_pod, key=found.key, options=options))

    # Pods with fixed names, which are replaced at once

    def _replace(self, names: Iterable[str], pods: Iterable[PodSeen]) -> None:
        """Delete the pods of these names, and create others of the same names immediately."""
        by_name = {_name(found): found for found in pods}
        names = [*names]
        for name in names:
            if name in by_name:
                self._delete(by_name[name], now=True)
            if name in self._sets:
                self._create(self._set_pod(name))
        self._create_constrained(name for name in names if name not in self._sets)

    def _set_pod(self, name: str) -> Raw:
        priority = self._draw.choice((LOW, LOW, "middle"))
        return drained_pod(name, priority, self._draw.choice(SET_CPUS), labels={"set": ""})

    def _create_constrained(self, names: Iterable[str]) -> None:
        for name in names:
            self._create(constrained_pod(name, self._draw))

    def _replace_set_pods(self, pods: Sequence[PodSeen]) -> None:
        self._replace(self._draw.sample(self._sets, min(8, len(self._sets))), pods)

    def _replace_single(self, pods: Sequence[PodSeen]) -> None:
        self._replace(self._draw.sample(SINGLE, 3), pods)

    def _replace_gang(self, pods: Sequence[PodSeen]) -> None:
        """Replace a whole gang or one of its members."""
        gang = self._draw.choice(workloads.GANGS)
        self._replace(gang if self._draw.random() < 0.7 else gang[:1], pods)

    def _replace_disk(self, pods: Sequence[PodSeen]) -> None:
        """Replace a pod, its claim and its volume; the new volume may be on another node."""
        name = self._draw.choice(workloads.DISKS)
        for found in pods:
            if _name(found) == name:
                self._delete(found, now=True)
        self._create_disk(name)
        self._create_constrained([name])

    def _create_disk(self, name: str) -> None:
        for at in workloads.disk(name, self._namespace, self._draw):
            self._persist(partial(_delete_now, path=f"{at[0]}/{at[1]['metadata']['name']}"))
            self._persist(partial(_post, at=at))

    def _replace_claim(self, pods: Sequence[PodSeen]) -> None:
        """Replace a pod and its claim; the devices are free at once."""
        name = self._draw.choice(workloads.DEVICES)
        for found in pods:
            if _name(found) == name:
                self._delete(found, now=True)
        self._create_claim(name)
        self._create_constrained([name])

    def _create_claim(self, name: str) -> None:
        path, raw = workloads.device_object(name, self._namespace)
        self._persist(partial(_delete_now, path=f"{path}/{name}"))
        self._persist(partial(_post, at=(path, raw)))

    def _preempt_strictly(self, pods: Sequence[PodSeen]) -> None:
        """Create a pod whose victims may be evicted only with the Eviction API."""
        name = self._draw.choice(STRICT)
        for found in pods:
            if _name(found) == name:
                self._delete(found, now=True)
        cpu, labels = self._draw.choice(("4", "6")), {CONSTRAINED: ""}
        self._create(drained_pod(name, HIGH, cpu, scheduler="strict", labels=labels))

    # Nodes and profiles

    def _create_node(self, name: str) -> None:
        if name in workloads.NODES:
            raw = workloads.special_node(name)
        else:
            capacity = {"cpu": NODE_CPU, "memory": "8Gi", "pods": "110"}
            raw = node_object(name, f"zone-{self._draw.randrange(3)}", capacity, {})
        self._persist(partial(_post, at=("/api/v1/nodes", raw)))

    def _present(self) -> set[str]:
        """Return the existing nodes of the pool."""
        return {found.key for found in self._scene.books.nodes} & {*self._nodes}

    def _add_node(self) -> None:
        if missing := [name for name in self._nodes if name not in self._present()]:
            self._create_node(self._draw.choice(missing))

    def _remove_node(self) -> None:
        if len(present := sorted(self._present())) > self._fewest_nodes * 0.9:
            self._delete_node(self._draw.choice(present))

    def _replace_node(self) -> None:
        """Delete a node, and immediately add a node of the same name."""
        name = self._draw.choice([*sorted(self._present()), *workloads.GPUS])
        self._delete_node(name)
        self._create_node(name)

    def _delete_node(self, name: str) -> None:
        """Delete a node, and its pods, as the pod garbage collector would."""
        self._persist(partial(_delete_path, path=f"/api/v1/nodes/{name}"))
        for found in self._scene.books.pods:
            if found.node == name:
                self._delete(found, now=True)

    def _cordon(self) -> None:
        for found in self._scene.books.nodes:
            if found.key in self._nodes and not found.schedulable and self._draw.random() < 0.5:
                self._persist(partial(_cordon, name=found.key, on=False))
        if present := sorted(self._present()):
            self._persist(partial(_cordon, name=self._draw.choice(present), on=True))

    def _change_profile(self) -> None:
        """Replace the profile; the new one may be invalid."""
        spec = self._draw.choice(
            (
                {},
                {"percentageOfNodesToScore": 50},
                {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 7}]}}},
                {"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}},
            )
        )
        self._persist(partial(_put_profile, spec=spec))

    def clear_orphans(self) -> None:
        """Delete pods bound to a node that was just removed, as the garbage collector would."""
        nodes = {found.key for found in self._scene.books.nodes}
        for found in self._scene.books.pods:
            if found.node and found.node not in nodes:
                self._delete(found, now=True)


def _name(found: PodSeen) -> str:
    return found.key.partition("/")[2]


def _create(client: Client, *, namespace: str, raw: Raw) -> None:
    create_pods(client, namespace, raw)


def _post(client: Client, *, at: tuple[str, Raw]) -> None:
    client.post(*at)


def _delete_path(client: Client, *, path: str) -> None:
    client.delete(path)


def _delete_now(client: Client, *, path: str) -> None:
    """Delete an object immediately, without its finalizers."""
    client.delete(path)
    client.patch(path, {"metadata": {"finalizers": None}})


def _delete_pod(client: Client, *, key: str, options: Raw) -> None:
    namespace, _, name = key.partition("/")
    client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", options)


def _cordon(client: Client, *, name: str, on: bool) -> None:
    client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}})


def _put_profile(client: Client, *, spec: Raw) -> None:
    path = f"{PROFILES}/mooring"
    metadata = client.get(path)["metadata"]
    client.put(path, {**profile("mooring", **spec), "metadata": metadata})
