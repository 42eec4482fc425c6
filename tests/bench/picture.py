"""The command `python -m bench.picture OUTPUT FILE...`: bars of CPU a pod, as SVG.

Each FILE is one that a bench has written: `live.json` or `scheduler_perf.json`. A pair of bars
shows the medians of the runs with either scheduler, in milliseconds of CPU for a pod.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

import click

from bench.live import words_of
from bench.schedulers import KubeScheduler, Mooring

__all__ = ["Pair", "pairs_of", "svg"]

_WIDTH: Final = 760
_LEFT: Final = 280
"""Where the bars begin, behind the names."""
_ROW: Final = 46
_TOP: Final = 56
_COLORS: Final = {Mooring.label: "#1a73e8", KubeScheduler.label: "#b0b8c4"}


class Pair(NamedTuple):
    """What a pod costs with each scheduler, in milliseconds of CPU."""

    name: str
    ours: float
    theirs: float


def pairs_of(document: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield a pair for each load or workload of a file, without those that have a fault."""
    costs: dict[str, dict[str, list[float]]] = {}
    for name, scheduler, cost in _costs(document):
        costs.setdefault(name, {}).setdefault(scheduler, []).append(cost)
    for name, found in costs.items():
        if found.keys() >= _COLORS.keys():
            yield Pair(name, *(median(found[label]) for label in _COLORS))


def svg(pairs: Sequence[Pair], caption: str) -> str:
    """Return the picture."""
    height, most = _TOP + _ROW * len(pairs) + 24, max(max(pair[1:]) for pair in pairs)
    rows = (
        row for index, pair in enumerate(pairs) for row in _row(pair, _TOP + _ROW * index, most)
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">'
    )
    head = (
        opening,
        "<title>CPU that a scheduler uses for a pod</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#fff"/>',
        *_legend(),
    )
    foot = f'<text x="20" y="{height - 10}" font-size="11" fill="#555">{escape(caption)}</text>'
    return "\n".join((*head, *rows, foot, "</svg>", ""))


def _costs(document: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield the load, the scheduler and the CPU for a pod of each run."""
    for run in document.get("runs", ()):
        yield words_of(run["rate"]), run["scheduler"], 1e3 * run["cpu_seconds"] / run["bound"]
    for workload in document.get("workloads", ()):
        for run in workload["runs"]:
            if not run["fault"]:
                costs = [measured["cpu_ms_per_pod"] for measured in run["measured"]]
                yield workload["name"], run["scheduler"], sum(costs) / len(costs)


def _legend() -> Iterator[str]:
    for index, (label, color) in enumerate(_COLORS.items()):
        x = _LEFT + 110 * index
        yield f'<rect x="{x}" y="20" width="12" height="12" fill="{color}"/>'
        yield f'<text x="{x + 18}" y="31">{label}</text>'
    yield '<text x="20" y="31">ms of CPU for a pod</text>'


def _row(pair: Pair, y: int, most: float) -> Iterator[str]:
    """Yield a name, and a bar for either scheduler."""
    yield f'<text x="20" y="{y + 22}">{escape(pair.name)}</text>'
    for index, (cost, color) in enumerate(zip(pair[1:], _COLORS.values(), strict=True)):
        width, top = (_WIDTH - _LEFT - 70) * cost / most, y + 17 * index
        yield f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="15" fill="{color}"/>'
        yield f'<text x="{_LEFT + width + 6:.1f}" y="{top + 12}">{cost:.2f}</text>'


@click.command()
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(output: Path, files: Sequence[Path]) -> None:
    """Draw the figures of FILES into OUTPUT."""
    documents = [json.loads(file.read_text()) for file in files]
    pairs = [pair for document in documents for pair in pairs_of(document)]
    if not pairs:
        raise click.ClickException("no load was run with both schedulers")
    first = documents[0]
    caption = (
        f"Kubernetes {first['kubernetes']}, {first['machine']['cpus']} cores that ran everything"
    )
    output.write_text(svg(pairs, caption))


if __name__ == "__main__":
    main(prog_name="python -m bench.picture")
