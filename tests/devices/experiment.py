"""How much of a cluster's GPUs each policy can allocate: `python -m devices.experiment FILE.svg`.

Pods come one after the other and none leaves, until 130 percent of the capacity was requested.

Plain counting knows the sum of a node's free GPU and nothing of its cards, as kube-scheduler does:
the device plugin then takes the first card with space, and where no card has any the pod fails and
is gone. The other policies place a pod only where single cards have space for it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, Final

from deciding import Deciding
from devices.alibaba import CARD, MILLI, NODES, Request, cards_in, nodes, raw_pod, requests
from mooring.model.pod import parse_pod
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.cycle import tie_break_seed
from mooring.scheduling.outcome import ScheduleResult

REQUESTED: Final = 1.3
SEEDS: Final = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Policy:
    """What is scored, and by which rule a card of the node is chosen; None if none is chosen."""

    title: str
    scores: Mapping[str, int]
    cards: str | None
    strategy: str = "LeastAllocated"

    def spec(self) -> dict[str, Any]:
        """Return the profile's spec: only the policy's scores, card filters if it knows cards."""
        strategy = {"type": self.strategy, "resources": [{"name": MILLI}]}
        assigning = ("GPUShare", "GPUTopology") if self.cards else ()
        plugins = dict.fromkeys((*assigning, *(n for n in self.scores if n.startswith("GPU"))))
        enabled = [{"name": name} for name in plugins]
        names = [{"name": name, "weight": weight} for name, weight in self.scores.items()]
        units = {"mibPerUnit": 1}
        return {
            "plugins": {
                "multiPoint": {"enabled": enabled},
                "score": {"disabled": [{"name": "*"}], "enabled": names},
            },
            "pluginConfig": [
                {"name": "GPUShare", "args": {**units, "cards": self.cards or "FirstFit"}},
                {"name": "GPUTopology", "args": units},
                {"name": "GPUFragmentation", "args": units},
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}},
            ],
        }


POLICIES: Final = (
    Policy("LeastAllocated counting", {"NodeResourcesFit": 1}, None, "LeastAllocated"),
    Policy("MostAllocated counting", {"NodeResourcesFit": 1}, None, "MostAllocated"),
    Policy("LeastAllocated, cards known", {"NodeResourcesFit": 1}, "FirstFit", "LeastAllocated"),
    Policy("gpushare binpack", {"GPUShare": 1, "GPUTopology": 1}, "Binpack"),
    Policy(
        "GPUFragmentation",
        {"GPUFragmentation": 30, "GPUShare": 1, "GPUTopology": 1},
        "LeastFragmentation",
    ),
)


@dataclass(frozen=True)
class Run:
    """Percent of the capacity: (requested, allocated) per pod, and at the first rejection."""

    points: tuple[tuple[float, float], ...]
    at_first_rejection: float

    @property
    def at_the_end(self) -> float:
        """Allocated when everything was requested."""
        return self.points[-1][1]


class DevicePlugins:
    """The cards of nodes whose scheduler only counts: the first ones with space are handed out."""

    def __init__(self) -> None:
        self._free: dict[str, list[int]] = {}

    def allocate(self, node: str, request: Request) -> bool:
        """Take cards of the node for the request; return whether it has them."""
        cards = int(node.split("-")[1])
        free = self._free.setdefault(node, [CARD] * cards)
        need = request.share or CARD
        fitting = [card for card, left in enumerate(free) if left >= need][: request.cards or 1]
        if len(fitting) < (request.cards or 1):
            return False
        for card in fitting:
            free[card] -= need
        return True


def run(policy: Policy, seed: int, counts: Mapping[tuple[int, int], int] = NODES) -> Run:
    """Run one policy on one sequence of requests."""
    deciding = Deciding(*nodes(counts), **policy.spec())
    device_plugins = DevicePlugins()
    capacity = cards_in(counts) * CARD
    requested = allocated = 0
    points, first_rejection = [], -1.0
    for number, request in enumerate(requests(seed)):
        raw = raw_pod(f"pod-{number:05}", request)
        pod = parse_pod(raw)
        outcome = deciding.outcome(raw, seed=tie_break_seed(pod.name, seed))
        requested += request.milli
        placed = isinstance(outcome, ScheduleResult)
        if isinstance(outcome, ScheduleResult) and policy.cards:
            assume_and_reserve(pod, outcome.row, deciding.pipeline, deciding.state).pop_all()
        elif isinstance(outcome, ScheduleResult):
            placed = not request.milli or device_plugins.allocate(outcome.node, request)
            if placed:
                deciding.state.assume(pod, outcome.row)
        if placed:
            allocated += request.milli
        elif request.milli and first_rejection < 0:
            first_rejection = 100 * allocated / capacity
        points.append((100 * requested / capacity, 100 * allocated / capacity))
        if requested >= REQUESTED * capacity:
            break
    return Run(tuple(points), first_rejection)


def drawn(runs: Mapping[str, Run]) -> str:
    """Return an SVG of the allocated share over the requested one."""
    width, height, left, bottom = 720, 420, 56, 380
    x_from, x_to, y_from, y_to = 60.0, 130.0, 60.0, 100.0
    colours = ("#888888", "#d08000", "#c04080", "#2070c0", "#108040")

    def at(x: float, y: float) -> str:
        across = left + (x - x_from) / (x_to - x_from) * (width - left - 28)
        return f"{across:.1f},{bottom - (y - y_from) / (y_to - y_from) * (bottom - 24):.1f}"

    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for y in range(60, 101, 10):
        (x1, y1), (x2, _) = (at(x, y).split(",") for x in (x_from, x_to))
        parts.append(f'<path d="M{x1} {y1}H{x2}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y1}" text-anchor="end">{y} %</text>')
    parts += [
        f'<text x="{at(x, 0).split(",")[0]}" y="{bottom + 18}" text-anchor="middle">{x} %</text>'
        for x in range(60, 131, 10)
    ]
    parts.append(
        f'<text x="{width // 2}" y="{height - 6}" text-anchor="middle">'
        "GPU requested so far, of the capacity</text>"
    )
    parts.append(f'<text x="{left}" y="14">GPU allocated, of the capacity</text>')
    for line, (title, result) in enumerate(runs.items()):
        points = (*result.points[::8], result.points[-1])
        path = " ".join(at(x, y) for x, y in points if x >= x_from and y >= y_from)
        colour = colours[line % len(colours)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = bottom - 16 * (len(runs) - line)
        parts.append(f'<path d="M400 {y - 4}h24" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="430" y="{y}">{title}</text>')
    return "\n".join((*parts, "</svg>", ""))


def main(arguments: Sequence[str]) -> None:
    """Run every policy with every seed, print means and standard deviations, draw the first."""
    drawn_runs: dict[str, Run] = {}
    print("| policy | allocated when the first pod fits nowhere | allocated at 130 % |")  # noqa: T201 - the output
    print("|---|---|---|")  # noqa: T201 - the output
    for policy in POLICIES:
        runs = [run(policy, seed) for seed in SEEDS]
        drawn_runs[policy.title] = runs[0]
        first = _over_seeds([each.at_first_rejection for each in runs])
        end = _over_seeds([each.at_the_end for each in runs])
        print(f"| {policy.title} | {first} | {end} |", flush=True)  # noqa: T201 - the output
    if arguments:
        Path(arguments[0]).write_text(drawn(drawn_runs))


def _over_seeds(percent: Sequence[float]) -> str:
    return f"{mean(percent):.1f} % ± {pstdev(percent):.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
