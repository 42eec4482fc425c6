"""The command `python -m bench.templates [NODES [PODS]]`: what a decision costs by templates.

By default 5,000 nodes and 1,000 pods a row. No API server is involved: pods of some templates are
decided about in turn and assumed. *Plain* templates differ in requests and image, *selective* ones
in toleration, node selector and preferred node affinity too. Prints microseconds of CPU of a
decision alone: the mean, the median and the lowest tenth, on which other work on the machine has
the least influence.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from deciding import Deciding
from mooring.engine.cycle import decide
from mooring.engine.outcome import ScheduleResult
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, toleration

__all__ = ["Costs", "measure"]

ROWS: Final = (1, 100, 1000, 0)
"""How many templates; 0 stands for a template per pod."""
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_RACKS: Final = 50


class Costs(list[float]):
    """CPU seconds of each decision."""

    def __str__(self) -> str:
        """Return mean, median and lowest tenth in microseconds."""
        lowest, *_ = statistics.quantiles(self, n=10)
        figures = (statistics.mean(self), statistics.median(self), lowest)
        return " ".join(f"{1e6 * figure:5.0f}" for figure in figures)


def measure(nodes: int, pods: int, templates: int, *, selective: bool) -> Costs:
    """Return what deciding about so many pods costs.

    A third as many, or one of each template, come before, unmeasured.
    """
    deciding = Deciding(*_nodes(nodes))
    for number in range(nodes):
        deciding.place(pod(f"placed-{number}", cpu="100m", memory="64Mi"), f"n{number}")
    costs, warm = Costs(), max(pods // 3, templates)
    for number in range(warm + pods):
        raw = _pod(number, number % templates if templates else number, selective=selective)
        parsed = parse_pod(raw)
        began = time.process_time_ns()
        outcome = decide(parsed, deciding.pipeline, deciding.cluster, deciding.shared, seed=number)
        if number >= warm:
            costs.append((time.process_time_ns() - began) / 1e9)
        if not isinstance(outcome, ScheduleResult):
            raise click.ClickException(f"the {nodes} nodes are full after {number} pods: give more")
        deciding.state.assume(parsed, outcome.row)
    return costs


def _nodes(number: int) -> Iterator[dict[str, Any]]:
    """Yield nodes in three zones; one of ten has a taint, and one of two has an image."""
    for i in range(number):
        labels = {"topology.kubernetes.io/zone": f"z{i % 3}", "rack": f"r{i % _RACKS}"}
        taints = ["dedicated=batch:PreferNoSchedule"] if i % 10 == 0 else []
        images = {"registry.example/base:v1": 500_000_000} if i % 2 else {}
        yield node(f"n{i}", cpu="64", memory="256Gi", labels=labels, taints=taints, images=images)


def _pod(number: int, template: int, *, selective: bool) -> dict[str, Any]:
    """Return a pod of a template."""
    fields: dict[str, Any] = {
        "cpu": f"{20 + template % 400}m",
        "memory": f"{32 + template // 400}Mi",
        "images": (f"registry.example/app-{template}:v1",),
    }
    if selective:
        racks = {"key": "rack", "operator": "NotIn", "values": [f"r{template}"]}
        prefers = {"weight": 1, "preference": {"matchExpressions": [racks]}}
        fields["affinity"] = {"nodeAffinity": {_PREFERRED: [prefers]}}
        fields["tolerations"] = (toleration(f"team-{template}", "x", "NoSchedule"),)
        fields["node_selector"] = {"rack": f"r{template % _RACKS}"}
    return pod(f"p{number}", **fields)


@click.command()
@click.argument("nodes", type=click.IntRange(1), default=5000)
@click.argument("pods", type=click.IntRange(2), default=1000)
def main(nodes: int, pods: int) -> None:
    """Print what a decision about one of PODS pods costs with NODES nodes, by templates.

    A line per kind and number of templates: microseconds of CPU, the mean, the median and the
    lowest tenth. For example:

        python -m bench.templates 2000 500
    """
    for selective in (False, True):
        for templates in ROWS:
            costs = measure(nodes, pods, templates, selective=selective)
            kind = "selective" if selective else "plain"
            click.echo(f"{nodes:6} nodes, {kind:9} {templates or pods:5} templates: {costs} us")


if __name__ == "__main__":
    main()
