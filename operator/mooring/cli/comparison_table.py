"""Prints a comparison of two policies as tables, JSON or YAML, and draws a picture of it."""

from collections.abc import Iterable, Sequence
from typing import Final

import click

from mooring.cli.console import DONE, NO, and_others, print_json, print_table, print_yaml
from mooring.model.wording import plural
from mooring.simulate.compare import ChangedNode, Comparison, PoolUse, merged
from mooring.simulate.picture import write_picture

_MOST_ROWS: Final = 20


def print_comparison(
    comparison: Comparison, output: str, plot: str | None, most: int | None
) -> int:
    """Print the comparison and return the exit code; draw a picture if `plot` names a file.

    The table of moved pods has at most `most` rows, but all rows with the output `wide`.
    """
    if plot is not None:
        write_picture(comparison, plot)
    if output in ("json", "yaml"):
        (print_json if output == "json" else print_yaml)(comparison.document())
    else:
        _print_pools(comparison)
        _print_moves(comparison.moves, None if output == "wide" else most or _MOST_ROWS)
        click.echo(_sum(comparison))
    return NO if comparison.lost else DONE


def _print_pools(comparison: Comparison) -> None:
    head = ("POOL", "NODES", "EMPTY", "CPU", "MEMORY", "FRAGMENTATION")
    rows = [
        (
            name,
            str(old.nodes),
            _change(str(old.empty), str(new.empty)),
            *(
                _change(_percent(getattr(old, field)), _percent(getattr(new, field)))
                for field in ("cpu", "memory", "fragmentation")
            ),
        )
        for name, (old, new) in comparison.pools.items()
    ]
    print_table(head, rows, numbers=head[1:])
    click.echo()


def _print_moves(moves: Iterable[ChangedNode], most: int | None) -> None:
    groups = merged(moves)
    shown = groups[:most]
    if not shown:
        return
    rows = [_row(group) for group in shown]
    failed = {index for index, group in enumerate(shown) if group[0].new is None}
    print_table(("POD", "OLD", "NEW"), rows, prose=("NEW",), failed=failed)
    left = sum(map(len, groups)) - sum(map(len, shown))
    click.echo(f"and {left:,} more; all of them: -o wide\n" if left else "")


def _row(group: Sequence[ChangedNode]) -> tuple[str, str, str]:
    first = group[0]
    alike = len({(move.old, move.new) for move in group}) == 1
    old = first.old or "-"
    new = first.new or f"none: {first.reason}"
    if not alike:
        old = f"{len({move.old for move in group})} nodes"
        new = f"{len({move.new for move in group})} nodes"
    return and_others(first.pod, len(group)), old, new


def _sum(comparison: Comparison) -> str:
    def empty(uses: Iterable[PoolUse]) -> int:
        return sum(use.empty for use in uses)

    before = empty(old for old, _ in comparison.pools.values())
    after = empty(new for _, new in comparison.pools.values())
    return (
        f"{plural(comparison.pods, 'pod')}: {len(comparison.moved):,} would move, "
        f"{len(comparison.lost):,} would lose their place, "
        f"{len(comparison.gained):,} would gain one; empty nodes {_change(str(before), str(after))}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _change(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"
