"""The command `python -m bench.descheduling`: rebalancing beside the descheduler's strategies.

Each scene is a small cluster that has drifted, on a control plane of its own with Mooring as the
scheduler. Either the profile's section `rebalancing` mends it, or the descheduler, which is run
again and again until it evicts nothing. Both may evict any pod; neither knows of the other.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import yaml
from rich.table import Table

import replica
from bench.__main__ import console, progress
from bench.schedulers import Mooring
from controlplane import Access, ControlPlane, ControlPlaneError
from controlplane.build import DESCHEDULER_MODULE, ensure_built
from controlplane.client import Client
from controlplane.nodes import node_object
from controlplane.processes import ProcessGroup

__all__ = ["SCENES", "Outcome", "Scene", "came_back", "outcomes_table"]

Raw = dict[str, Any]
Placed = Counter[tuple[str, str]]
"""How many pods each workload has on each node; the node is "" for pods that wait."""

NAMESPACE: Final = "shop"
PROFILES: Final = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
MOORING: Final = "mooring"
DESCHEDULER: Final = "descheduler"
ZONE: Final = "topology.kubernetes.io/zone"
SETTLE_SECONDS: Final = 120.0
"""How long pods may take until all run that can."""
QUIET_SECONDS: Final = 25.0
"""Without an eviction for so long, which is two intervals of plans, rebalancing has ended."""
LONGEST_SECONDS: Final = 240.0
MOST_ROUNDS: Final = 8
"""Runs of the descheduler."""
LOOK_AGAIN: Final = 0.1
LONGEST_LOOK: Final = 5.0
"""What lies between two looks is not longer, unless the process was suspended."""
PACKED: Final = {
    "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 10}]}},
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
        {
            "name": "PodTopologySpread",
            "args": {"defaultingType": "List", "defaultConstraints": []},
        },
    ],
}
"""A profile that fills nodes."""


@dataclass(frozen=True)
class Scene:
    """A cluster that has drifted, and what each tool is told to do about it.

    `drift` makes it: it is given what creates nodes, workloads and so on. `left` says of the pods'
    places what is still wrong, in words.
    """

    title: str
    drift: "Callable[[Stage], None]"
    profile: Raw
    goals: Sequence[str]
    strategy: str
    arguments: Raw
    balances: bool
    left: Callable[[Placed], str]


@dataclass(frozen=True)
class Outcome:
    """What one tool did in one scene."""

    scene: str
    tool: str
    evictions: int
    came_back: int
    waiting: int
    left: str
    seconds: float


class RunningClock:
    """The seconds while this process ran: on a machine that is shared it may be suspended."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._seconds = 0.0

    def now(self) -> float:
        """Return them; to be called at least every few seconds."""
        now = time.monotonic()
        self._seconds += min(now - self._last, LONGEST_LOOK)
        self._last = now
        return self._seconds


class Stage:
    """Makes nodes and workloads, and says where pods are."""

    def __init__(self, access: Access, client: Client) -> None:
        self.access, self.client = access, client
        self.now = RunningClock().now
        self.seen: set[str] = set()
        """The uids of all pods there have been."""

    def nodes(self, *names: str, zone: str = "zone-1", **labels: str) -> None:
        """Create nodes of 8 CPUs."""
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        for name in names:
            self.client.post("/api/v1/nodes", node_object(name, zone, capacity, labels))

    def patch_node(self, name: str, patch: Raw) -> None:
        """Change the node by a JSON merge patch."""
        self.client.patch(f"/api/v1/nodes/{name}", patch)

    def workload(self, name: str, replicas: int, cpu: str, **spec: Any) -> None:
        """Create a Deployment, and wait until its pods run."""
        labels = {"app": name}
        requests = {"cpu": cpu, "memory": "256Mi"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "schedulerName": MOORING,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **spec,
            },
        }
        fields = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        before = self.placed().total()
        self.client.post(DEPLOYMENTS, {"metadata": {"name": name}, "spec": fields})
        self.settle(before + replicas)

    def raw_pods(self) -> list[Raw]:
        """Return the pods that are not on their way out; note all there are."""
        items: list[Raw] = self.client.get(PODS)["items"]
        self.seen.update(raw["metadata"]["uid"] for raw in items)
        return [raw for raw in items if "deletionTimestamp" not in raw["metadata"]]

    def placed(self) -> Placed:
        """Return how many pods each workload has on each node."""
        pods = self.raw_pods()
        return Counter(
            (raw["metadata"]["labels"]["app"], raw["spec"].get("nodeName", "")) for raw in pods
        )

    def settle(self, pods: int) -> float:
        """Wait until so many pods run or are said to fit nowhere; return when that was."""
        deadline = self.now() + SETTLE_SECONDS
        while True:
            found = self.raw_pods()
            if len(found) == pods and all(map(_has_settled, found)):
                return self.now()
            if self.now() > deadline:
                states = Counter(map(_state, found))
                raise ControlPlaneError(f"{pods} pods have not settled, there are: {dict(states)}")
            time.sleep(LOOK_AGAIN)


