"""What the cluster's users and its administrator do meanwhile, drawn from a seed."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self

from controlplane.client import Client
from controlplane.nodes import node_object
from e2e.replicas import PROFILES, create_pods, profile
from faults.books import PodSeen
from faults.scene import HIGH, LOW, Scene, drained_pod

__all__ = ["Churn"]

Raw = dict[str, Any]

TICK_SECONDS: Final = 0.2
CPUS: Final = ("100m", "250m", "500m", "1", "2")
NODE_CPU: Final = "8"
APPS: Final = 20


class Churn:
    """A thread that acts all the time; `size` is about how many pods there are."""

    def __init__(self, scene: Scene, namespace: str, *, seed: int, nodes: int, size: int) -> None:
        self.acts: Counter[str] = Counter()
        self._scene = scene
        self._namespace = namespace
        self._draw = random.Random(seed)  # noqa: S311 - has to be repeatable
        self._fewest_nodes = nodes
        self._size = size
        self._made = 0
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
        """The nodes exist, and pods that nearly fill them are created at once."""
        for _ in range(self._fewest_nodes):
            self._add_node()
        for _ in range(self._size):
            self._add_pod(LOW if self._draw.random() < 0.8 else "middle")

    def preempt(self, number: int) -> None:
        """So many pods of high priority come at once."""
        for _ in range(number):
            self._add_pod(HIGH, cpu="1")

    def _run(self) -> None:
        try:
            while not self._stopping.wait(TICK_SECONDS):
                self._act()
        except BaseException as error:  # noqa: BLE001 - raised again by __exit__
            self._failure = error

    def _act(self) -> None:
        pods = self._scene.books.pods
        crowded = len(pods) > self._size * 1.1
        acts: list[tuple[float, Callable[[], None]]] = [
            (4.0 if crowded else 12.0, self._create_some),
            (12.0 if crowded else 4.0, partial(self._delete_some, pods)),
            (3.0, partial(self._scale, pods)),
            (1.5, self._preempt_some),
            (0.4, self._add_node),
            (0.4, self._remove_node),
            (0.6, self._cordon),
            (0.3, self._change_profile),
        ]
        weights = [weight for weight, _ in acts]
        (act,) = self._draw.choices([act for _, act in acts], weights)
        self.acts[getattr(act, "__name__", "pods")] += 1
        act()

    # Pods

    def _add_pod(self, priority: str, cpu: str | None = None, app: int | None = None) -> None:
        self._made += 1
        app = self._draw.randrange(APPS) if app is None else app
        raw = drained_pod(
            f"app{app}-{self._made}",
            priority,
            cpu or self._draw.choice(CPUS),
            grace=self._draw.choice((0, 0, 1)),
            labels={"app": f"app{app}"},
        )
        self._scene.persist(partial(_create, namespace=self._namespace, raw=raw))

    def _create_some(self) -> None:
        for _ in range(self._draw.randint(1, 8)):
            self._add_pod(self._draw.choice((LOW, LOW, LOW, "middle")))

    def _delete_some(self, pods: list[PodSeen]) -> None:
        for found in self._draw.sample(pods, min(len(pods), self._draw.randint(1, 8))):
            self._delete(found)

    def _scale(self, pods: list[PodSeen]) -> None:
        """One app has another number of pods."""
        app = self._draw.randrange(APPS)
        its = [found for found in pods if f"/app{app}-" in found.key]
        wanted = self._draw.randint(0, 2 * self._size // APPS)
        for found in its[wanted:]:
            self._delete(found)
        for _ in range(min(20, wanted - len(its))):
            self._add_pod(LOW, "250m", app)

    def _preempt_some(self) -> None:
        for _ in range(self._draw.randint(1, 6)):
            self._add_pod(HIGH, self._draw.choice(("500m", "1", "2")))

    def _delete(self, found: PodSeen) -> None:
        grace = {} if self._draw.random() < 0.5 else {"gracePeriodSeconds": 0}
        self._scene.persist(partial(_delete_pod, key=found.key, options=grace))

    # Nodes and profiles

    def _add_node(self) -> None:
        if len(self._scene.books.nodes) > self._fewest_nodes * 1.1:
            return
        self._made += 1
        capacity = {"cpu": NODE_CPU, "memory": "8Gi", "pods": "110"}
        node = node_object(f"node-{self._made}", f"zone-{self._made % 3}", capacity, {})
        self._scene.persist(partial(_create_node, raw=node))

    def _remove_node(self) -> None:
        """A node goes, and its pods as the pod garbage collector would end them."""
        nodes = self._scene.books.nodes
        if len(nodes) <= self._fewest_nodes * 0.9:
            return
        gone = self._draw.choice(nodes).key
        self._scene.persist(partial(_delete_path, path=f"/api/v1/nodes/{gone}"))
        for found in self._scene.books.pods:
            if found.node == gone:
                options = {"gracePeriodSeconds": 0}
                self._scene.persist(partial(_delete_pod, key=found.key, options=options))

    def _cordon(self) -> None:
        nodes = self._scene.books.nodes
        for found in nodes:
            if not found.schedulable and self._draw.random() < 0.5:
                self._scene.persist(partial(_cordon, name=found.key, on=False))
        if nodes:
            self._scene.persist(partial(_cordon, name=self._draw.choice(nodes).key, on=True))

    def _change_profile(self) -> None:
        """Another policy, which may be one that cannot come into force."""
        spec = self._draw.choice(
            (
                {},
                {"percentageOfNodesToScore": 50},
                {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 7}]}}},
                {"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}},
            )
        )
        self._scene.persist(partial(_put_profile, spec=spec))

    def clear_orphans(self) -> None:
        """Pods bound to a node that had just been removed end, as the garbage collector would."""
        nodes = {found.key for found in self._scene.books.nodes}
        for found in self._scene.books.pods:
            if found.node and found.node not in nodes:
                options = {"gracePeriodSeconds": 0}
                self._scene.persist(partial(_delete_pod, key=found.key, options=options))


def _create(client: Client, *, namespace: str, raw: Raw) -> None:
    create_pods(client, namespace, raw)


def _create_node(client: Client, *, raw: Raw) -> None:
    client.post("/api/v1/nodes", raw)


def _delete_path(client: Client, *, path: str) -> None:
    client.delete(path)


def _delete_pod(client: Client, *, key: str, options: Raw) -> None:
    namespace, _, name = key.partition("/")
    client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", options)


def _cordon(client: Client, *, name: str, on: bool) -> None:
    client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}})


def _put_profile(client: Client, *, spec: Raw) -> None:
    path = f"{PROFILES}/mooring"
    metadata = client.get(path)["metadata"]
    client.put(path, {**profile("mooring", **spec), "metadata": metadata})
