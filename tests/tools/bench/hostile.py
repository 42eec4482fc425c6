"""The command `python -m bench.hostile [NODES [WORD...]]`: how long cases hold the event loop.

By default 5,000 nodes with 150,000 pods. The command prints the longest step of a task, in CPU
time, for each case of `bench.holds`, `bench.device_holds` and `bench.pod_holds`, and for each slow
pod; it fails if a step exceeds its bound. Full garbage collections may come in any case; they do
not count in the steps and have their own line. Every slow pod is at a limit of
`mooring.model.limits`, so no scheduled pod is larger. Beside each slow pod an ordinary pod of
another namespace arrives; the command prints its waiting time, which has a bound, too.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from bench.device_holds import DEVICE_CASES
from bench.full_replica import PODS_PER_NODE, FullReplica
from bench.holds import (
    BOUND,
    CASES,
    WAIT_BOUND,
    WALK_BOUND,
    Case,
    Hold,
    Wait,
    hostile_pod,
    longest_hold,
)
from bench.pod_holds import POD_CASES
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"
_WAIT = "Behind a pod that is made to be slow: the longest wait"
_WALK = "Whatever is done: the longest walk over the collector's oldest generation"


def hostile_pods() -> Mapping[str, Pod]:
    """Return slow pods by a description; none exceeds a limit.

    Each pod has its own namespace: after a long attempt, pods of other namespaces go first.
    """
    many = LIMITS[Counted.NODE_TERMS]
    terms = range(LIMITS[Counted.POD_TERMS])
    names = [f"n{i}" for i in range(LIMITS[Counted.VALUES])]
    resources = {f"example.com/r{i}": 1 for i in range(LIMITS[Counted.RESOURCES])}
    anti = {"podAntiAffinity": {_REQUIRED: [_in_every_namespace(i, _HOST) for i in terms]}}
    preferred = [
        {"weight": 1, "podAffinityTerm": _in_every_namespace(0, f"invented-{i}")} for i in terms
    ]
    own = [
        {**_all_pods_but(i, _HOST), "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        for i in range(LIMITS[Counted.SPREAD_CONSTRAINTS])
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
        "spread over nodes": {"spread": own},
    }
    return {
        what: parse_pod(pod(f"hostile-{i}", namespace=f"team-{i}", **given))
        for i, (what, given) in enumerate(fields.items())
    }


async def measure(nodes: int, *words: str) -> list[tuple[str, Hold, float]]:
    """Return for each case its description, the longest hold, and an ordinary pod's waiting time.

    With `words`, run only the cases with one of the words in their description.
    """
    replica, found = FullReplica(nodes), list[tuple[str, Hold, float]]()
    slow_pods = [*POD_CASES, *(hostile_pod(what, each) for what, each in hostile_pods().items())]
    for case in (*CASES, *DEVICE_CASES, *slow_pods):
        what = (case.__doc__ or "").strip().split(".\n")[0].rstrip(".")
        if words and not any(word in what for word in words):
            continue
        longest, waited = await _measured(replica, case, has_company=case in slow_pods)
        found.append((what, longest, waited))
        _show(what, longest, BOUND)
        if waited > WAIT_BOUND:
            click.echo(f"{'':4}an ordinary pod of another namespace waits for {waited:.1f} s")
    await replica.client.close()
    return found


async def _measured(replica: FullReplica, case: Case, *, has_company: bool) -> tuple[Hold, float]:
    wait, holds = Wait(replica), list[Hold]()
    for work in case(replica):
        holds.append(await longest_hold(wait.beside(work) if has_company else work))
    longest = max(holds, key=lambda hold: hold.seconds)
    return replace(longest, walk=max(hold.walk for hold in holds)), wait.seconds


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


def _show(what: str, hold: Hold, bound: float) -> None:
    mark = "over" if hold.seconds > bound else ""
    milliseconds = f"{1000 * hold.seconds:8.1f}"
    click.echo(f"{what:84}{milliseconds} {1000 * bound:6.0f} {mark:5}{hold.task}")


def _main(nodes: int, *words: str) -> None:
    click.echo(f"{nodes} nodes, {PODS_PER_NODE * nodes} pods; CPU time of the longest step")
    click.echo(f"{'':84}{'ms':>8} {'bound':>6}")
    logging.disable(logging.ERROR)  # no API server takes what is written
    found = asyncio.run(measure(nodes, *words))
    over = [what for what, hold, _ in found if hold.seconds > BOUND]
    if over:
        click.echo(f"{len(over)} of {len(found)} hold the event loop for more than the bound")
    walk = max((hold.walk for _, hold, _ in found), default=0.0)
    _show(_WALK, Hold(walk, "garbage collection"), WALK_BOUND)
    waited = max((seconds for _, _, seconds in found), default=0.0)
    _show(_WAIT, Hold(waited, "an ordinary pod of another namespace"), WAIT_BOUND)
    sys.exit(bool(over) or walk > WALK_BOUND or waited > WAIT_BOUND)


if __name__ == "__main__":
    _main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000, *sys.argv[2:])
