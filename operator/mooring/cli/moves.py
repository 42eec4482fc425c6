"""Prints plans of moves: a table grouped by step and a summary, or JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import click
from rich.cells import cell_len

from mooring.cli.console import (
    coloured,
    folded,
    print_json,
    print_table,
    printable,
    terminal_width,
)
from mooring.framework.decision import TextAboutPods
from mooring.model.wording import plural
from mooring.observe.documents import plain
from mooring.rebalancing.report import PlannedStep, PlanReport
from mooring.simulate.offline_plan import WantedPlan

_HEAD: Final = ("STEP", "POD", "FROM", "TO", "GAIN", "WHY")
_WIDE: Final = ("STEP", "POD", "OWNER", "FROM", "TO", "GOAL", "GAIN", "WHY")
_NUMBERS: Final = ("STEP", "GAIN")
_INDENT: Final = "  "
_GAP: Final = "   "
_ARROW: Final = " -> "
_LEAST_WHY: Final = 24
_GAPS: Final = 3 * (len(_HEAD) - 1)
_USUAL_WIDTH: Final = 80


def print_plans(reports: Sequence[PlanReport], output: str) -> None:
    """Print the plans as a `table` or a `wide` table."""
    for number, report in enumerate(reports):
        if number:
            click.echo()
        _print_plan(report, wide=output == "wide")


def print_plans_as_json(reports: Sequence[PlanReport], wanted: WantedPlan | None = None) -> None:
    """Print `{"plans": [...]}`; the field `for` has the answer about the wanted pod or group."""
    document: dict[str, Any] = {}
    if wanted is not None:
        of = wanted.wanted
        kind = "podGroup" if of.is_group else "pod"
        document["for"] = {
            kind: f"{of.namespace}/{of.name}",
            "fits": wanted.fits,
            "message": wanted.message,
        }
    print_json({**document, "plans": plain(reports)})


def print_wanted(found: WantedPlan) -> None:
    """Print the sentence that answers the option --for."""
    text = str(printable(found.message)).rstrip(".")
    if coloured():
        text = click.style(text, fg="green" if found.fits else "yellow")
    click.echo(f"{text}.")


def _print_plan(report: PlanReport, *, wide: bool) -> None:
    goals = ", ".join(report.goals)
    if not report.steps:
        why = f": {_text(report.message)}" if report.message else ""
        nothing = "no move was found" if report.spent else "nothing to move"
        click.echo(f"profile {report.profile} ({goals}): {nothing}{why}")
    else:
        moves, steps = plural(report.moves, "move"), plural(len(report.steps), "step")
        click.echo(f"profile {report.profile} ({goals}): {moves} in {steps}\n")
        _print_steps(report.steps, wide=wide)
        click.echo()
        if wide:
            _print_nodes(report)
    for line in _sums(report):
        click.echo(line)


def _print_steps(steps: Sequence[PlannedStep], *, wide: bool) -> None:
    rows = [row for number, step in enumerate(steps, 1) for row in _rows(number, step, wide=wide)]
    head, width = _WIDE if wide else _HEAD, terminal_width()
    if wide or width is None or _fits(rows, width):
        print_table(head, rows, numbers=_NUMBERS, prose=("WHY",))
        return
    widths = _widths(steps)
    beside = sum(widths) + len(_ARROW) + len(_INDENT) + len(_GAP) <= width
    for number, step in enumerate(steps, 1):
        for line in _stacked(number, step, width, widths if beside else None):
            click.echo(line)


def _rows(number: int, step: PlannedStep, *, wide: bool) -> Iterator[tuple[str, ...]]:
    for first, move in zip((True, *[False] * len(step.moves)), step.moves, strict=False):
        owner = (move.owner or "-",) if wide else ()
        goal = (step.goal if first else "",) if wide else ()
        yield (
            str(number) if first else "",
            move.pod.key,
            *owner,
            move.from_,
            move.to,
            *goal,
            str(step.gain) if first else "",
            _text(step.reason) if first else "",
        )


def _text(text: str | TextAboutPods) -> str:
    return str(printable(text.text if isinstance(text, TextAboutPods) else text))


def _fits(rows: Sequence[Sequence[str]], width: int) -> bool:
    # Reasons, in the last column, may be folded.
    columns = zip(_HEAD[:-1], *(row[:-1] for row in rows), strict=True)
    return sum(max(map(cell_len, column)) for column in columns) + _GAPS + _LEAST_WHY <= width


def _widths(steps: Iterable[PlannedStep]) -> tuple[int, int, int]:
    moves = [move for step in steps for move in step.moves]
    return (
        max(cell_len(move.pod.key) for move in moves),
        max(cell_len(move.from_) for move in moves),
        max(cell_len(move.to) for move in moves),
    )


def _stacked(
    number: int, step: PlannedStep, width: int, beside: tuple[int, int, int] | None
) -> Iterator[str]:
    """Yield the lines of a plan's step if pod and node names are too long for a table."""
    yield from folded(f"step {number}, gain {step.gain}: {_text(step.reason)}", width)
    for move in step.moves:
        if beside is None:
            yield f"{_INDENT}{move.pod.key}"
            yield f"{_INDENT * 2}from {move.from_}"
            yield f"{_INDENT * 2}to   {move.to}"
        else:
            pod, source, _ = beside  # widths
            way = f"{move.from_:<{source}}{_ARROW}{move.to}"
            yield f"{_INDENT}{move.pod.key:<{pod}}{_GAP}{way}"


def _print_nodes(report: PlanReport) -> None:
    rows = [
        (
            each.node,
            f"{each.before.pods} -> {each.after.pods}",
            f"{each.before.cpu:.0f}% -> {each.after.cpu:.0f}%",
            f"{each.before.memory:.0f}% -> {each.after.memory:.0f}%",
        )
        for each in report.nodes
    ]
    print_table(("NODE", "PODS", "CPU", "MEMORY"), rows)
    click.echo()


def _sums(report: PlanReport) -> Iterator[str]:
    width = terminal_width() or _USUAL_WIDTH
    if report.pods:
        yield f"{plural(report.pods, 'running pod')} of the profile"
    if report.spent:
        yield from folded(_left_out(report), width)
    if report.more:
        yield "the plan is as long as limits.movesPerPlan allows; there may be more"
    if report.violations:
        yield f"{plural(report.violations, 'violation')} mended"
    if report.emptied:
        names = ", ".join(report.emptied)
        yield from folded(f"{plural(len(report.emptied), 'node')} emptied: {names}", width)
    if report.fits:
        fits = "fits" if len(report.fits) == 1 else "fit"
        names = ", ".join(pod.key for pod in report.fits)
        pending = plural(len(report.fits), "pending pod")
        yield from folded(f"{pending} that {fits} afterwards: {names}", width)
    if report.refused:
        total = sum(each.pods for each in report.refused)
        yield f"{plural(total, 'pod')} would gain, and {'is' if total == 1 else 'are'} not moved:"
        for each in report.refused:
            yield from folded(f"  {each.pods:,}: the pod {printable(each.reason)}", width)


def _left_out(report: PlanReport) -> str:
    looked_at = ""
    if report.examined is not None and report.examined < report.pods:
        looked_at = f", at {plural(report.examined, 'pod')} only"
    return (
        f"not all was looked at{looked_at}, because the decisions that a plan may cost were spent; "
        "plan for fewer goals, or for fewer pods (`pods` in the profile's section rebalancing)"
    )
