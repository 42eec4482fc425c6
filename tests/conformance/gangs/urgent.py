"""Gives an urgent pod to kube-scheduler and to Mooring, beside groups of lower priority.

Some groups can only be disrupted as a whole. Both schedulers get the same pods on separate nodes,
and their victims are compared.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from conformance.gangs.comparing import SCHEDULERS, in_batches
from controlplane import Access
from controlplane.client import Client
from controlplane.releases import chosen_release
from mooring.testing.builders import node, pdb, pod, pod_group

Raw = dict[str, Any]
GROUPS: Final = {"small": 0, "equal": 10, "large": 20, "loose": 10}
"""The priorities of the groups by name; all but the last are disrupted as a whole."""
ALONE: Final = 10
"""The priority of pods without a group."""
URGENT: Final = (15, 100)
"""The priorities of urgent pods."""
LONG_GRACE: Final = 3600
"""Victims stay, so that no second decision finds other nodes free."""
SHOWN_SECONDS: Final = 1.0
"""After so long the watches of both schedulers have shown everything."""
EVICTED_SECONDS: Final = 2.0
"""After so long victims are being deleted, which happens after the condition is written."""
PATIENCE: Final = 30.0
LOOK_AGAIN: Final = 0.2
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Evicted(NamedTuple):
    """The names of the pods that each scheduler evicts for an urgent pod."""

    number: int
    kube_scheduler: tuple[str, ...]
    mooring: tuple[str, ...]


@dataclass(frozen=True)
class Scene:
    """The objects for one scheduler: nodes, groups, running pods, budgets and the urgent pod."""

    nodes: list[Raw]
    groups: list[Raw]
    running: list[Raw]
    budgets: list[Raw]
    urgent: Raw


def random_scene(seed: int, number: int, scheduler: str, namespace: str) -> Scene:
    """Return the scene of this number; for another scheduler only the names differ."""
    draw = random.Random(f"{seed}-{number}")  # noqa: S311 - has to be repeatable
    mine = f"{number}-{scheduler}"
    nodes, running = list[Raw](), list[Raw]()
    for n in range(draw.randint(2, 4)):
        name = f"{mine}-n{n}"
        nodes.append(node(name, cpu=str(draw.randint(2, 4)), labels={"scene": mine}))
        for i in range(draw.randint(1, 3)):
            group = draw.choice([None, *GROUPS])
            raw = pod(
                f"{name}-{i}",
                namespace=namespace,
                node=name,
                cpu=str(draw.randint(1, 2)),
                group=f"{mine}-{group}" if group else None,
                labels={"guarded": mine} if draw.random() < 0.4 else None,
                started=f"2026-01-0{i + 1}T00:00:0{n}Z",
                spec={"terminationGracePeriodSeconds": LONG_GRACE},
            )
            running.append(_of_class(raw, GROUPS[group] if group else ALONE))
    named = {raw["spec"].get("schedulingGroup", {}).get("podGroupName") for raw in running}
    groups = [_group(f"{mine}-{name}", name, namespace) for name in GROUPS]
    allowed = draw.choice([None, 0, 1])
    budget = pdb(mine, {"guarded": mine}, allowed=allowed or 0, namespace=namespace)
    asked, priority = draw.randint(1, 3), draw.choice(URGENT)
    urgent = pod(
        f"{mine}-urgent", namespace=namespace, cpu=str(asked), node_selector={"scene": mine}
    )
    urgent["spec"]["schedulerName"] = scheduler
    return Scene(
        nodes,
        [group for group in groups if group["metadata"]["name"] in named],
        running,
        [] if allowed is None else [budget],
        _of_class(urgent, priority),
    )


def _of_class(raw: Raw, priority: int) -> Raw:
    """Return the pod or group with the PriorityClass of this priority."""
    raw["spec"].pop("priority", None)
    raw["spec"]["priorityClassName"] = f"p{priority}"
    return raw


def _group(name: str, kind: str, namespace: str) -> Raw:
    raw = _of_class(pod_group(name, 1, namespace=namespace), GROUPS[kind])
    raw["spec"]["disruptionMode"] = {"single": {}} if kind == "loose" else {"all": {}}
    return chosen_release().versioned(raw)


def evictions(access: Access, seed: int, numbers: Sequence[int]) -> Iterator[Evicted]:
    """Yield the victims in each scene; the cluster must have no nodes before."""
    with access.client() as client:
        for priority in {*GROUPS.values(), ALONE, *URGENT}:
            client.post(CLASSES, {"metadata": {"name": f"p{priority}"}, "value": priority})
    yield from in_batches(access, "urgent", numbers, partial(_together, seed))


def _together(
    seed: int, client: Client, namespace: str, numbers: Sequence[int]
) -> Iterator[Evicted]:
    pairs = [[random_scene(seed, n, name, namespace) for name in SCHEDULERS] for n in numbers]
    scenes = [scene for pair in pairs for scene in pair]
    for scene in scenes:
        _create(client, namespace, scene)
    time.sleep(SHOWN_SECONDS)
    for scene in scenes:
        client.post(f"/api/v1/namespaces/{namespace}/pods", scene.urgent)
    _wait_until_decided(client, namespace, scenes)
    time.sleep(EVICTED_SECONDS)
    pods = {raw["metadata"]["name"]: raw for raw in _pods(client, namespace)}
    for number, (theirs, ours) in zip(numbers, pairs, strict=True):
        yield Evicted(number, _evicted(theirs, pods), _evicted(ours, pods))


def _create(client: Client, namespace: str, scene: Scene) -> None:
    """Create the scene's objects, and then write the statuses of pods and budgets."""
    pods, group_path = (
        f"/api/v1/namespaces/{namespace}/pods",
        chosen_release().pod_groups(namespace),
    )
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    for raw in scene.nodes:
        client.post("/api/v1/nodes", raw)
    for raw in scene.groups:
        client.post(group_path, raw)
    for path, raws in ((budgets, scene.budgets), (pods, scene.running)):
        for raw in raws:
            created = client.post(path, raw)
            status = {**created.get("status", {}), **raw["status"]}
            client.put(f"{path}/{raw['metadata']['name']}/status", {**created, "status": status})


def _pods(client: Client, namespace: str) -> list[Raw]:
    found: list[Raw] = client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return found


def _wait_until_decided(client: Client, namespace: str, scenes: Sequence[Scene]) -> None:
    """Wait until each urgent pod is bound or has a condition."""
    waiting, deadline = {s.urgent["metadata"]["name"] for s in scenes}, time.monotonic() + PATIENCE
    while waiting and time.monotonic() < deadline:
        for raw in _pods(client, namespace):
            if raw["spec"].get("nodeName") or raw["status"].get("conditions"):
                waiting.discard(raw["metadata"]["name"])
        time.sleep(LOOK_AGAIN)


def _evicted(scene: Scene, pods: dict[str, Raw]) -> tuple[str, ...]:
    """Return the end of the name (node and number) of each pod that is leaving or gone."""
    found = list[str]()
    for raw in scene.running:
        name = raw["metadata"]["name"]
        if name not in pods or pods[name]["metadata"].get("deletionTimestamp"):
            found.append("-".join(name.rsplit("-", 2)[1:]))
    return tuple(sorted(found))