def _has_settled(raw: Raw) -> bool:
    conditions = {c["type"]: c for c in raw.get("status", {}).get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    is_ready: bool = conditions.get("Ready", {}).get("status") == "True"
    return is_ready or scheduled.get("reason") == "Unschedulable"


def _state(raw: Raw) -> str:
    """Return the pod's workload, phase and node, to say what is wrong."""
    phase = raw.get("status", {}).get("phase", "")
    ready = "ready" if _has_settled(raw) else "not ready"
    return f"{raw['metadata']['labels']['app']} {phase} {ready} {raw['spec'].get('nodeName', '-')}"


def came_back(before: Placed, after: Placed, evictions: int) -> int:
    """Return how many evictions have changed nothing: as many pods are where they were.

    A pod that waits afterwards has left its node, and did not come back.
    """
    left = before - after
    return max(0, evictions - left.total())


def _half_empty(stage: Stage) -> None:
    """Have six nodes at 60 % and six at 30 %, of which the latter fit onto the former."""
    names = [f"node-{number:02}" for number in range(1, 13)]
    stage.nodes(*names)
    for app, replicas, closed in (("web", 24, names[6:]), ("cart", 12, names[:6])):
        for name in closed:
            stage.patch_node(name, {"spec": {"unschedulable": True}})
        time.sleep(1.0)
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        stage.workload(app, replicas, "1200m", topologySpreadConstraints=[spread])
        for name in closed:
            stage.patch_node(name, {"spec": {"unschedulable": None}})


def _returned_zone(stage: Stage) -> None:
    """Have the pods of three zones in two, and the third one back."""
    for zone in ("a", "b"):
        stage.nodes(f"{zone}-1", f"{zone}-2", zone=zone)
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    stage.workload("web", 12, "1", topologySpreadConstraints=[spread])
    stage.nodes("c-1", "c-2", zone="c")


def _changed_affinity(stage: Stage) -> None:
    """Have pods on nodes that are not theirs any more; there is room for six of eight."""
    stage.nodes("old-1", "old-2", disk="ssd")
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    stage.workload("web", 8, "2", affinity={"nodeAffinity": required})
    stage.nodes("new-1", disk="ssd")
    stage.nodes("new-2", disk="hdd")
    stage.workload("other", 1, "4", nodeSelector={"kubernetes.io/hostname": "new-2"})
    for name in ("old-1", "old-2"):
        stage.patch_node(name, {"metadata": {"labels": {"disk": "hdd"}}})
    stage.patch_node("new-2", {"metadata": {"labels": {"disk": "ssd"}}})


def _nodes_in_use(placed: Placed) -> str:
    return f"{len({node for (_, node), count in placed.items() if node and count})} nodes in use"


def _zones(placed: Placed) -> str:
    zones = Counter[str]()
    for (_, node), count in placed.items():
        zones[node[:1]] += count
    return "/".join(str(zones[zone]) for zone in "abc") + " in zones a/b/c"


def _on_old_nodes(placed: Placed) -> str:
    wrong = sum(count for (_, node), count in placed.items() if node.startswith("old"))
    return f"{wrong} on nodes that are not theirs"


SCENES: Final[Mapping[str, Scene]] = {
    "half-empty": Scene(
        "twelve nodes, six of them at 60 % and six at 30 %",
        _half_empty,
        profile=PACKED,
        goals=["Pack"],
        strategy="HighNodeUtilization",
        arguments={"thresholds": {"cpu": 50}},
        balances=True,
        left=_nodes_in_use,
    ),
    "zone": Scene(
        "a returned zone, spread violated",
        _returned_zone,
        profile={},
        goals=["Violations"],
        strategy="RemovePodsViolatingTopologySpreadConstraint",
        arguments={"constraints": ["DoNotSchedule"]},
        balances=True,
        left=_zones,
    ),
    "affinity": Scene(
        "labels of nodes changed, room for six of eight pods",
        _changed_affinity,
        profile={},
        goals=["Violations"],
        strategy="RemovePodsViolatingNodeAffinity",
        arguments={"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
        balances=False,
        left=_on_old_nodes,
    ),
}


def _descheduler_policy(scene: Scene) -> Raw:
    """Return the policy of one strategy, which evicts only pods that fit on another node."""
    point = "balance" if scene.balances else "deschedule"
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "bench",
                "pluginConfig": [
                    {"name": "DefaultEvictor", "args": {"nodeFit": True}},
                    {"name": scene.strategy, "args": scene.arguments},
                ],
                "plugins": {point: {"enabled": [scene.strategy]}},
            }
        ],
    }


def _run_descheduler(stage: Stage, scene: Scene, program: Path, folder: Path) -> float:
    """Run it until it evicts nothing; return when the last replacement had settled."""
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(_descheduler_policy(scene)))
    command = [
        str(program),
        f"--kubeconfig={stage.access.admin_kubeconfig}",
        f"--policy-config-file={policy}",
        "--secure-port=0",
        "--disable-metrics",
    ]
    pods, ended = len(stage.raw_pods()), stage.now()
    for number in range(MOST_ROUNDS):
        before = len(stage.seen)
        log = folder / f"descheduler-{number}.log"
        with ProcessGroup() as group:
            running = group.spawn(DESCHEDULER, command, log=log, env={})
            while running.wait(LOOK_AGAIN) is None:
                stage.raw_pods()
        if running.exit_code:
            raise ControlPlaneError(f"the descheduler failed: {log.read_text()[-2000:]}")
        time.sleep(1.0)  # the controller makes the replacements
        at = stage.settle(pods)
        if len(stage.seen) == before:
            break
        ended = at
    return ended


