"""Rebalancing on a real API server: kube-controller-manager replaces pods, kwok runs them.

The tests read the history of pods from the API server, by a watch from before the first move.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import node_object
from e2e.replicas import PROFILES, QUICK_LEASE, Replica, Replicas, create_pods, eventually, pod
from node_selectors import expression, required_nodes, term
from policies import profile

Raw = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
APP: Final = {"app": "web"}
INTERVAL: Final = 10
PATIENCE: Final = 200.0
"""The first plan comes ten seconds after the profile, one after the moves an interval later."""
LARGE: Final = {"size": "large"}
GROUP, MINIMUM = "example.com/group", "example.com/minimum"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane({"kube-controller-manager", "kwok"}) as plane:
        replica.apply_manifests(plane.access)
        yield plane


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Yield the leader; the profile of each test moves its pods."""
    with Replicas.of(plane.access, tmp_path_factory.mktemp("rebalancing")) as replicas:
        leader = replicas.start()
        leader.wait_until_leads()
        yield leader
        assert leader.terminate() == 0


@dataclass
class Scene:
    """A namespace with its own nodes and its own profile; all three have the same name."""

    client: Client
    name: str
    since: str = ""
    """The version of the cluster from which on its history counts."""

    def add_nodes(self, count: int, *, zones: int = 1, cpu: str = "4") -> list[str]:
        """Create nodes that only the pods of this namespace select."""
        capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        names = [f"{self.name}-{number}" for number in range(count)]
        for number, name in enumerate(names):
            zone = f"{self.name}-zone-{number % zones}"
            raw = node_object(name, zone, capacity, {"pool": self.name})
            self.client.post("/api/v1/nodes", raw)
        for name in names:
            eventually(partial(self.node, name), _takes_pods, f"node {name} ready")
        return names

    def node(self, name: str) -> Raw:
        raw: Raw = self.client.get(f"/api/v1/nodes/{name}")
        return raw

    def change_node(self, name: str, patch: Raw) -> None:
        self.client.patch(f"/api/v1/nodes/{name}", patch)

    def put_profile(self, **section: Any) -> None:
        """Put the profile in force; `section` are fields of its section `rebalancing`."""
        limits = {"movesAtATime": 2, "movesAtATimePerWorkload": 2} | section.pop("limits", {})
        rebalancing = {
            "mode": "Apply",
            "intervalSeconds": INTERVAL,
            "pods": {"minimumAgeSeconds": 0},
            "limits": limits,
            **section,
        }
        spec = {"rebalancing": rebalancing} if section else {}
        if self.name in (raw["metadata"]["name"] for raw in self.client.get(PROFILES)["items"]):
            self.client.patch(f"{PROFILES}/{self.name}", {"spec": spec})
        else:
            self.client.post(PROFILES, profile(self.name, **spec))

    def deploy(self, replicas: int, *, cpu: str = "500m", **spec: Any) -> None:
        """Create the Deployment, and wait until its pods are ready."""
        selector = {"pool": self.name}
        template = pod(
            "web", cpu=cpu, scheduler=self.name, labels=APP, nodeSelector=selector, **spec
        )
        raw = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": APP}, "template": template},
        }
        self.client.post(f"/apis/apps/v1/namespaces/{self.name}/deployments", raw)
        eventually(self.ready, lambda found: len(found) == replicas, "ready pods")
        self.since = self.client.get(self._pods)["metadata"]["resourceVersion"]

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.name}/pods"

    def pods(self) -> list[Raw]:
        found: list[Raw] = self.client.get(self._pods)["items"]
        return found

    def ready(self) -> dict[str, str]:
        return {
            raw["metadata"]["name"]: raw["spec"]["nodeName"]
            for raw in self.pods()
            if _is_ready(raw) and "deletionTimestamp" not in raw["metadata"]
        }

    def per_node(self) -> Counter[str]:
        """Return the number of ready pods by node."""
        return Counter(self.ready().values())

    def status(self) -> Raw:
        """Return the section `rebalancing` of the profile's status."""
        raw = self.client.get(f"{PROFILES}/{self.name}")
        found: Raw = raw.get("status", {}).get("rebalancing") or {}
        return found

    def wait_until_balanced(self) -> Raw:
        """Wait until moves were made and the next plan is empty; return the status."""

        def is_balanced(status: Raw) -> bool:
            last = max((move["time"] for move in status.get("lastMoves") or ()), default="9")
            planned = status.get("plannedTime") or ""
            return status.get("planned") == 0 and not status["underWay"] and planned > last

        what = "an empty plan after the moves"
        return eventually(self.status, is_balanced, what, seconds=PATIENCE)

    def history(self) -> list[tuple[str, Raw]]:
        """Return the type and the pod of each watch event since the deployment."""
        query = f"watch=true&resourceVersion={self.since}&timeoutSeconds=1"
        return [
            (each["type"], each["object"]) for each in self.client.watch(f"{self._pods}?{query}")
        ]

    def evicted(self) -> list[str]:
        """Return the uids of the deleted pods in order."""
        return [raw["metadata"]["uid"] for kind, raw in self.history() if kind == "DELETED"]


