"""The command `python -m bench.hostile`: the longest decision about a pod made to be slow.

Every pod is at a limit of `mooring.model.limits`, so no pod that is scheduled is larger. Two pods
of 200 kinds are on every node. Prints CPU time: the first decision, and one more of an equal pod.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from mooring.engine.cycle import decide
from mooring.engine.result_cache import ResultCache
from mooring.model.events import Kind
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod
from scheduler_states import put_profile, scheduler_state

__all__ = ["hostile_pods", "longest_decisions"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"


def hostile_pods() -> Mapping[str, Pod]:
    """Return the pods by what makes them slow; none exceeds a limit."""
    many = LIMITS[Counted.NODE_TERMS]
    terms = range(LIMITS[Counted.POD_TERMS])
    names = [f"n{i}" for i in range(LIMITS[Counted.VALUES])]
    resources = {f"example.com/r{i}": 1 for i in range(LIMITS[Counted.RESOURCES])}
    anti = {"podAntiAffinity": {_REQUIRED: [_in_every_namespace(i, _HOST) for i in terms]}}
    preferred = [
        {"weight": 1, "podAffinityTerm": _in_every_namespace(0, f"invented-{i}")} for i in terms
    ]
    spread = [
        {**_all_pods_but(i, f"invented-{i}"), "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        for i in range(LIMITS[Counted.SPREAD_CONSTRAINTS])
    ]
    fields: dict[str, dict[str, Any]] = {
        "an ordinary pod": {"cpu": "10m"},
        "invented label keys": _prefers([(f"key-{i}", "NotIn", ["x"]) for i in range(many)]),
        "numbers compared": _prefers([("size", "Gt", [str(i)]) for i in range(many)]),
        "host names": _prefers([(_HOST, "NotIn", names)]),
        "invented resources": {"requests": resources, "priority": 9},
        "anti-affinity to every pod": {"affinity": anti},
        "the same, and preemption": {"affinity": anti, "priority": 9},
        "invented topologies": {"affinity": {"podAffinity": {_PREFERRED: preferred}}},
        "spread over invented topologies": {"spread": spread},
    }
    return {
        what: parse_pod(pod(f"hostile-{i}", namespace="hostile", **given))
        for i, (what, given) in enumerate(fields.items())
    }


def longest_decisions(nodes: int) -> Mapping[str, tuple[float, float]]:
    """Return CPU seconds of the first and of the second decision about each pod."""
    scheduler = scheduler_state(
        *(node(f"n{i}", zone=f"z{i % 3}", labels={"size": str(i % 50)}) for i in range(nodes))
    )
    put_profile(scheduler)
    for i in range(2 * nodes):
        raw = pod(f"p{i}", cpu="10m", labels={"app": f"a{i % 200}"}, node=f"n{i % nodes}")
        placed = parse_pod(raw)
        scheduler.state.put(Kind.POD, placed.uid, placed)
    cache, seconds = ResultCache(scheduler.state.nodes), {}
    for what, hostile in hostile_pods().items():
        profile = scheduler.profiles.of(hostile, scheduler.cluster)
        assert profile is not None
        took = []
        for _ in range(2):
            began = time.process_time()
            decide(hostile, profile.pipeline, scheduler.cluster, cache, seed=1)
            took.append(time.process_time() - began)
        seconds[what] = (took[0], took[1])
    return seconds


def _all_pods_but(number: int, key: str) -> dict[str, Any]:
    expression = {"key": "app", "operator": "NotIn", "values": [f"b{number}"]}
    return {"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}}


def _in_every_namespace(number: int, key: str) -> dict[str, Any]:
    return {**_all_pods_but(number, key), "namespaceSelector": {}}


def _prefers(requirements: list[tuple[str, str, list[str]]]) -> dict[str, Any]:
    terms = [
        {
            "weight": 1,
            "preference": {"matchExpressions": [{"key": k, "operator": o, "values": v}]},
        }
        for k, o, v in requirements
    ]
    return {"affinity": {"nodeAffinity": {_PREFERRED: terms}}}


def _main(nodes: int) -> None:
    found = longest_decisions(nodes)
    for what, (first, second) in found.items():
        click.echo(f"{what:34}{1000 * first:8.1f} ms first {1000 * second:8.1f} ms second")
    longest = max(max(took) for took in found.values())
    click.echo(f"the longest decision on {nodes} nodes: {1000 * longest:.0f} ms")


if __name__ == "__main__":
    _main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
