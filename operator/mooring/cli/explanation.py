"""Explain decisions and pod groups in lines of text and tables; both are in their JSON form."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["explanation", "pod_group_lines", "score_table"]

_MOST_NODES: Final = 3


def explanation(decision: Mapping[str, Any]) -> Iterator[str]:
    """The message, the nomination, and which plugins rejected how many nodes, one per line."""
    if decision["message"]:
        yield decision["message"]
    if decision["nominatedNode"]:
        yield f"will fit on {decision['nominatedNode']} without {', '.join(decision['victims'])}"
    rejected = Counter[tuple[str, str]]()
    examples: dict[tuple[str, str], list[str]] = {}
    for node, rejection in decision["rejections"].items():
        why = (rejection["plugin"], ", ".join(rejection["reasons"]))
        rejected[why] += 1
        examples.setdefault(why, []).append(node)
    for (plugin, reasons), count in rejected.most_common():
        nodes = examples[plugin, reasons][:_MOST_NODES]
        more = f" and {count - len(nodes)} more" if count > len(nodes) else ""
        yield f"{', '.join(nodes)}{more}: {plugin}: {reasons}"
    for table, total in decision.get("truncated", {}).items():
        yield f"(of {total} {table} these are the ones kept)"


def score_table(
    scores: Mapping[str, Any], most: int | None = None
) -> tuple[Sequence[str], list[Sequence[str]], Sequence[str]]:
    """Head, rows and names of the number columns of a table: nodes, totals, scores by plugin.

    Without `most` all nodes are in it, else the first `most`: records begin with the best nodes.
    """
    shown = [*scores.items()][:most]
    plugins = sorted({name for _, score in shown for name in score["plugins"]})
    rows: list[Sequence[str]] = [
        (node, str(score["total"]), *(str(score["plugins"].get(name, "-")) for name in plugins))
        for node, score in shown
    ]
    numbers = ("TOTAL", *plugins)
    return ("NODE", *numbers), rows, numbers


def pod_group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    """What the group waits for, its members by state, and the domains that were tried."""
    yield f"pod group {group['podGroup']} ({group['source']}): {group['phase']}"
    if group["message"]:
        yield f"  {group['message']}"
    members = ", ".join(f"{count} {state}" for state, count in group["members"].items() if count)
    minimum = "" if group["minimum"] is None else f", minimum {group['minimum']}"
    missing = f", {group['missing']} missing" if group["missing"] else ""
    yield f"  members: {members or 'none'}{minimum}{missing}; priority {group['priority']}"
    if group["topology"]:
        yield f"  topology: {' > '.join(group['topology']['keys'])} ({group['topology']['mode']})"
    decision = group["decision"]
    if decision is None:
        return
    where = f" in {'='.join(decision['domain'])}" if decision["domain"] else ""
    what = f"{decision['placed']} members placed{where}" if decision["placed"] else "not placed"
    yield f"  {decision['time']}: {what}, {decision['tries']} placements tried"
    if decision["bounded"] and not decision["placed"]:
        yield "  Not all placements could be tried: one may exist that was not found."
    for tried in decision["tried"]:
        yield f"  - {tried['key']}={tried['value']}: {tried['message']}"
    if decision["triedInAll"] > len(decision["tried"]):
        yield f"  (of {decision['triedInAll']} domains these are the ones kept)"
