"""The command `python -m bench.rebalancing [NODES]`: what plans cost in a large cluster.

By default 5,000 nodes with 150,000 pods. Prints for each case the CPU time of the plan and of its
longest step, with slices of 5 ms, how many pods were examined, and how many moves were found.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from mooring.engine.groups.budget import SearchBudget
from mooring.engine.rebalancing.plan import Plan
from mooring.framework.evaluations import MOST_PER_ATTEMPT
from mooring.pausing import Work
from mooring.testing.builders import node, pdb, pod
from mooring.time_slices import TimeSlices
from replanning import Replanning, owned

__all__ = ["CASES", "Cost", "measure"]

_PODS_PER_NODE: Final = 30
_STEPS: Final = 3_000
_SLICE: Final = 0.005
_HOST: Final = "kubernetes.io/hostname"

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a plan, and of its longest step."""

    plan: Plan
    seconds: float
    longest: float


def measure(replanning: Replanning, steps: int = _STEPS) -> Cost:
    """Make a plan in slices; return it and what it cost."""
    clock = time.process_time
    planner, slices = (
        replanning.planner(budget=SearchBudget(steps)),
        TimeSlices(_SLICE, clock=clock),
    )
    gc.collect()
    gc.freeze()  # as a replica does
    began, longest, has_ended = clock(), 0.0, False
    with Work(planner.plan, slices) as work:
        while not has_ended:
            slices.begin()
            before = clock()
            has_ended = work.advance()
            longest = max(longest, clock() - before)
        return Cost(work.result(), clock() - began, longest)


def _nodes(count: int, **labels: str) -> Iterator[Raw]:
    return (
        node(f"n{n}", cpu="64", memory="256Gi", zone="abc"[n % 3], labels=labels)
        for n in range(count)
    )


def _ordinary(nodes: int, number: int, **fields: Any) -> Raw:
    """Return a pod of a Deployment with 60 pods, of which there are many."""
    app = f"web-{number // 60}"
    return owned(
        f"p{number}",
        owner=app,
        labels={"app": app},
        cpu=f"{100 + number // 60 % 50 * 10}m",
        memory="512Mi",
        node=f"n{number % nodes}",
        **fields,
    )


def violations(nodes: int) -> Replanning:
    """Mend 200 pods whose nodes have lost a label, among ordinary ones."""
    pods = (
        _ordinary(
            nodes, n, node_selector={"disk": "ssd"} if n % nodes < 40 and n < 5 * nodes else None
        )
        for n in range(_PODS_PER_NODE * nodes)
    )
    lost = (node(f"n{n}", cpu="64", memory="256Gi", zone="abc"[n % 3]) for n in range(40))
    kept = (raw for n, raw in enumerate(_nodes(nodes, disk="ssd")) if n >= 40)
    return Replanning(*lost, *kept, *pods)


def spread(nodes: int) -> Replanning:
    """Spread pods onto a tenth of the nodes, which are empty."""
    full = nodes - nodes // 10
    pods = (_ordinary(full, n) for n in range(_PODS_PER_NODE * nodes))
    return Replanning(*_nodes(nodes), *pods, rebalancing={"goals": ["Violations", "Spread"]})


def pack(nodes: int) -> Replanning:
    """Empty nodes that are a fifth full."""
    pods = (_ordinary(nodes, n) for n in range(_PODS_PER_NODE * nodes))
    return Replanning(*_nodes(nodes), *pods, rebalancing={"goals": ["Pack"]})


def room(nodes: int) -> Replanning:
    """Make room for 10,000 pods that wait, on nodes of which no two have enough together."""
    pods = (_ordinary(nodes, n) for n in range(_PODS_PER_NODE * nodes))
    waiting = [pod(f"w{n}", cpu="60", priority=n % 7) for n in range(2 * nodes)]
    waiting.sort(key=lambda raw: -raw["spec"]["priority"])
    return Replanning(*_nodes(nodes), *pods, waiting=waiting, rebalancing={"goals": ["MakeRoom"]})


def hostile(nodes: int) -> Replanning:
    """Look at pods that all differ and have terms of affinity, beside 1,000 budgets."""
    term = {"topologyKey": _HOST, "labelSelector": {"matchLabels": {"app": "web-1"}}}

    def own(n: int) -> Mapping[str, Any]:
        return {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1 + n % 100, "podAffinityTerm": term | {"namespaces": [f"x{n}"]}}
                ]
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": _HOST, "labelSelector": {"matchLabels": {"mine": f"{n}"}}}
                ]
            },
        }

    count = _PODS_PER_NODE * nodes
    pods = (_ordinary(nodes, n, affinity=own(n) if n % 3 else None) for n in range(count))
    budgets = (pdb(f"b{n}", {"app": f"web-{n}"}, allowed=1) for n in range(1_000))
    return Replanning(
        *_nodes(nodes),
        *pods,
        *budgets,
        rebalancing={"goals": ["Violations", "Spread"]},
        most_per_attempt=MOST_PER_ATTEMPT,
    )


CASES: Final[Iterable[Callable[[int], Replanning]]] = (violations, spread, pack, room, hostile)


def _main(nodes: int, *names: str) -> None:
    for case in CASES:
        if names and case.__name__ not in names:
            continue
        cost = measure(case(nodes))
        what = (case.__doc__ or "").split("\n", maxsplit=1)[0]
        click.echo(
            f"{what:75} {cost.seconds:6.2f} s, step {1000 * cost.longest:6.1f} ms, "
            f"{cost.plan.examined} of {cost.plan.pods} pods, {len(cost.plan.moves)} moves, "
            f"refused {dict(cost.plan.refused)}"
        )


if __name__ == "__main__":
    _main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000, *sys.argv[2:])