def _run_rebalancing(stage: Stage, scene: Scene) -> float:
    """Have the profile rebalance until it is quiet; return when the last replacement was there."""
    section = {
        "mode": "Apply",
        "goals": scene.goals,
        "intervalSeconds": 10,
        "pods": {"minimumAgeSeconds": 0},
        "limits": {"movesPerHour": 1000},
    }
    pods = len(stage.raw_pods())
    began = ended = stage.now()
    stage.client.patch(f"{PROFILES}/{MOORING}", {"spec": {"rebalancing": section}})
    known = len(stage.seen)
    quiet_since = stage.now()
    while stage.now() - quiet_since < QUIET_SECONDS:
        found = stage.raw_pods()
        if len(stage.seen) > known or len(found) != pods or not all(map(_has_settled, found)):
            known = len(stage.seen)
            ended = quiet_since = stage.now()
        if stage.now() - began > LONGEST_SECONDS:
            raise ControlPlaneError(f"rebalancing has not ended in {LONGEST_SECONDS:g} s")
        time.sleep(LOOK_AGAIN)
    return ended


@contextmanager
def _stage(scene: Scene, log: Path) -> Iterator[Stage]:
    """Yield the cluster with Mooring as its scheduler, after it has drifted."""
    with (
        ControlPlane({"kube-controller-manager", "kwok"}) as plane,
        plane.access.client() as client,
    ):
        replica.apply_manifests(plane.access)
        client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        # The shipped profile gives way to that of the scene, from whose policy the drift comes.
        client.delete(f"{PROFILES}/{MOORING}")
        kind = {"apiVersion": "scheduling.mooring.dev/v1alpha1", "kind": "SchedulingProfile"}
        client.post(PROFILES, {**kind, "metadata": {"name": MOORING}, "spec": {}})
        scheduler = Mooring(plane, log)
        scheduler.start()
        try:
            stage = Stage(plane.access, client)
            scene.drift(stage)
            client.patch(f"{PROFILES}/{MOORING}", {"spec": scene.profile})
            time.sleep(2.0)  # until the profile is in force
            yield stage
        finally:
            scheduler.stop()


def _outcome(scene: Scene, tool: str, output: Path, program: Path) -> Outcome:
    log = output / f"descheduling-{tool}.log"
    with _stage(scene, log) as stage, TemporaryDirectory() as folder:
        before, known = stage.placed(), len(stage.seen)
        began = stage.now()
        if tool == DESCHEDULER:
            ended = _run_descheduler(stage, scene, program, Path(folder))
        else:
            ended = _run_rebalancing(stage, scene)
        after, evictions = stage.placed(), len(stage.seen) - known
        waiting = sum(count for (_, node), count in after.items() if not node)
        return Outcome(
            scene.title,
            tool,
            evictions,
            came_back(before, after, evictions),
            waiting,
            scene.left(after),
            ended - began,
        )


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a row for each scene and tool."""
    table = Table(title="rebalancing beside the descheduler")
    table.add_column("cluster")
    table.add_column("with")
    for title in ("evictions", "came back", "fit nowhere then"):
        table.add_column(title, justify="right")
    table.add_column("afterwards")
    table.add_column("seconds", justify="right")
    for each in outcomes:
        numbers = (each.evictions, each.came_back, each.waiting)
        cells = (*map(str, numbers), each.left, f"{each.seconds:.0f}")
        table.add_row(each.scene, each.tool, *cells)
    return table


@click.command()
@click.argument("scenes", nargs=-1, type=click.Choice([*SCENES]))
@click.option("--only", type=click.Choice([MOORING, DESCHEDULER]), help="Run one of the two.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=replica.ROOT / "build" / "bench",
    help="Folder for logs and the outcomes as JSON.  [default: build/bench]",
)
def main(scenes: Sequence[str], only: str | None, output: Path) -> None:
    """Have Mooring and the descheduler mend the SCENES, all without any, one after the other."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    output.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    try:
        program = ensure_built(module=DESCHEDULER_MODULE) / DESCHEDULER
        for name in scenes or SCENES:
            for tool in [only] if only else [MOORING, DESCHEDULER]:
                progress.begin(f"{name}, {tool}")
                outcomes.append(_outcome(SCENES[name], tool, output, program))
                progress.end(f"{outcomes[-1].evictions} evictions")
    except ControlPlaneError as error:
        raise click.ClickException(str(error)) from error
    (output / "descheduling.json").write_text(json.dumps([vars(each) for each in outcomes]))
    console.print(outcomes_table(outcomes))


if __name__ == "__main__":
    main(prog_name="python -m bench.descheduling")