def _is_ready(raw: Mapping[str, Any]) -> bool:
    conditions = raw.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _takes_pods(node: Mapping[str, Any]) -> bool:
    """Return whether the node is ready and has no taint of the node controller."""
    return _is_ready(node) and not node["spec"].get("taints")


@pytest.fixture
def bare_scene(plane: ControlPlane) -> Iterator[Scene]:
    """Yield a scene without a scheduler, for tests that start their own."""
    with plane.access.client() as client:
        name = create_namespace(plane.access, "moved")
        scene = Scene(client, name)
        eventually(
            lambda: client.get(f"/api/v1/namespaces/{name}/serviceaccounts")["items"],
            bool,
            "the account that pods need",
        )
        yield scene
        client.delete(f"{PROFILES}/{name}")
        client.delete(f"/apis/apps/v1/namespaces/{name}/deployments/web")
        for raw in client.get(f"/api/v1/nodes?labelSelector=pool={name}")["items"]:
            client.delete(f"/api/v1/nodes/{raw['metadata']['name']}")


@pytest.fixture
def scene(bare_scene: Scene, scheduler: Replica) -> Scene:
    """Return a scene for the scheduler that most tests share."""
    assert not scheduler.says("Traceback")
    return bare_scene


def check_moved_once(scene: Scene, status: Raw) -> None:
    """Check that every pod that left was moved, and that no replacement was moved."""
    evicted = scene.evicted()
    assert len(evicted) == len(set(evicted)) == status["done"] == len(status["lastMoves"])
    assert not set(evicted) & {move["uid"] for move in status["lastMoves"]}
    assert {move["result"] for move in status["lastMoves"]} == {"moved"}


def test_another_leader_goes_on_when_the_first_one_is_killed_in_the_middle_of_a_move(
    bare_scene: Scene, replicas: Replicas
) -> None:
    """The evicted pod is replaced, no pod is evicted twice, and the other pods are moved."""
    scene, leader = bare_scene, replicas.start(*QUICK_LEASE)
    leader.wait_until_leads()
    successor = replicas.start(*QUICK_LEASE)
    first, second = nodes_of_pods_that_violate(scene, 3)
    before = {raw["metadata"]["uid"] for raw in scene.pods()}
    # The next leader may take a pod as new as the move for a replacement, and lets it rest.
    scene.put_profile(goals=["Violations"], limits={"restSeconds": 20})
    eventually(scene.status, lambda status: status.get("underWay"), "a move")
    leader.kill()
    successor.wait_until_leads()
    eventually(scene.per_node, lambda found: found == {second: 3}, "all moved", seconds=PATIENCE)
    evicted = scene.evicted()
    assert len(evicted) == 3
    assert set(evicted) == before
    assert first not in scene.per_node()
    assert successor.terminate() == 0


def nodes_of_pods_that_violate(scene: Scene, replicas: int) -> tuple[str, str]:
    """Deploy pods that require a node label; then move the label to a second node.

    Returns the first node, with the pods, and the second node, with the label.
    """
    first, second = scene.add_nodes(2)
    scene.change_node(first, {"metadata": {"labels": {"disk": "ssd"}}})
    scene.put_profile()
    scene.deploy(replicas, affinity=required_nodes(term(expression("disk", "In", "ssd"))))
    assert scene.per_node() == {first: replicas}
    scene.change_node(first, {"metadata": {"labels": {"disk": None}}})
    scene.change_node(second, {"metadata": {"labels": {"disk": "ssd"}}})
    return first, second


def test_a_zone_that_was_drained_and_has_returned_is_balanced_again(scene: Scene) -> None:
    names = scene.add_nodes(4, zones=2)
    away = [name for number, name in enumerate(names) if number % 2]
    for name in away:
        scene.change_node(name, {"spec": {"unschedulable": True}})
    scene.put_profile()
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    scene.deploy(6, topologySpreadConstraints=[spread | {"labelSelector": {"matchLabels": APP}}])
    assert not set(scene.ready().values()) & set(away)
    for name in away:
        scene.change_node(name, {"spec": {"unschedulable": None}})
    scene.put_profile(goals=["Spread"])
    status = scene.wait_until_balanced()
    assert sum(scene.per_node()[name] for name in away) == 3
    check_moved_once(scene, status)


def test_a_label_that_moved_to_another_node_moves_the_pods_that_require_it(scene: Scene) -> None:
    first, second = nodes_of_pods_that_violate(scene, 3)
    scene.put_profile(goals=["Violations"])
    status = scene.wait_until_balanced()
    assert scene.per_node() == {second: 3}
    check_moved_once(scene, status)
    notes = [
        event["note"]
        for event in scene.client.get(
            f"/apis/events.k8s.io/v1/namespaces/{scene.name}/events?fieldSelector=reason=Rebalanced"
        )["items"]
    ]
    assert len(notes) == 3
    assert all(f"from node {first}" in note and f"on node {second}" in note for note in notes)


def test_a_changed_policy_is_carried_out(scene: Scene) -> None:
    """A new rule of the profile forbids the node on which the pods run."""
    first, second = scene.add_nodes(2)
    scene.change_node(second, {"spec": {"unschedulable": True}})
    scene.put_profile()
    scene.deploy(2)
    scene.change_node(second, {"spec": {"unschedulable": None}})
    rules = [{"name": "not-there", "filter": f'node.name != "{first}"', "message": "not there"}]
    scene.client.patch(f"{PROFILES}/{scene.name}", {"spec": {"rules": rules}})
    scene.put_profile(goals=["Violations"])
    status = scene.wait_until_balanced()
    assert scene.per_node() == {second: 2}
    check_moved_once(scene, status)


def test_a_disruption_budget_is_never_broken(scene: Scene) -> None:
    _first, second = nodes_of_pods_that_violate(scene, 3)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": APP}},
    }
    budgets = f"/apis/policy/v1/namespaces/{scene.name}/poddisruptionbudgets"
    scene.client.post(budgets, budget)
    eventually(
        lambda: scene.client.get(f"{budgets}/web"),
        lambda raw: raw.get("status", {}).get("disruptionsAllowed") == 1,
        "a budget that allows one disruption",
    )
    at_once = {"movesAtATime": 3, "movesAtATimePerWorkload": 3}
    available = {raw["metadata"]["uid"]: True for raw in scene.pods()}
    scene.put_profile(goals=["Violations"], limits=at_once)
    status = scene.wait_until_balanced()
    assert scene.per_node() == {second: 3}
    check_moved_once(scene, status)
    for kind, raw in scene.history():
        stays = kind != "DELETED" and "deletionTimestamp" not in raw["metadata"]
        available[raw["metadata"]["uid"]] = stays and _is_ready(raw)
        assert sum(available.values()) >= 2


def test_in_mode_plan_nothing_is_moved_and_the_plan_is_shown(
    scene: Scene, scheduler: Replica
) -> None:
    first, second = nodes_of_pods_that_violate(scene, 2)
    scene.put_profile(goals=["Violations"], mode="Plan")
    status = eventually(scene.status, lambda found: found.get("planned") == 2, "a plan")
    assert {(move["from"], move["to"]) for move in status["plan"]} == {(first, second)}
    assert scene.evicted() == []
    code, text = scheduler.get("/debug/rebalancing")
    assert code == 200
    assert scene.name in text


def test_a_gang_that_fitted_nowhere_fits_after_three_moves_and_no_preemption(
    scene: Scene,
) -> None:
    """Each of three large nodes has two pods; after one move per node a member fits there."""
    *large, small = scene.add_nodes(4)
    for name in large:
        scene.change_node(name, {"metadata": {"labels": LARGE}})
    scene.change_node(small, {"spec": {"unschedulable": True}})
    scene.put_profile()
    args = {"podGroupLabels": [{"name": GROUP, "minimum": MINIMUM}]}
    config = [{"name": "GangScheduling", "args": args}]
    scene.client.patch(f"{PROFILES}/{scene.name}", {"spec": {"pluginConfig": config}})
    scene.deploy(6, cpu="1")
    assert scene.per_node() == dict.fromkeys(large, 2)
    scene.change_node(small, {"spec": {"unschedulable": None}})
    labels = {GROUP: "gang", MINIMUM: "3"}
    gang = [
        pod(f"gang-{n}", cpu="3", scheduler=scene.name, labels=labels, nodeSelector=LARGE)
        for n in range(3)
    ]
    create_pods(scene.client, scene.name, *gang)
    scene.put_profile(goals=["MakeRoom"])
    eventually(scene.ready, lambda found: len(found) == 9, "a ready gang", seconds=PATIENCE)
    status = scene.wait_until_balanced()
    assert scene.per_node() == {**dict.fromkeys(large, 2), small: 3}
    check_moved_once(scene, status)
    assert status["done"] == 3
    events = f"/apis/events.k8s.io/v1/namespaces/{scene.name}/events"
    reasons = {each["reason"] for each in scene.client.get(events)["items"]}
    assert "Rebalanced" in reasons
    assert "Preempted" not in reasons
